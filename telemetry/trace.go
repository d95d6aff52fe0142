package telemetry

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// sending is an Enqueue of ours, as Annotate finds it in its context.
type sending struct {
	span  trace.Span
	alone bool // one job: the span is its own
}

type sendingKey struct{}

// Enqueue is c.Enqueue in a span, and measured: a bare c.Enqueue counts the jobs and marks
// them with the trace too, but cannot tell how long it took and what failed. Uncertain jobs
// (jobs.ErrUncertain) have the error.type "uncertain".
func (t *Telemetry) Enqueue(ctx context.Context, c *jobs.Client, js ...jobs.Job) error {
	if t == nil {
		return c.Enqueue(ctx, js...)
	}
	s := sending{alone: len(js) == 1}
	attrs := operation("enqueue", semconv.MessagingOperationTypeSend)
	kind, more := trace.SpanKindClient, semconv.MessagingBatchMessageCount(len(js))
	if s.alone {
		kind, more = trace.SpanKindProducer, kindKey.String(js[0].Kind)
	}
	start := time.Now()
	ctx, s.span = t.tracer.Start(ctx, t.spanName("enqueue", js), trace.WithSpanKind(kind), trace.WithTimestamp(start),
		trace.WithAttributes(t.queue...), trace.WithAttributes(attrs...), trace.WithAttributes(more))
	err := c.Enqueue(context.WithValue(ctx, sendingKey{}, s), js...)
	end := time.Now()
	if err != nil {
		failed := semconv.ErrorTypeKey.String(errorClass(err))
		attrs = append(attrs, failed)
		s.span.SetAttributes(failed)
		s.span.SetStatus(codes.Error, bounded(err.Error()))
	}
	s.span.End(trace.WithTimestamp(end))
	t.metrics.operation.Record(ctx, end.Sub(start).Seconds(), t.with(attrs...).record...)
	t.sent(ctx, js, err)
	return err
}

// sent counts jobs by what became of them.
func (t *Telemetry) sent(ctx context.Context, js []jobs.Job, err error) {
	queued, uncertain := len(js), 0
	if e, ok := errors.AsType[*jobs.EnqueueError](err); ok {
		queued, uncertain = e.Queued, e.Uncertain
	}
	for i, j := range js {
		var failed []attribute.KeyValue
		switch {
		case i >= queued+uncertain:
			failed = append(failed, semconv.ErrorTypeKey.String(errorClass(err)))
		case i >= queued:
			failed = append(failed, semconv.ErrorTypeKey.String("uncertain"))
		}
		t.countSent(ctx, j.Kind, failed...)
	}
}

func (t *Telemetry) countSent(ctx context.Context, kind string, more ...attribute.KeyValue) {
	more = append(more, kindKey.String(t.kinds.enqueued(kind)))
	t.metrics.sent.Add(ctx, 1, t.with(operation("enqueue", semconv.MessagingOperationTypeSend, more...)...).add...)
}

// spanName names a span by the kind, where the conventions would have the stream: all jobs go
// through one.
func (t *Telemetry) spanName(operation string, js []jobs.Job) string {
	if len(js) == 1 {
		return operation + " " + js[0].Kind
	}
	return operation + " jobs"
}

// Annotate is for jobs.Options.Annotate: where a job has no Trace yet, it writes that of ctx
// into it. It is called in the middle of Enqueue, once a job, and cannot see the end of that:
// so it makes a span "create" of no length for each job, or has the job carry the span of
// Telemetry.Enqueue where that enqueues one alone.
func (t *Telemetry) Annotate(ctx context.Context, j *jobs.Job) {
	if t == nil {
		return
	}
	s, ours := ctx.Value(sendingKey{}).(sending)
	if !ours {
		t.countSent(ctx, j.Kind)
	}
	switch {
	case j.Trace != "":
		if ours {
			link(s.span, j.Trace)
		}
	case s.alone:
		s.span.SetAttributes(semconv.MessagingMessageID(j.ID))
		j.Trace = inject(s.span.SpanContext())
	default:
		j.Trace = t.create(ctx, j)
		if ours {
			link(s.span, j.Trace)
		}
	}
}

// create makes the span of a job that is one of several, or enqueued without our Enqueue.
func (t *Telemetry) create(ctx context.Context, j *jobs.Job) string {
	attrs := operation("create", semconv.MessagingOperationTypeCreate, kindKey.String(j.Kind), semconv.MessagingMessageID(j.ID))
	_, span := t.tracer.Start(ctx, "create "+j.Kind, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(t.queue...), trace.WithAttributes(attrs...))
	span.End()
	return inject(span.SpanContext())
}

func link(span trace.Span, to string) {
	if sc := extract(to); sc.IsValid() {
		span.AddLink(trace.Link{SpanContext: sc})
	}
}

// inject is a span's context as a Trace; empty where there is none.
func inject(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return strings.TrimSpace(carrier["traceparent"] + " " + carrier["tracestate"])
}

// extract reads a Trace, and is not valid where it is the application's own.
func extract(from string) trace.SpanContext {
	parent, state, _ := strings.Cut(from, " ")
	carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// errPanic stands for what this Middleware does not see.
var errPanic = errors.New("panic")

// Middleware is for jobs.Config.Middleware, as the outermost: it makes a span for each run,
// which the handler finds in its context, and measures it.
func (t *Telemetry) Middleware(next jobs.Handler) jobs.Handler {
	if t == nil {
		return next
	}
	return func(ctx context.Context, job jobs.Job) (err error) {
		t.kinds.handled(job.Kind)
		start := time.Now()
		ctx, span := t.tracer.Start(ctx, "process "+job.Kind, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(t.queue...), trace.WithAttributes(ofRun(job)...), trace.WithLinks(links(job)...))
		returned := false
		defer func() {
			e := ending{runFailed, "panic", "panic, or the end of its goroutine"}
			if returned {
				e = read(ctx, err)
			} else {
				err = errPanic
			}
			if decided := jobs.OutcomeOf(ctx, err); decided != "" {
				e.outcome = decided
			}
			t.processed(ctx, span, job, e, start)
		}()
		err = next(ctx, job)
		returned = true
		return err
	}
}

func ofRun(job jobs.Job) []attribute.KeyValue {
	attrs := operation("process", semconv.MessagingOperationTypeProcess, group,
		kindKey.String(job.Kind), semconv.MessagingMessageID(job.ID), attemptKey.Int(job.Attempts+1))
	if job.RequestID != "" {
		attrs = append(attrs, semconv.MessagingMessageConversationID(job.RequestID))
	}
	if !job.Tick.IsZero() {
		attrs = append(attrs, tickKey.String(job.Tick.UTC().Format(time.RFC3339)))
	}
	return attrs
}

func links(job jobs.Job) []trace.Link {
	sc := extract(job.Trace)
	if !sc.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: sc}}
}

// processed ends the span of a run, and records how long it took.
func (t *Telemetry) processed(ctx context.Context, span trace.Span, job jobs.Job, e ending, start time.Time) {
	end := time.Now()
	attrs := operation("process", semconv.MessagingOperationTypeProcess, group, kindKey.String(job.Kind))
	span.SetAttributes(outcomeKey.String(e.outcome))
	if e.class != "" {
		failed := semconv.ErrorTypeKey.String(e.class)
		attrs = append(attrs, failed)
		span.SetAttributes(failed)
		span.SetStatus(codes.Error, e.text)
	}
	span.End(trace.WithTimestamp(end))
	t.metrics.process.Record(ctx, end.Sub(start).Seconds(), t.with(attrs...).record...)
}
