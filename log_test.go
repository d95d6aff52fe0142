package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

func TestAHandlersContextKnowsItsJob(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		tick := time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)
		id := q.add("jobs", "kind", "once", "a", "b", "attempts", "4", "request_id", "7f3a9c2e", "trace", "4bf92f35", "scheduled_at", "2026-11-29T03:00:00Z")
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		got := rs.wait(t, 1)[0]
		if got.ID != id || got.Kind != "once" || got.Attempts != 4 || got.RequestID != "7f3a9c2e" || got.Trace != "4bf92f35" || !got.Tick.Equal(tick) || !maps.Equal(got.Fields, jobs.Fields{"a": "b"}) {
			t.Errorf("%+v", got)
		}
	})
	if job, ok := jobs.FromContext(t.Context()); ok {
		t.Errorf("a job in any context: %+v", job)
	}
	mine := once.Job(jobs.Fields{"a": "b"})
	got, ok := jobs.FromContext(jobs.NewContext(t.Context(), mine))
	if got.Fields["a"] = "c"; !ok || got.ID != mine.ID || mine.Fields["a"] != "b" {
		t.Errorf("%t, %+v", ok, got)
	}
}

func TestEachFromContextHasACopy(t *testing.T) {
	t.Parallel()
	given := jobs.Fields{"a": "b"}
	ctx := jobs.NewContext(t.Context(), once.Job(given))
	given["a"] = "of the caller's"
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { // the race detector watches
			job, _ := jobs.FromContext(ctx)
			if job.Fields["a"] != "b" {
				t.Errorf("%v", job.Fields)
			}
			job.Fields["a"] = fmt.Sprint(i)
		})
	}
	all.Wait()
}

type requestKey struct{}

// annotate takes the request's ID from the context, as a web application would.
func annotate(ctx context.Context, j *jobs.Job) {
	if id, ok := ctx.Value(requestKey{}).(string); ok && j.RequestID == "" {
		j.RequestID = id
	}
}

func TestRequestIDAndTraceAreFilledAndInherited(t *testing.T) {
	t.Parallel()
	own := once.Job(nil)
	own.RequestID, own.Trace = "own", "own trace"
	request := func(ctx context.Context) context.Context { return context.WithValue(ctx, requestKey{}, "request") }
	parent := func(ctx context.Context) context.Context {
		return jobs.NewContext(ctx, jobs.Job{RequestID: "parent", Trace: "parent's trace"})
	}
	tests := map[string]struct {
		ctx       context.Context
		job       jobs.Job
		id, trace string
	}{
		"nothing":              {t.Context(), once.Job(nil), "", ""},
		"Annotate":             {request(t.Context()), once.Job(nil), "request", ""},
		"inherited":            {parent(t.Context()), once.Job(nil), "parent", "parent's trace"},
		"Annotate comes first": {parent(request(t.Context())), once.Job(nil), "request", "parent's trace"},
		"its own come first":   {parent(request(t.Context())), own, "own", "own trace"},
	}
	each(t, func(t *testing.T, q *queue) {
		client := jobs.NewClient(q.rdb, jobs.Options{Prefix: q.prefix, Annotate: annotate})
		for name, test := range tests {
			ctx := context.WithoutCancel(test.ctx)
			must(t, client.Enqueue(ctx, test.job, test.job))
			for _, f := range q.entries("jobs") {
				_, noID := f["request_id"]
				_, noTrace := f["trace"]
				if f["request_id"] != test.id || f["trace"] != test.trace || noID != (test.id != "") || noTrace != (test.trace != "") {
					t.Errorf("%s: %v", name, f)
				}
			}
			must(t, q.rdb.Del(ctx, q.key("jobs")).Err())
		}
	})
}

