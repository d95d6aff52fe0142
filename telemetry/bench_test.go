package telemetry_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/telemetry"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// BenchmarkWatching is what watching costs a job, by itself: a delivery, a run that does nothing, and its outcome.
// -benchmem shows what each part allocates.
func BenchmarkWatching(b *testing.B) {
	job := jobs.Job{Kind: "mail", ID: "0197a3b2-5b7d-7b0e-9d0a-3c1f2e4d5a6b", Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	for name, tel := range telemetries() {
		b.Run(name, func(b *testing.B) {
			run := tel.Middleware(func(context.Context, jobs.Job) error { return nil })
			b.ReportAllocs()
			for b.Loop() {
				tel.Observe(jobs.Event{What: jobs.EventDelivered, Job: job, Deliveries: 1})
				_ = run(b.Context(), job)
				tel.Observe(jobs.Event{What: jobs.EventSettled, Job: job, Outcome: jobs.OutcomeDone, Deliveries: 1, Took: 1})
			}
		})
	}
}

// BenchmarkWorker is what a job costs a worker of 64 slots, from fetching to settling it, unwatched and watched.
func BenchmarkWorker(b *testing.B) {
	const n = 1000
	for name, tel := range telemetries() {
		b.Run(name, func(b *testing.B) {
			rdb := servers.NewRedis(b).Client(b)
			var ran atomic.Int64
			all := make(chan struct{})
			runner := jobs.NewRunner(jobs.NewClient(rdb, jobs.Options{}), tel.Runner(jobs.Config{Slots: 64, Logger: slog.New(slog.DiscardHandler)}))
			jobs.Handle(runner, mail, func(context.Context, jobs.None) error {
				if ran.Add(1)%n == 0 {
					all <- struct{}{}
				}
				return nil
			})
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- runner.Run(ctx) }()
			b.ReportAllocs()
			for b.Loop() {
				fill(b, rdb, n)
				<-all
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/job")
			stop()
			must(b, <-ended)
		})
	}
}

// fill has Redis itself put jobs on the stream.
func fill(b *testing.B, rdb *redis.Client, n int) {
	const script = `for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'kind', 'mail', 'job_id', i, 'trace', ARGV[2]) end`
	if err := rdb.Eval(b.Context(), script, []string{"jobs"}, n, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").Err(); err != nil && err != redis.Nil {
		b.Fatal(err)
	}
}

// telemetries are none, metrics alone, and metrics with each run's span, by name.
func telemetries() map[string]*telemetry.Telemetry {
	metrics := func() *sdkmetric.MeterProvider {
		return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	}
	return map[string]*telemetry.Telemetry{
		"off":     nil,
		"metrics": telemetry.New(telemetry.Options{MeterProvider: metrics(), TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))}),
		"traces":  telemetry.New(telemetry.Options{MeterProvider: metrics(), TracerProvider: sdktrace.NewTracerProvider()}),
	}
}
