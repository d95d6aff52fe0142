package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/telemetry"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// measure has OpenTelemetry watch the shop's queue and the worker that is made of the config it returns, and serves
// what it counts to Prometheus, at METRICS_ADDR (a free port of the loopback interface unless that is set). The traces'
// exporter is for the reader to choose; without one, jobs still carry their context.
func (s *shop) measure(config jobs.Config) (jobs.Config, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return config, err
	}
	about := resource.NewSchemaless(attribute.String("service.name", "stagedoor"))
	meters := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about))
	tracers := trace.NewTracerProvider(trace.WithResource(about))
	tel := telemetry.New(telemetry.Options{MeterProvider: meters, TracerProvider: tracers})
	options := tel.Client(jobs.Options{Annotate: annotate})
	s.client, s.office.outbox.Annotate = jobs.NewClient(s.rdb, options), options.Annotate
	if err := s.office.measureOutbox(meters.Meter("stagedoor")); err != nil {
		return config, err
	}
	unregister := tel.Register(s.client)
	s.closers = append(s.closers, unregister, func() {
		_ = meters.Shutdown(context.Background()) // what is scraped is not flushed
		_ = tracers.Shutdown(context.Background())
	})
	url, err := s.serveMetrics(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if err != nil {
		return config, err
	}
	config.Logger.Info("metrics for Prometheus", "url", url)
	return tel.Runner(config), nil
}

// measureOutbox has each collection ask what waits in the outbox. Alert on outbox.lag: where no relay runs, or none
// comes through, this is what grows. As with the queue's own gauges, each process that asks says the same; take the
// maximum.
func (b *boxOffice) measureOutbox(meter api.Meter) error {
	lag, err := meter.Float64ObservableGauge("outbox.lag", api.WithUnit("s"),
		api.WithDescription("Seconds the oldest job in the outbox has waited for a relay."))
	if err != nil {
		return err
	}
	waiting, err := meter.Int64ObservableGauge("outbox.waiting", api.WithUnit("{job}"),
		api.WithDescription("Jobs in the outbox that no relay has carried yet."))
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(ctx context.Context, o api.Observer) error {
		ctx, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		now, err := b.outbox.Lag(ctx, b.db)
		if err != nil {
			return err // to OpenTelemetry's error handler; there is no point then
		}
		o.ObserveFloat64(lag, now.Oldest.Seconds())
		o.ObserveInt64(waiting, now.Rows)
		return nil
	}, lag, waiting)
	return err
}

func (s *shop) serveMetrics(h http.Handler) (url string, err error) {
	addr := os.Getenv("METRICS_ADDR")
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("METRICS_ADDR: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	s.closers = append(s.closers, func() { server.Close() })
	return "http://" + listener.Addr().String() + "/metrics", nil
}
