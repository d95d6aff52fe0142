package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/jobstest"
)

var errMail = errors.New("mail: 503 Service Unavailable")

// settles matches the command that acknowledges an entry and writes it to delayed.
func settles(cmd []string) bool {
	all := strings.ToUpper(strings.Join(cmd, " "))
	return strings.Contains(all, "XACK") && strings.Contains(all, "ZADD")
}

func TestRetryIsWrittenWithTheAcknowledgement(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.None]("send_mail", jobs.Policy{Retries: 5, Backoff: jobs.FullJitter(time.Hour, time.Hour)})
	tests := map[string]struct {
		cut              servers.Action
		delayed, pending int64 // at the point of the cut
	}{
		"the command is lost": {servers.CutBefore, 0, 1},
		"the reply is lost":   {servers.SwallowReply, 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
				var cuts atomic.Int32
				proxy.Hook(func(cmd []string) servers.Action {
					if !settles(cmd) || cuts.Add(1) > 1 {
						return servers.Pass
					}
					return test.cut.Then(func() {
						if st := q.stats2(); st.Delayed != test.delayed || st.Running != test.pending || st.Ready != 0 {
							t.Errorf("%s: %+v", name, st)
						}
					})
				})
				var rs runs
				q.start(jobs.Config{}, handle(kind, func(ctx context.Context, _ jobs.None) error {
					rs.add(ctx)
					return errMail
				}))
				q.enqueue(kind.Job(jobs.None{}))
				eventually(t, "the retry is written", func() bool { return cuts.Load() > 1 && q.stats().Running == 0 })
				if all := q.delayed(); len(all) != 1 || all[0].Attempts != 1 || len(rs.all()) != 1 {
					t.Errorf("delayed %+v, %d runs", all, len(rs.all()))
				}
			})
		})
	}
}

// The promote loop looks once a second, and sooner for what its own worker has put off.
func TestARetryThatIsDueSoonIsPromotedInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		const wait = 30 * time.Millisecond
		kind := jobs.NewKind[jobs.None]("quick", jobs.Policy{Retries: 5, Backoff: func(int) time.Duration { return wait }})
		starts := make(chan time.Time, 10)
		q.start(jobs.Config{}, handle(kind, func(context.Context, jobs.None) error {
			starts <- time.Now()
			return errMail
		}))
		q.enqueue(kind.Job(jobs.None{}))
		last := <-starts
		for i := range 5 {
			start := <-starts
			if late := start.Sub(last) - wait; late < 0 || late > 5*time.Millisecond {
				t.Errorf("retry %d began %s after it was due", i+1, late)
			}
			last = start
		}
	})
}

// stats2 is stats by way of a client of its own.
func (q *queue) stats2() jobs.Stats {
	q.t.Helper()
	return newQueue(q.t, q.rdb, q.prefix).stats()
}

func TestAJobIsInOnePlaceAtAnyTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		const n = 20
		var rs runs
		kind := jobs.NewKind[jobs.None]("send_mail", jobs.Policy{Retries: 3, Backoff: jobs.FullJitter(0, 0)})
		for range n {
			q.enqueue(kind.Job(jobs.None{}))
		}
		q.start(jobs.Config{}, handle(kind, func(ctx context.Context, _ jobs.None) error {
			rs.add(ctx)
			return errMail
		}))
		for q.stats().Dead < n {
			if total := q.total(); total != n {
				t.Fatalf("%d jobs, of %d", total, n)
			}
		}
		if len(rs.all()) != 4*n {
			t.Errorf("%d runs", len(rs.all()))
		}
	})
}

func TestARetryCarriesTheLastErrorWhileItWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		long := "mail: 503 \xff " + strings.Repeat("é", 1000)
		release := make(chan bool)
		kind := jobs.NewKind[jobs.None]("send_mail", jobs.Policy{Retries: 1})
		q.start(jobs.Config{}, handle(kind, func(ctx context.Context, _ jobs.None) error {
			if job, _ := jobs.FromContext(ctx); job.Attempts == 1 {
				<-release
				return jobs.Permanent(errors.New("mail: 550"))
			}
			return jobs.RetryAfter(time.Hour, errors.New(long))
		}))
		job := kind.Job(jobs.None{})
		q.enqueue(job)
		eventually(t, "it waits", func() bool { return q.stats().Delayed == 1 })
		waits := q.delayed()[0]
		if waits.ID != job.ID || waits.Attempts != 1 || len(waits.LastError) > 256 || !strings.HasPrefix(waits.LastError, "mail: 503 \uFFFD é") || !strings.Contains(waits.LastError, "cut") {
			t.Errorf("%+v", waits)
		}
		must(t, q.Delayed().RunNow(t.Context(), job.ID))
		release <- true
		q.awaitDead(1)
		if f := q.entries("jobs:dead")[0]; f["last_error"] != "" || f["error"] != "mail: 550" || f["attempts"] != "2" {
			t.Errorf("dead with %v", f)
		}
	})
}

