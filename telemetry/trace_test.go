package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// ended waits until so many spans of a name have ended.
func (q *fleet) ended(name string, n int) []sdktrace.ReadOnlySpan {
	q.t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var found []sdktrace.ReadOnlySpan
		for _, s := range q.spans.Ended() {
			if s.Name() == name {
				found = append(found, s)
			}
		}
		if len(found) >= n {
			return found
		}
		if time.Now().After(late) {
			q.t.Fatalf("%d spans %q, want %d", len(found), name, n)
		}
	}
}

// said is what a span says of itself under a key.
func said(s sdktrace.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func linkedTo(s, to sdktrace.ReadOnlySpan) bool {
	return len(s.Links()) == 1 && s.Links()[0].SpanContext.SpanID() == to.SpanContext().SpanID() &&
		s.Links()[0].SpanContext.TraceID() == to.SpanContext().TraceID()
}

func TestARequestIsLinkedWithEveryRunOfItsJobThroughRetryAndReplay(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		seen := make(chan trace.SpanContext, 10)
		jobs.Handle(q.runner, mail, func(ctx context.Context, _ jobs.None) error {
			seen <- trace.SpanContextFromContext(ctx)
			return fmt.Errorf("mail: %w", errOut)
		})
		q.run()
		ctx, request := q.tracer.Tracer("web").Start(t.Context(), "POST /checkout")
		job := mail.Job(none)
		job.RequestID = "7f3a9c2e"
		must(t, q.tel.Enqueue(ctx, q.Client, job))
		request.End()
		q.settled(jobs.OutcomeDead)
		n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{}, jobs.ReplayOptions{})
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		q.settled(jobs.OutcomeDead)

		enqueued := q.ended("enqueue mail", 1)[0]
		if enqueued.SpanKind() != trace.SpanKindProducer || enqueued.Parent().SpanID() != request.SpanContext().SpanID() ||
			said(enqueued, "messaging.message.id") != job.ID || said(enqueued, "messaging.operation.type") != "send" {
			t.Errorf("the producer's span: %v %v", enqueued.SpanKind(), enqueued.Attributes())
		}
		traces := map[trace.TraceID]bool{request.SpanContext().TraceID(): true}
		for i, run := range q.ended("process mail", 4) {
			traces[run.SpanContext().TraceID()] = true
			if sc := <-seen; sc.SpanID() != run.SpanContext().SpanID() {
				t.Errorf("run %d: the handler saw %v", i, sc)
			}
			if !linkedTo(run, enqueued) || run.Parent().IsValid() || run.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("run %d: links %v, parent %v", i, run.Links(), run.Parent())
			}
			if run.Status().Code != codes.Error || run.Status().Description != "mail: out of order" ||
				said(run, "error.type") != "*errors.errorString" || said(run, "jobs.outcome") != [2]string{"retried", "dead"}[i%2] {
				t.Errorf("run %d: %v %v", i, run.Status(), run.Attributes())
			}
			if said(run, "jobs.attempt") != fmt.Sprint(i%2+1) || said(run, "messaging.message.id") != job.ID ||
				said(run, "messaging.message.conversation_id") != "7f3a9c2e" || said(run, "messaging.destination.name") != "jobs" ||
				said(run, "messaging.consumer.group.name") != "workers" {
				t.Errorf("run %d: %v", i, run.Attributes())
			}
		}
		if len(traces) != 5 {
			t.Errorf("%d traces, want the request's and one each run", len(traces))
		}
	})
}

func TestAHandlersOwnJobsAreLinkedToItsSpan(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, func(ctx context.Context, _ jobs.None) error { return q.Enqueue(ctx, pdf.Job(none)) })
		jobs.Handle(q.runner, pdf, returns(nil))
		q.run()
		q.enqueue(mail.Job(none))
		q.settled(jobs.OutcomeDone)
		q.settled(jobs.OutcomeDone)
		run, created := q.ended("process mail", 1)[0], q.ended("create pdf", 1)[0]
		if created.Parent().SpanID() != run.SpanContext().SpanID() || created.SpanKind() != trace.SpanKindProducer {
			t.Errorf("created under %v", created.Parent())
		}
		if inner := q.ended("process pdf", 1)[0]; !linkedTo(inner, created) || inner.Status().Code != codes.Unset || said(inner, "jobs.outcome") != "done" {
			t.Errorf("the inner run: %v, %v", inner.Links(), inner.Status())
		}
	})
}

func TestEachJobOfABatchHasASpanOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, returns(nil))
		jobs.Handle(q.runner, pdf, returns(nil))
		q.run()
		must(t, q.tel.Enqueue(t.Context(), q.Client, mail.Job(none), pdf.Job(none)))
		q.settled(jobs.OutcomeDone)
		q.settled(jobs.OutcomeDone)
		sent := q.ended("enqueue jobs", 1)[0]
		if sent.SpanKind() != trace.SpanKindClient || said(sent, "messaging.batch.message_count") != "2" || len(sent.Links()) != 2 {
			t.Errorf("sent: %v %v %v", sent.SpanKind(), sent.Attributes(), sent.Links())
		}
		for i, kind := range []string{"mail", "pdf"} {
			created := q.ended("create "+kind, 1)[0]
			if created.Parent().SpanID() != sent.SpanContext().SpanID() || sent.Links()[i].SpanContext.SpanID() != created.SpanContext().SpanID() {
				t.Errorf("%s: created under %v, linked %v", kind, created.Parent(), sent.Links())
			}
			if run := q.ended("process "+kind, 1)[0]; !linkedTo(run, created) {
				t.Errorf("%s: the run's links: %v", kind, run.Links())
			}
		}
	})
}

func TestATraceOfTheApplicationsOwnIsCarriedUntouched(t *testing.T) {
	t.Parallel()
	type key struct{}
	annotate := func(ctx context.Context, j *jobs.Job) {
		j.Trace, _ = ctx.Value(key{}).(string)
		j.RequestID = "7f3a9c2e"
	}
	for name, own := range map[string]struct{ trace, links string }{
		"not W3C's":        {"4bf92f35", ""},
		"of a later form":  {"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", "00f067aa0ba902b7"},
		"all zero":         {"00-00000000000000000000000000000000-0000000000000000-01", ""},
		"a traceparent":    {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00f067aa0ba902b7"},
		"with a state":     {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=b,c=d e", "00f067aa0ba902b7"},
		"with a bad state": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ===", "00f067aa0ba902b7"},
		"bytes":            {"\xff\x00 \xfe", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers.Each(t, func(t *testing.T, rdb *redis.Client) {
				q := watched(t, rdb, jobs.Config{}, jobs.Options{Annotate: annotate})
				ran := make(chan jobs.Job, 2)
				jobs.Handle(q.runner, mail, func(ctx context.Context, _ jobs.None) error {
					job, _ := jobs.FromContext(ctx)
					ran <- job
					return nil
				})
				q.run()
				ctx, span := q.tracer.Tracer("web").Start(context.WithValue(t.Context(), key{}, own.trace), "request")
				defer span.End()
				must(t, q.Enqueue(ctx, mail.Job(none)))
				must(t, q.tel.Enqueue(ctx, q.Client, mail.Job(none)))
				for range 2 {
					if job := <-ran; job.Trace != own.trace || job.RequestID != "7f3a9c2e" {
						t.Errorf("carried: %q %q", job.Trace, job.RequestID)
					}
				}
				for _, run := range q.ended("process mail", 2) {
					links := ""
					for _, l := range run.Links() {
						links += l.SpanContext.SpanID().String()
					}
					if links != own.links {
						t.Errorf("links %q, want %q", links, own.links)
					}
				}
				for _, s := range q.spans.Ended() {
					if strings.HasPrefix(s.Name(), "create") {
						t.Error("a span is created for a job that has its trace already")
					}
				}
			})
		})
	}
}

func TestATraceStateTravelsAlong(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		state, err := trace.ParseTraceState("vendor=a b,other=1")
		must(t, err)
		web := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true})
		jobs.Handle(q.runner, mail, returns(nil))
		q.run()
		must(t, q.Enqueue(trace.ContextWithSpanContext(t.Context(), web), mail.Job(none)))
		e := q.settled(jobs.OutcomeDone)
		if want := "00-01000000000000000000000000000000-"; !strings.HasPrefix(e.Job.Trace, want) || !strings.HasSuffix(e.Job.Trace, "-01 vendor=a b,other=1") {
			t.Errorf("the trace is %q", e.Job.Trace)
		}
		run := q.ended("process mail", 1)[0]
		if got := run.Links()[0].SpanContext.TraceState().String(); got != "vendor=a b,other=1" {
			t.Errorf("the link's state is %q", got)
		}
	})
}

type panics struct{}

func (panics) Error() string { panic("no text") }

type secretive struct{}

func (secretive) Error() string { return "a secret was here" }