func TestAnnotateMayChangeTheArgumentsOfThisEnqueueAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		client := jobs.NewClient(q.rdb, jobs.Options{Prefix: q.prefix, Annotate: func(_ context.Context, j *jobs.Job) {
			j.Fields["tenant"] = "berlin"
		}})
		job, bare := once.Job(jobs.Fields{"a": "b"}), once.Job(nil)
		var callers sync.WaitGroup
		for range 4 { // of one value, at once
			callers.Go(func() {
				if err := client.Enqueue(context.Background(), job, bare); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		for _, f := range q.entries("jobs") {
			if f["tenant"] != "berlin" {
				t.Errorf("enqueued %v", f)
			}
		}
		if len(job.Fields) != 1 || len(bare.Fields) != 0 {
			t.Errorf("the caller's job is changed: %v, %v", job.Fields, bare.Fields)
		}
	})
}

func TestAJobEnqueuedInAHandlerInherits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), handle(render, func(ctx context.Context, _ ticket) error {
			return q.Enqueue(ctx, once.Job(nil))
		}))
		job := render.Job(ticket{1, "14C"})
		job.RequestID, job.Trace = "7f3a9c2e", "4bf92f35"
		q.enqueue(job)
		if child := rs.wait(t, 1)[0]; child.RequestID != "7f3a9c2e" || child.Trace != "4bf92f35" || child.ID == job.ID {
			t.Errorf("%+v", child)
		}
	})
}

// about are the attributes that a log line about a job carries.
func about(line map[string]any) []any {
	job, _ := line["job"].(map[string]any)
	return []any{job["id"], job["kind"], job["attempts"], job["tick"], job["request_id"], job["trace"]}
}

// misfortunes are jobs that each end in another way that is logged.
type misfortunes struct {
	*queue
	entries map[string]string // by kind
	forever chan struct{}     // what hangs waits for
}

// of adds the job of a kind, with two attempts made, a tick, a request and a trace.
func (m *misfortunes) of(kind string) {
	m.t.Helper()
	m.entries[kind] = m.add("jobs", "kind", kind, "job_id", kind+"-1", "attempts", "2",
		"scheduled_at", "2026-11-29T03:00:00Z", "request_id", "7f3a9c2e", "trace", "4bf92f35")
}

// steal gives the job of a kind to another worker.
func (m *misfortunes) steal(ctx context.Context, kind string) {
	if err := m.rdb.Do(ctx, "xclaim", m.key("jobs"), "workers", "thief", 0, m.entries[kind], "justid").Err(); err != nil {
		m.t.Error(err)
	}
}

// A thief steals the job of the kind "stolen" at the moment at which its outcome is sent.
type thief struct{ *misfortunes }

func (thief) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (thief) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h thief) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "eval" && strings.Contains(cmd.String(), "running -> delayed") && slices.Contains(cmd.Args(), any(h.entries["stolen"])) {
				h.steal(ctx, "stolen")
			}
		}
		return next(ctx, cmds)
	}
}

// handlers add all jobs but the crashed one, and return what handles them.
func (m *misfortunes) handlers() (register []func(*jobs.Runner)) {
	m.t.Helper()
	for name, f := range map[string]func(context.Context) error{
		"crashed":  func(context.Context) error { return nil },
		"failing":  func(context.Context) error { return errMail },
		"dying":    func(context.Context) error { return jobs.Permanent(errMail) },
		"stolen":   func(context.Context) error { return errMail },
		"lost":     func(ctx context.Context) error { m.steal(ctx, "lost"); <-ctx.Done(); return errMail },
		"shutdown": func(ctx context.Context) error { <-ctx.Done(); return errMail },
		"hangs":    func(context.Context) error { <-m.forever; return nil },
	} {
		policy := jobs.Policy{Retries: 5, Backoff: jobs.FullJitter(time.Hour, time.Hour)}
		if name == "hangs" {
			policy.Timeout = time.Millisecond
		}
		kind := jobs.NewKind[jobs.None](name, policy)
		register = append(register, handle(kind, func(ctx context.Context, _ jobs.None) error { return f(ctx) }))
		if name != "crashed" {
			m.of(name)
		}
	}
	return register
}