func TestWhatAnErrorAsksFor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err         error
		attempts    int // before
		delayed     bool
		least, most time.Duration
		after       int // attempts
	}{
		"an error":              {errMail, 0, true, 0, time.Minute, 1},
		"the last error":        {errMail, 2, false, 0, 0, 3},
		"permanent":             {jobs.Permanent(errMail), 0, false, 0, 0, 1},
		"permanent, wrapped":    {fmt.Errorf("send: %w", jobs.Permanent(errMail)), 0, false, 0, 0, 1},
		"retry after":           {jobs.RetryAfter(2*time.Hour, errMail), 0, true, 2 * time.Hour, 2*time.Hour + time.Minute, 1},
		"retry after, joined":   {errors.Join(errMail, jobs.RetryAfter(2*time.Hour, errMail)), 1, true, 2 * time.Hour, 2*time.Hour + time.Minute, 2},
		"retry after, at last":  {jobs.RetryAfter(time.Second, errMail), 2, false, 0, 0, 3},
		"retry after a century": {jobs.RetryAfter(math.MaxInt64, errMail), 0, true, math.MaxInt64 / 2, math.MaxInt64 - time.Minute, 1},
		"snooze":                {jobs.Snooze(2 * time.Hour), 0, true, 2 * time.Hour, 2*time.Hour + time.Minute, 0},
		"snooze at the limit":   {fmt.Errorf("closed: %w", jobs.Snooze(time.Hour)), 2, true, time.Hour, time.Hour + time.Minute, 2},
		"snooze for a week":     {jobs.Snooze(7 * 24 * time.Hour), 0, true, 24 * time.Hour, 24*time.Hour + time.Minute, 0},
	}
	kind := jobs.NewKind[jobs.Fields]("send_mail", jobs.Policy{Retries: 2, Backoff: jobs.FullJitter(time.Minute, time.Minute)})
	each(t, func(t *testing.T, q *queue) {
		q.start(jobs.Config{}, handle(kind, func(_ context.Context, f jobs.Fields) error { return tests[f["test"]].err }))
		start := q.now()
		for name, test := range tests {
			q.add("jobs", "kind", "send_mail", "job_id", name, "test", name, "attempts", fmt.Sprint(test.attempts))
		}
		eventually(t, "all have run", func() bool { st := q.stats(); return st.Delayed+st.Dead >= int64(len(tests)) })
		found := 0
		for _, job := range q.delayed() {
			test, wait := tests[job.ID], job.Due.Sub(start)
			if found++; !test.delayed || wait < test.least || wait > test.most+time.Minute || job.Attempts != test.after {
				t.Errorf("%s: waits for %s, attempts %d", job.ID, wait, job.Attempts)
			}
		}
		for _, letter := range q.dead() {
			test := tests[letter.ID]
			if found++; test.delayed || letter.Attempts != test.after || letter.Error != test.err.Error() {
				t.Errorf("%s: %+v", letter.ID, letter)
			}
		}
		if found != len(tests) {
			t.Errorf("%d of %d", found, len(tests))
		}
	})
	if jobs.Permanent(nil) != nil || jobs.RetryAfter(time.Second, nil) != nil {
		t.Error("a mark on no error is an error")
	}
}

func TestP05_FailuresAreNotPoisonAndCrashesAreNotAttempts(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.Fields]("send_mail", jobs.Policy{Retries: 5, Backoff: soon})
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.add("jobs", "kind", "send_mail", "job_id", "crashed", "attempts", "2")
		q.ghost(1)
		w := q.start(jobs.Config{Lease: 500 * time.Millisecond}, handle(kind, func(ctx context.Context, _ jobs.Fields) error {
			job := rs.add(ctx)
			switch {
			case job.ID == "crashed":
				return jobs.RetryAfter(time.Hour, errMail)
			case job.Attempts < 5:
				return errMail
			}
			return nil
		}))
		fails := kind.Job(nil)
		q.enqueue(fails)
		eventually(t, "one has failed five times, one once after a crash", func() bool { return len(rs.all()) == 7 })
		q.idle()
		must(t, w.stop())
		if all := q.delayed(); len(all) != 1 || all[0].ID != "crashed" || all[0].Attempts != 3 {
			t.Errorf("delayed %+v", all)
		}
		if rs.of(fails.ID) != 6 || q.stats().Dead != 0 {
			t.Errorf("%d runs, dead %+v", rs.of(fails.ID), q.dead())
		}
	})
}

