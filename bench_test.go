package jobs_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

type ticketArgs struct {
	OrderID int `job:"order_id"`
}

// BenchmarkEnqueue enqueues one job a call, as a request handler does.
func BenchmarkEnqueue(b *testing.B) {
	q := newQueue(b, servers.SharedRedis(b).Client(b), servers.Prefix(b))
	kind := jobs.NewKind[ticketArgs]("render_tickets", jobs.Policy{})
	b.ReportAllocs()
	for b.Loop() {
		j := kind.Job(ticketArgs{4471})
		j.RequestID, j.Trace = "7f3a9c2e-5b7d-4b0e-9d0a-3c1f2e4d5a6b", "4bf92f3577b34da6a3ce929d0e0e4736"
		if err := q.Enqueue(b.Context(), j); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRun is what a job costs a worker of 64 slots from fetching to settling it; each
// round is a thousand jobs, which Redis itself puts on the stream.
func BenchmarkRun(b *testing.B) {
	const n = 1000
	q := newQueue(b, servers.SharedRedis(b).Client(b), servers.Prefix(b))
	kind := jobs.NewKind[ticketArgs]("render_tickets", jobs.Policy{})
	var ran atomic.Int64
	all := make(chan struct{})
	r := jobs.NewRunner(q.Client, jobs.Config{Slots: 64, Logger: slog.New(slog.DiscardHandler)})
	jobs.Handle(r, kind, func(context.Context, ticketArgs) error {
		if ran.Add(1)%n == 0 {
			all <- struct{}{}
		}
		return nil
	})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		q.fill(b, n)
		<-all
	}
	runtime.ReadMemStats(&after)
	jobs := float64(n * b.N)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/jobs, "allocs/job")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/jobs, "B/job")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/jobs, "ns/job")
}

// fill lets Redis put n jobs on the stream, at no cost to this process.
func (q *queue) fill(b *testing.B, n int) {
	const add = `for i = 1, tonumber(ARGV[1]) do
  redis.call('XADD', KEYS[1], '*', 'kind', 'render_tickets', 'order_id', '4471', 'job_id', i, 'attempts', '0',
    'request_id', '7f3a9c2e-5b7d-4b0e-9d0a-3c1f2e4d5a6b', 'trace', '4bf92f3577b34da6a3ce929d0e0e4736')
end`
	if err := q.rdb.Eval(b.Context(), add, []string{q.key("jobs")}, n).Err(); err != nil && err.Error() != "redis: nil" {
		b.Fatal(err)
	}
}
