package telemetry

import (
	"context"
	"strings"

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
		t.kinds.delivered(e.Job.Kind, func(kind string) { t.delivered(ctx, kind, e) })
	case jobs.EventSettled:
		t.settled(ctx, e)
	case jobs.EventBuried:
		t.buried(ctx, e)
	case jobs.EventAbandoned:
		m.abandoned.Add(ctx, 1, t.with())
	case jobs.EventReturned:
		m.abandoned.Add(ctx, -1, t.with())
	case jobs.EventLeaseLost:
		m.lost.Add(ctx, 1, t.with(kindKey.String(t.kinds.settled(e.Job.Kind))))
	case jobs.EventPromoted:
		m.promote.Record(ctx, e.Late.Seconds(), t.with())
	case jobs.EventTicked:
		m.tick.Record(ctx, e.Late.Seconds(), t.with(scheduleKey.String(e.Name)))
	case jobs.EventTrouble:
		m.trouble.Add(ctx, 1, t.with(loopKey.String(e.Name), semconv.ErrorTypeKey.String(errorClass(e.Err))))
	}
}

func (t *Telemetry) delivered(ctx context.Context, kind string, e jobs.Event) {
	how, of := "fetch", kindKey.String(kind)
	if e.Deliveries > 1 {
		how = "reclaim"
		t.metrics.reclaimed.Add(ctx, 1, t.with(of))
	} else {
		t.metrics.lag.Record(ctx, e.Late.Seconds(), t.with(of))
	}
	t.metrics.consumed.Add(ctx, 1, t.with(operation(how, semconv.MessagingOperationTypeReceive, group, of)...))
}

func (t *Telemetry) settled(ctx context.Context, e jobs.Event) {
	of := kindKey.String(t.kinds.settled(e.Job.Kind))
	t.metrics.outcomes.Add(ctx, 1, t.with(of, outcomeKey.String(e.Outcome)))
	t.metrics.deliveries.Record(ctx, int64(e.Deliveries), t.with(of))
	if e.Outcome == jobs.OutcomeDead {
		t.metrics.dead.Add(ctx, 1, t.with(of, reasonKey.String(string(e.Reason))))
	}
	if e.Outcome == jobs.OutcomeDead || e.Outcome == jobs.OutcomeDone {
		attempts := e.Job.Attempts
		if e.Took > 0 {
			attempts++
		}
		t.metrics.attempts.Record(ctx, int64(attempts), t.with(of))
	}
}

func (t *Telemetry) buried(ctx context.Context, e jobs.Event) {
	if e.Reason == jobs.ReasonPoison { // a worker leaves it alone unless it has a handler
		t.kinds.handled(e.Job.Kind)
	}
	of := kindKey.String(t.kinds.settled(e.Job.Kind))
	t.metrics.outcomes.Add(ctx, 1, t.with(of, outcomeKey.String(jobs.OutcomeDead)))
	t.metrics.dead.Add(ctx, 1, t.with(of, reasonKey.String(string(e.Reason))))
}

// zero begins the counters of a kind at nothing, so that the first that is counted is an
// increase: of a series that begins with 1 Prometheus sees none.
func (t *Telemetry) zero(kind string) {
	ctx, of := context.Background(), kindKey.String(kind)
	for _, reason := range []jobs.Reason{jobs.ReasonFailed, jobs.ReasonUndecodable, jobs.ReasonPoison, jobs.ReasonUnknownKind} {
		t.metrics.dead.Add(ctx, 0, t.with(of, reasonKey.String(string(reason))))
	}
	t.metrics.reclaimed.Add(ctx, 0, t.with(of))
	t.metrics.lost.Add(ctx, 0, t.with(of))
}

// zeroLoops is zero for what is of no kind.
func (t *Telemetry) zeroLoops() {
	ctx := context.Background()
	t.metrics.abandoned.Add(ctx, 0, t.with())
	for _, query := range queries {
		t.metrics.blind.Add(ctx, 0, t.with(queryKey.String(query)))
	}
	for loop := range strings.FieldsSeq("fetch renew sweep promote tick start") {
		t.metrics.trouble.Add(ctx, 0, t.with(loopKey.String(loop), semconv.ErrorTypeKey.String(other)))
	}
	t.zero(other)
}
