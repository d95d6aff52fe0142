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
