package telemetry

import (
	"context"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

var group = semconv.MessagingConsumerGroupName("workers")

// Observe is for jobs.Config.Observe: it counts what a Middleware cannot see.
func (t *Telemetry) Observe(e jobs.Event) {
	if t == nil {
		return
	}
	ctx, m := context.Background(), t.metrics
	switch e.What {
	case jobs.EventDelivered:
		deliveries, late := e.Deliveries, e.Late // not all of e: this is kept
		t.kinds.delivered(e.Job.Kind, func(kind string) { t.delivered(ctx, kind, deliveries, late) })
	case jobs.EventSettled:
		t.settled(ctx, e)
	case jobs.EventBuried:
		t.buried(ctx, e)
	case jobs.EventAbandoned:
		m.abandoned.Add(ctx, 1, t.with().add...)
	case jobs.EventReturned:
		m.abandoned.Add(ctx, -1, t.with().add...)
	case jobs.EventLeaseLost:
		m.lost.Add(ctx, 1, t.with(kindKey.String(t.kinds.settled(e.Job.Kind))).add...)
	case jobs.EventPromoted:
		m.promote.Record(ctx, e.Late.Seconds(), t.with().record...)
	case jobs.EventTicked:
		m.tick.Record(ctx, e.Late.Seconds(), t.with(scheduleKey.String(e.Name)).record...)
	case jobs.EventTrouble:
		m.trouble.Add(ctx, 1, t.with(loopKey.String(e.Name), semconv.ErrorTypeKey.String(errorClass(e.Err))).add...)
	}
}

func (t *Telemetry) delivered(ctx context.Context, kind string, deliveries int, late time.Duration) {
	how, of := "fetch", kindKey.String(kind)
	if deliveries > 1 {
		how = "reclaim"
		t.metrics.reclaimed.Add(ctx, 1, t.with(of).add...)
	} else {
		t.metrics.lag.Record(ctx, late.Seconds(), t.with(of).record...)
	}
	t.metrics.consumed.Add(ctx, 1, t.with(operation(how, semconv.MessagingOperationTypeReceive, group, of)...).add...)
}

func (t *Telemetry) settled(ctx context.Context, e jobs.Event) {
	of := kindKey.String(t.kinds.settled(e.Job.Kind))
	t.metrics.outcomes.Add(ctx, 1, t.with(of, outcomeKey.String(e.Outcome)).add...)
	t.metrics.deliveries.Record(ctx, int64(e.Deliveries), t.with(of).record...)
	if e.Outcome == jobs.OutcomeDead {
		t.metrics.dead.Add(ctx, 1, t.with(of, reasonKey.String(string(e.Reason))).add...)
	}
	if e.Outcome == jobs.OutcomeDead || e.Outcome == jobs.OutcomeDone {
		attempts := e.Job.Attempts
		if e.Took > 0 {
			attempts++
		}
		t.metrics.attempts.Record(ctx, int64(attempts), t.with(of).record...)
	}
}

func (t *Telemetry) buried(ctx context.Context, e jobs.Event) {
	if e.Reason == jobs.ReasonPoison { // a worker leaves it alone unless it has a handler
		t.kinds.handled(e.Job.Kind)
	}
	of := kindKey.String(t.kinds.settled(e.Job.Kind))
	t.metrics.outcomes.Add(ctx, 1, t.with(of, outcomeKey.String(jobs.OutcomeDead)).add...)
	t.metrics.dead.Add(ctx, 1, t.with(of, reasonKey.String(string(e.Reason))).add...)
}

// zero begins the counters of a kind at nothing, so that the first that is counted is an
// increase: of a series that begins with 1 Prometheus sees none.
func (t *Telemetry) zero(kind string) {
	ctx, of := context.Background(), kindKey.String(kind)
	for _, reason := range []jobs.Reason{jobs.ReasonFailed, jobs.ReasonUndecodable, jobs.ReasonPoison, jobs.ReasonUnknownKind} {
		t.metrics.dead.Add(ctx, 0, t.with(of, reasonKey.String(string(reason))).add...)
	}
	t.metrics.reclaimed.Add(ctx, 0, t.with(of).add...)
	t.metrics.lost.Add(ctx, 0, t.with(of).add...)
}

// zeroLoops is zero for what is of no kind.
func (t *Telemetry) zeroLoops() {
	ctx := context.Background()
	t.metrics.abandoned.Add(ctx, 0, t.with().add...)
	for _, query := range queries {
		t.metrics.blind.Add(ctx, 0, t.with(queryKey.String(query)).add...)
	}
	for loop := range strings.FieldsSeq("fetch renew sweep promote tick start isolate") {
		t.metrics.trouble.Add(ctx, 0, t.with(loopKey.String(loop), semconv.ErrorTypeKey.String(other)).add...)
	}
	t.zero(other)
	t.metrics.outcomes.Add(ctx, 0, t.with(kindKey.String(other), outcomeKey.String(jobs.OutcomeParked)).add...)
}
