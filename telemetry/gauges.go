package telemetry

import (
	"context"
	"time"

	"github.com/stagedoor/jobs"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// What a collection asks Redis for. Each answers for itself: where one fails its gauges are
// absent, not 0, and jobs.collect.errors counts.
var queries = []string{"stats", "workers", "schedules"}

// Register has each collection look up c's gauges in Redis: depths, age of the oldest ready
// job, workers, schedules. It asks for Client.Stats, Workers and Schedules once each, waits
// for Options.Timeout at most, and takes as long as there are workers, not jobs. The gauges
// are the queue's and not the process's: every process that registers says the same, so
// take their maximum. The function it returns ends that.
func (t *Telemetry) Register(c *jobs.Client) (unregister func()) {
	if t == nil {
		return func() {}
	}
	m := t.metrics
	collect := func(ctx context.Context, o metric.Observer) error {
		t.collect(ctx, c, o)
		return nil // it is counted
	}
	r, err := m.meter.RegisterCallback(collect, m.depth, m.workers, m.slots, m.oldest, m.overdue, m.period)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() {
		if err := r.Unregister(); err != nil {
			otel.Handle(err)
		}
	}
}

func (t *Telemetry) collect(ctx context.Context, c *jobs.Client, o metric.Observer) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	stats, err := c.Stats(ctx)
	if t.seen(ctx, "stats", err) {
		t.observeStats(stats, o)
	}
	workers, err := c.Workers(ctx)
	if !t.seen(ctx, "workers", err) {
		return // without them no schedule either
	}
	clock := t.observeWorkers(workers, o)
	schedules, err := c.Schedules(ctx)
	if t.seen(ctx, "schedules", err) {
		t.observeSchedules(schedules, clock, o)
	}
}

// seen counts where a query has failed.
func (t *Telemetry) seen(ctx context.Context, query string, err error) bool {
	if err != nil {
		t.metrics.blind.Add(context.WithoutCancel(ctx), 1, t.with(queryKey.String(query)).add...)
	}
	return err == nil
}

func (t *Telemetry) observeStats(s jobs.Stats, o metric.Observer) {
	depths := map[string]int64{"ready": s.Ready, "running": s.Running, "delayed": s.Delayed, "dead": s.Dead}
	for state, n := range depths {
		o.ObserveInt64(t.metrics.depth, n, t.with(stateKey.String(state)).observe)
	}
	o.ObserveFloat64(t.metrics.oldest, s.OldestReady.Seconds(), t.with().observe)
}

// observeWorkers returns what time it was by Redis's clock, when last a worker looked.
func (t *Telemetry) observeWorkers(workers []jobs.Worker, o metric.Observer) (clock time.Time) {
	var living, slots int64
	for _, w := range workers {
		if w.Seen.IsZero() {
			continue
		}
		living++
		slots += int64(w.Slots)
		if w.Seen.After(clock) {
			clock = w.Seen
		}
	}
	o.ObserveInt64(t.metrics.workers, living, t.with().observe)
	o.ObserveInt64(t.metrics.slots, slots, t.with().observe)
	return clock
}

// observeSchedules tells how long each schedule's next tick has been due. A worker's Next
// stays where it is until that tick is a job; where it is one already, that worker was killed
// or has not told of the next one yet, and nothing is known to be due. Where nobody knows the
// last one (Redis has lost it), the period is 0, and what is overdue is so at once.
func (t *Telemetry) observeSchedules(schedules []jobs.ScheduleState, clock time.Time, o metric.Observer) {
	for _, s := range schedules {
		if s.Next.IsZero() || !s.Next.After(s.Last) {
			continue // it is never due again, or nobody has told when
		}
		period := 0.0
		if !s.Last.IsZero() {
			period = s.Next.Sub(s.Last).Seconds()
		}
		of := t.with(scheduleKey.String(s.Name))
		o.ObserveFloat64(t.metrics.overdue, max(0, clock.Sub(s.Next).Seconds()), of.observe)
		o.ObserveFloat64(t.metrics.period, period, of.observe)
	}
}