func TestEveryLogLineAboutAJobSaysWhich(t *testing.T) {
	t.Parallel()
	// What each message must be about. The last comes with the end of Run.
	messages := map[string]string{"taken over": "crashed", "will retry": "failing", "dead-lettered": "dying", "OnDead panicked": "dying",
		"not written": "stolen", "lease lost": "lost", "abandoned": "hangs", "given back": "shutdown"}
	each(t, func(t *testing.T, q *queue) {
		var log journal
		m := misfortunes{q, map[string]string{}, make(chan struct{})}
		defer close(m.forever)
		m.of("crashed")
		q.ghost(1)
		q.worker.AddHook(thief{&m})
		w := q.start(jobs.Config{Lease: 500 * time.Millisecond, Grace: time.Millisecond, Logger: log.logger(t),
			OnDead: func(context.Context, jobs.DeadLetter) { panic("no") }}, m.handlers()...)
		for message := range messages {
			if message != "given back" {
				eventually(t, message, func() bool { return len(log.lines(t, message)) > 0 })
			}
		}
		must(t, w.stop())
		for message, kind := range messages {
			want := []any{kind + "-1", kind, 2.0, "2026-11-29T03:00:00Z", "7f3a9c2e", "4bf92f35"}
			if kind == "dying" {
				want[2] = 3.0 // a dead letter's attempts
			}
			if !slices.ContainsFunc(log.lines(t, message), func(line map[string]any) bool { return slices.Equal(about(line), want) }) {
				t.Errorf("%q about %s: %v", message, kind, log.lines(t, message))
			}
		}
		for line := range strings.Lines(log.String()) {
			if named := regexp.MustCompile(`(crashed|failing|dying|stolen|lost|shutdown|hangs)-1"`).MatchString(line); named && !strings.Contains(line, `"job":{"id":`) {
				t.Errorf("a line about a job: %s", line)
			}
		}
	})
}

func TestMiddlewareWrapsHandlers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var mu sync.Mutex
		var order []string
		note := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, text)
		}
		layer := func(name string) jobs.Middleware {
			return func(next jobs.Handler) jobs.Handler {
				return func(ctx context.Context, job jobs.Job) error {
					note(name + " in " + job.Kind)
					err := next(context.WithValue(ctx, requestKey{}, name), job)
					p, ok := errors.AsType[*jobs.PanicError](err)
					note(fmt.Sprint(name, " out ", ok && p.Value == "boom"))
					return err
				}
			}
		}
		q.start(jobs.Config{Middleware: []jobs.Middleware{layer("1"), layer("2")}}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			note(fmt.Sprint("handler in ", ctx.Value(requestKey{})))
			panic("boom")
		}, layer("3"), layer("4")))
		q.enqueue(once.Job(nil))
		q.awaitDead(1)
		want := []string{"1 in once", "2 in once", "3 in once", "4 in once", "handler in 4", "4 out true", "3 out true", "2 out true", "1 out true"}
		if !slices.Equal(order, want) {
			t.Errorf("%q", order)
		}
	})
}

func TestMiddlewareMayAnswerForAHandler(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		swallow := func(next jobs.Handler) jobs.Handler {
			return func(ctx context.Context, job jobs.Job) error {
				_ = next(ctx, job)
				return nil
			}
		}
		var rs runs
		q.start(jobs.Config{Middleware: []jobs.Middleware{swallow}}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			return errMail
		}))
		q.enqueue(once.Job(nil))
		rs.wait(t, 1)
		q.idle()
		if n := q.total(); n != 0 {
			t.Errorf("%d left: %v", n, q.dead())
		}
	})
}

// redacted is an error whose text has lost its passwords, and which still is what it was:
// Permanent, RetryAfter or whatever errors.Is and errors.As ask for. It has no Unwrap, so
// that the traceback does not show what it covers.
type redacted struct{ err error }

var password = regexp.MustCompile(`(password=|://[^:/@]*:)[^&@ ]+`)

func (e redacted) Error() string        { return password.ReplaceAllString(e.err.Error(), "$1…") }
func (e redacted) Is(target error) bool { return errors.Is(e.err, target) }
func (e redacted) As(target any) bool   { return errors.As(e.err, target) }

func redact(next jobs.Handler) jobs.Handler {
	return func(ctx context.Context, job jobs.Job) error {
		if err := next(ctx, job); err != nil {
			return redacted{err}
		}
		return nil
	}
}