func TestHowRunsEndIsOnTheirSpans(t *testing.T) {
	t.Parallel()
	redact := func(next jobs.Handler) jobs.Handler {
		return func(ctx context.Context, job jobs.Job) error {
			err := next(ctx, job)
			if err != nil && strings.Contains(fmt.Sprintf("%T %#v", err, err), "s3cret") {
				return secretive{}
			}
			return err
		}
	}
	type end struct {
		outcome, class, text string
		code                 codes.Code
	}
	for name, c := range map[string]struct {
		run  func(context.Context) error
		want end
	}{
		"nil":        {func(context.Context) error { return nil }, end{"done", "", "", codes.Unset}},
		"permanent":  {func(context.Context) error { return jobs.Permanent(fmt.Errorf("read: %w", io.ErrUnexpectedEOF)) }, end{"dead", "*errors.errorString", "read: unexpected EOF", codes.Error}},
		"snooze":     {func(context.Context) error { return fmt.Errorf("later: %w", jobs.Snooze(time.Hour)) }, end{"snoozed", "", "", codes.Unset}},
		"panic":      {func(context.Context) error { panic("a seat too many") }, end{"dead", "panic", "panic: a seat too many", codes.Error}},
		"redacted":   {func(context.Context) error { return errors.New("s3cret") }, end{"dead", "telemetry_test.secretive", "a secret was here", codes.Error}},
		"goexit":     {func(context.Context) error { runtime.Goexit(); return nil }, end{"dead", "panic", "panic, or the end of its goroutine", codes.Error}},
		"hostile":    {func(context.Context) error { return panics{} }, end{"dead", "_OTHER", "an error that cannot be read", codes.Error}},
		"endless":    {func(context.Context) error { return errors.New(strings.Repeat("x", 1<<20)) }, end{"dead", "*errors.errorString", strings.Repeat("x", 1024) + " …", codes.Error}},
		"timeout":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, end{"dead", "timeout", "context deadline exceeded", codes.Error}},
		"two errors": {func(context.Context) error { return errors.Join(errOut, io.EOF) }, end{"dead", "*errors.joinError", "out of order\nEOF", codes.Error}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			q := watched(t, rdb, jobs.Config{Middleware: []jobs.Middleware{redact}}, jobs.Options{})
			policy := jobs.Policy{}
			if name == "timeout" {
				policy.Timeout = 100 * time.Millisecond
			}
			short := jobs.NewKind[jobs.None]("short", policy)
			jobs.Handle(q.runner, short, func(ctx context.Context, _ jobs.None) error { return c.run(ctx) })
			q.run()
			q.enqueue(short.Job(none))
			q.await(jobs.EventSettled, nil)
			s := q.ended("process short", 1)[0]
			got := end{said(s, "jobs.outcome"), said(s, "error.type"), s.Status().Description, s.Status().Code}
			if name == "timeout" {
				got.text = c.want.text // a context's own words
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// What was decided on a run is on its span, in the words of the metric jobs.outcomes.
func TestWhatBecomesOfTheJobIsOnTheSpan(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, returns(errOut)) // one retry
		q.run()
		q.enqueue(mail.Job(none))
		q.settled(jobs.OutcomeDead)
		spans := q.ended("process mail", 2)
		if got := []string{said(spans[0], "jobs.outcome"), said(spans[1], "jobs.outcome")}; got[0] != jobs.OutcomeRetried || got[1] != jobs.OutcomeDead {
			t.Errorf("the outcomes are %q", got)
		}
		points := q.points()
		if points["jobs.outcomes{jobs.kind=mail,jobs.outcome=retried}"] != 1 || points["jobs.outcomes{jobs.kind=mail,jobs.outcome=dead}"] != 1 {
			t.Errorf("the metric says otherwise: %v", points)
		}
	})
}

func TestARunThatAShutdownCutsOffIsReleased(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	q := watched(t, rdb, jobs.Config{Grace: time.Millisecond}, jobs.Options{})
	begun := make(chan struct{})
	jobs.Handle(q.runner, mail, func(ctx context.Context, _ jobs.None) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	stop := q.run()
	q.enqueue(mail.Job(none))
	<-begun
	stop()
	s := q.ended("process mail", 1)[0]
	if said(s, "jobs.outcome") != jobs.OutcomeReleased || said(s, "error.type") != "shutdown" {
		t.Errorf("the span: %v", s.Attributes())
	}
}

// A middleware that panics itself: the span ends, and the panic is the worker's to catch.
func TestAPanickingMiddlewareEndsTheSpan(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	broken := func(jobs.Handler) jobs.Handler {
		return func(context.Context, jobs.Job) error { panic("the middleware's own") }
	}
	q := watched(t, rdb, jobs.Config{Middleware: []jobs.Middleware{broken}}, jobs.Options{})
	jobs.Handle(q.runner, pdf, returns(nil))
	q.run()
	q.enqueue(pdf.Job(none))
	if e := q.settled(jobs.OutcomeDead); e.Err == nil || !strings.Contains(e.Err.Error(), "the middleware's own") {
		t.Errorf("the error is %v", e.Err)
	}
	if s := q.ended("process pdf", 1)[0]; s.Status().Code != codes.Error || said(s, "error.type") != "panic" {
		t.Errorf("the span: %v", s.Status())
	}
}

func TestAScheduledRunSaysItsTick(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, returns(nil))
		q.runner.Schedule(jobs.Periodic{When: jobs.Every(time.Second), Job: mail.Job(none)})
		q.run()
		q.settled(jobs.OutcomeDone)
		s := q.ended("process mail", 1)[0]
		if tick, err := time.Parse(time.RFC3339, said(s, "jobs.tick")); err != nil || time.Since(tick).Abs() > time.Minute || len(s.Links()) != 0 {
			t.Errorf("the tick is %q, links %v", said(s, "jobs.tick"), s.Links())
		}
	})
}