// ghost lets a worker that is no more fetch n entries.
func (q *queue) ghost(n int64) {
	q.t.Helper()
	ctx := q.t.Context()
	err := q.rdb.XGroupCreateMkStream(ctx, q.key("jobs"), "workers", "0").Err()
	if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
		q.t.Fatal(err)
	}
	must(q.t, q.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "workers", Consumer: "ghost", Streams: []string{q.key("jobs"), ">"}, Count: n, Block: -1,
	}).Err())
}

func TestY09_AHandlerMayEditItsInput(t *testing.T) {
	t.Parallel()
	want := jobs.Fields{"a": "1", "b": "2"}
	for name, mw := range map[string][]jobs.Middleware{"alone": nil, "in middleware": {editor}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				kind := jobs.NewKind[jobs.Fields]("edits", jobs.Policy{Retries: 1, Backoff: soon})
				var rs runs
				q.start(jobs.Config{}, handle(kind, func(ctx context.Context, f jobs.Fields) error {
					if job := rs.add(ctx); !maps.Equal(job.Fields, want) || mw == nil && !maps.Equal(f, want) {
						t.Errorf("a run sees %v and %v", job.Fields, f)
					}
					mine, _ := jobs.FromContext(ctx)
					for _, m := range []jobs.Fields{f, mine.Fields} {
						delete(m, "a")
						m["b"], m["c"] = "changed", "new"
					}
					return errMail
				}, mw...))
				q.enqueue(kind.Job(want))
				letter := q.awaitDead(1)[0]
				if !maps.Equal(letter.Fields, want) || len(rs.all()) != 2 {
					t.Errorf("%d runs, dead with %v", len(rs.all()), letter.Fields)
				}
			})
		})
	}
}

// editor passes on other fields than it was given, and spoils those.
func editor(next jobs.Handler) jobs.Handler {
	return func(ctx context.Context, job jobs.Job) error {
		other := maps.Clone(job.Fields)
		clear(job.Fields)
		job.Fields = other
		return next(ctx, job)
	}
}

func TestAnAttemptHasThirtyMinutesUnlessTold(t *testing.T) {
	t.Parallel()
	policy := func(timeout time.Duration) jobs.Policy { return jobs.Policy{Timeout: timeout} }
	tests := map[string]struct {
		policy jobs.Policy
		config time.Duration
		want   time.Duration // 0: none
	}{
		"the default":  {policy(0), 0, 30 * time.Minute},
		"the worker's": {policy(0), time.Minute, time.Minute},
		"the kind's":   {policy(90 * time.Second), time.Minute, 90 * time.Second},
		"none":         {policy(jobs.NoTimeout), time.Minute, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := jobs.NewKind[jobs.None]("slow", test.policy)
			type end struct {
				after, left time.Duration
				cause, err  error
			}
			var ended *end
			jobstest.Bubble(t, jobs.Config{Timeout: test.config}, func(q *jobstest.Queue) {
				jobs.Handle(q.Runner(), kind, func(ctx context.Context, _ jobs.None) error {
					start := time.Now()
					deadline, _ := ctx.Deadline()
					<-ctx.Done()
					ended = &end{time.Since(start), deadline.Sub(start), context.Cause(ctx), ctx.Err()}
					return ctx.Err()
				})
			}, func(t *testing.T, q *jobstest.Queue) {
				q.Enqueue(kind.Job(jobs.None{}))
				time.Sleep(test.want + 2*time.Minute)
				synctest.Wait()
				switch dead := q.Dead(); {
				case test.want == 0:
					if ended != nil {
						t.Errorf("ended after %s: %v", ended.after, ended.cause)
					}
				case ended == nil || *ended != end{test.want, test.want, jobs.ErrTimeout, context.DeadlineExceeded}:
					t.Errorf("ended %+v, want after %s", ended, test.want)
				case len(dead) != 1 || !strings.HasPrefix(dead[0].Error, "timeout after "+test.want.String()):
					t.Errorf("dead %+v", dead)
				}
			})
		})
	}
}