func TestY12_SecretsInStoredErrors(t *testing.T) {
	t.Parallel()
	leak := fmt.Errorf("order 4471: %w", errors.New("dial postgres://u:s3cret@h/db?password=s3cret"))
	kind := jobs.NewKind[struct{ N int }]("leaks", jobs.Policy{Retries: 1, Backoff: soon})
	each(t, func(t *testing.T, q *queue) {
		var log journal
		var rs runs
		q.start(jobs.Config{Middleware: []jobs.Middleware{redact}, Logger: log.logger(t)}, handle(kind, func(ctx context.Context, args struct{ N int }) error {
			rs.add(ctx)
			switch args.N {
			case 1:
				return jobs.Permanent(leak)
			case 2:
				panic(leak)
			}
			return leak
		}))
		for n := range 3 {
			q.enqueue(kind.Job(struct{ N int }{n}))
		}
		q.add("jobs", "kind", "leaks", "n", "password=s3cret", "password", "password=s3cret")
		for _, d := range q.awaitDead(4) {
			runs := map[string]int{"0": 2, "1": 1, "2": 2}[d.Fields["n"]]
			if text := d.Error + d.Traceback; strings.Contains(text, "s3cret") || !strings.Contains(text, "password=…") || rs.of(d.ID) != runs {
				t.Errorf("%d runs: %q %q", rs.of(d.ID), d.Error, d.Traceback)
			}
			if undecodable := d.Reason == jobs.ReasonUndecodable; undecodable != (runs == 0) || undecodable && d.Fields["password"] != "password=s3cret" {
				t.Errorf("%+v", d)
			}
		}
		if text := log.String(); strings.Contains(text, "s3cret") || !strings.Contains(text, "password=…") {
			t.Errorf("logged: %s", text)
		}
	})
}

// stuck is a schedule whose next tick is never computed, once it is told to.
type stuck struct{ stop atomic.Bool }

func (s *stuck) Next(after time.Time) time.Time {
	if s.stop.Load() {
		time.Sleep(2 * time.Minute)
	}
	return after.Truncate(time.Second).Add(time.Second)
}

func TestHealthyNamesTheLoopThatStandsStill(t *testing.T) {
	var s stuck
	jobstest.Bubble(t, jobs.Config{}, func(q *jobstest.Queue) {
		jobs.Handle(q.Runner(), once, func(context.Context, jobs.Fields) error {
			time.Sleep(3 * time.Minute) // which is no loop's fault, and fills the only slot
			return nil
		})
		q.Runner().Schedule(jobs.Periodic{Name: "stuck", When: &s, Job: jobs.Job{Kind: "nobody's"}, Missed: jobs.Skip})
	}, func(t *testing.T, q *jobstest.Queue) {
		q.Enqueue(once.Job(nil))
		time.Sleep(2 * time.Minute)
		must(t, q.Runner().Healthy())
		s.stop.Store(true)
		time.Sleep(30 * time.Second)
		must(t, q.Runner().Healthy())
		time.Sleep(45 * time.Second)
		err := q.Runner().Healthy()
		if err == nil || !regexp.MustCompile(`\btick\b.*stands still`).MatchString(err.Error()) || !strings.HasPrefix(err.Error(), "jobs: ") {
			t.Errorf("healthy: %v", err)
		}
		s.stop.Store(false)
		time.Sleep(2 * time.Minute)
		must(t, q.Runner().Healthy())
	})
}

func TestARedisThatIsAwayDoesNotMakeAWorkerUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		var away atomic.Bool
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return m.Dial()
		}})
		defer rdb.Close()
		q := newQueue(t, rdb, "")
		w := q.start(jobs.Config{})
		time.Sleep(time.Minute)
		must(t, w.Healthy())
		away.Store(true)
		m.SetError("LOADING for a while")
		time.Sleep(3 * time.Minute)
		must(t, w.Healthy())
		m.SetError("")
		away.Store(false)
		time.Sleep(time.Minute)
		must(t, w.Healthy())
		must(t, w.stop())
	})
}
