package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

func TestB01_BackoffDoesNotOverflow(t *testing.T) {
	t.Parallel()
	const base, limit, samples = time.Second, time.Hour, 500
	backoff := jobs.FullJitter(base, limit)
	for _, n := range []int{0, 1, 2, 10, 11, 12, 33, 34, 35, 62, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt64} {
		ceiling := limit
		if n < 12 { // 2¹² s is more than an hour
			ceiling = base << n
		}
		least, most, sum := limit, time.Duration(0), time.Duration(0)
		for range samples {
			d := backoff(n)
			least, most, sum = min(least, d), max(most, d), sum+d
		}
		if least < 0 || most > ceiling {
			t.Errorf("after %d attempts: from %s to %s, want [0, %s]", n, least, most, ceiling)
		}
		// Of 500 uniform samples the mean is within a twelfth of the range about its middle,
		// and its ends are near, but once in some hundred million runs.
		if mean := sum / samples; mean < ceiling*5/12 || mean > ceiling*7/12 || least > ceiling/25 || most < ceiling*24/25 {
			t.Errorf("after %d attempts: mean %s, from %s to %s, want it uniform up to %s", n, mean, least, most, ceiling)
		}
	}
}

var degenerate = []struct{ base, limit time.Duration }{
	{0, 0}, {1, 1}, {0, time.Hour}, {math.MaxInt64, math.MaxInt64}, {time.Millisecond, time.Millisecond},
}

func TestB02_DegenerateBackoffs(t *testing.T) {
	t.Parallel()
	for _, p := range degenerate {
		backoff := jobs.FullJitter(p.base, p.limit)
		for n := range 71 {
			if d := backoff(n); d < 0 || d > p.limit || p.base == 0 && d > 0 {
				t.Errorf("FullJitter(%d, %d) after %d attempts: %d", p.base, p.limit, n, d)
			}
		}
	}
	for _, p := range []struct{ base, limit time.Duration }{{time.Hour, time.Second}, {-1, time.Second}, {1, -1}, {-2, -1}, {1, 0}} {
		want := fmt.Sprintf("jobs: FullJitter(%s, %s): want 0 <= base <= limit", p.base, p.limit)
		if text := panics(t, func() { jobs.FullJitter(p.base, p.limit) }); text != want {
			t.Errorf("panic %q, want %q", text, want)
		}
	}
}

func TestB02_DegeneratePolicies(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var register []func(*jobs.Runner)
		backoffs := []jobs.Backoff{
			func(int) time.Duration { return math.MinInt64 },
			func(int) time.Duration { return math.MaxInt64 },
			func(int) time.Duration { panic("no idea") },
		}
		for _, p := range degenerate {
			backoffs = append(backoffs, jobs.FullJitter(p.base, p.limit))
		}
		for i, backoff := range backoffs {
			kind := jobs.NewKind[jobs.None](fmt.Sprint("k", i), jobs.Policy{Retries: 1, Backoff: backoff})
			q.enqueue(kind.Job(jobs.None{}))
			register = append(register, handle(kind, func(context.Context, jobs.None) error { return errors.New("no") }))
		}
		q.start(jobs.Config{}, register...)
		// Those of 292 years, and of any time up to that, wait; the rest dies.
		eventually(t, "each is retried or dead", func() bool {
			st := q.stats()
			return st.Ready+st.Running == 0 && st.Dead+st.Delayed == int64(len(backoffs)) && st.Delayed == 2
		})
		for _, job := range q.delayed() {
			if job.Kind != "k1" && job.Kind != "k6" || job.Attempts != 1 {
				t.Errorf("still waits: %+v", job)
			}
		}
	})
}

func TestB04_AWaveOfFailuresSpreadsOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		if q.mini != nil {
			q.mini.SetTime(time.Now()) // and it stands still: all fail in the same instant
		}
		kind := jobs.NewKind[jobs.None]("wave", jobs.Policy{Retries: 1, Backoff: jobs.FullJitter(10*time.Second, 10*time.Second)})
		js := make([]jobs.Job, 1000)
		for i := range js {
			js[i] = kind.Job(jobs.None{})
		}
		q.enqueue(js...)
		start := q.now()
		q.start(jobs.Config{Slots: 100}, handle(kind, func(context.Context, jobs.None) error { return errors.New("503") }))
		eventually(t, "all have failed", func() bool {
			st := q.stats()
			return st.Ready+st.Running == 0 && st.Delayed+st.Dead == 1000
		})
		checkSpread(t, start, q.now().Sub(start), q.delayed())
	})
}

// checkSpread looks at retries within 10 s of failures that came within the first spent.
func checkSpread(t *testing.T, start time.Time, spent time.Duration, all []jobs.DelayedJob) {
	t.Helper()
	buckets := make([]int, 11+int(spent.Seconds()))
	whole := 0
	for _, job := range all { // those that were due meanwhile are missing in the first bucket
		buckets[int(job.Due.Sub(start).Seconds())]++
		if job.Due.Nanosecond() == 0 {
			whole++
		}
	}
	if first, last := all[0].Due.Sub(start), all[len(all)-1].Due.Sub(start); first > spent+time.Second || last < 8500*time.Millisecond {
		t.Errorf("%d jobs from %s to %s", len(all), first, last)
	}
	if slices.Max(buckets) > 180 || slices.Min(buckets[1+int(spent.Seconds()):10]) < 50 || whole > 10 {
		t.Errorf("%d whole seconds, after a wave of %s jobs by second: %v", whole, spent, buckets)
	}
}

func TestRetriesCountRetries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ retries, arrives, runs, attempts int }{
		{0, 0, 1, 1}, // the zero policy: never again
		{1, 0, 2, 2},
		{5, 0, 6, 6},
		{5, 4, 2, 6},
		{1, 7, 1, 8}, // more attempts than permitted: the limit is asked after a run
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				var rs runs
				kind := jobs.NewKind[jobs.None]("fails", jobs.Policy{Retries: test.retries, Backoff: soon})
				q.add("jobs", "kind", "fails", "attempts", fmt.Sprint(test.arrives))
				q.start(jobs.Config{}, handle(kind, func(ctx context.Context, _ jobs.None) error {
					rs.add(ctx)
					return errors.New("503")
				}))
				letter := q.awaitDead(1)[0]
				if n := len(rs.all()); n != test.runs || letter.Attempts != test.attempts || letter.Reason != jobs.ReasonFailed {
					t.Errorf("%d runs, dead with attempts %d", n, letter.Attempts)
				}
				for i, job := range rs.all() {
					if job.Attempts != test.arrives+i {
						t.Errorf("run %d sees attempts %d", i, job.Attempts)
					}
				}
			})
		})
	}
}

func TestADeployedPolicyGovernsWhatIsQueued(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		fails := func(context.Context, jobs.None) error { return errors.New("503") }
		before := jobs.NewKind[jobs.None]("mail", jobs.Policy{Retries: 5, Backoff: jobs.FullJitter(0, 0)})
		after := jobs.NewKind[jobs.None]("mail", jobs.Policy{Retries: 1})
		job := before.Job(jobs.None{})
		q.enqueue(job)
		ran := make(chan bool)
		w := q.start(jobs.Config{}, handle(before, func(context.Context, jobs.None) error {
			ran <- true
			return jobs.RetryAfter(time.Hour, errors.New("503"))
		}))
		receive(t, ran)
		q.idle()
		must(t, w.stop())
		must(t, q.Delayed().RunNow(t.Context(), job.ID))
		q.start(jobs.Config{}, handle(after, fails))
		if letter := q.awaitDead(1)[0]; letter.ID != job.ID || letter.Attempts != 2 {
			t.Errorf("%+v", letter)
		}
	})
}

func TestTheDefaultBackoffIsFromOneSecondToAMinute(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.None]("fails", jobs.Policy{Retries: 8})
	q := jobstest.New(t, jobs.Config{})
	jobs.Handle(q.Runner(), kind, func(context.Context, jobs.None) error { return errors.New("503") })
	longest := map[int]time.Duration{}
	for range 20 {
		q.Enqueue(kind.Job(jobs.None{}))
	}
	for q.Drain(); len(q.Delayed()) > 0; q.Drain() {
		for _, job := range q.Delayed() {
			longest[job.Attempts] = max(longest[job.Attempts], job.Due.Sub(q.Now()))
		}
		q.Advance(time.Second) // what is due later is seen again, with less to wait
	}
	for attempts, wait := range longest {
		if ceiling := min(time.Minute, time.Second<<(attempts-1)); wait > ceiling || wait < ceiling/2 {
			t.Errorf("before attempt %d: %s at most, want up to %s", attempts+1, wait, ceiling)
		}
	}
	if len(longest) != 8 || len(q.Dead()) != 20 {
		t.Errorf("%d attempts, %d dead", len(longest), len(q.Dead()))
	}
}

func TestTwoProcessesDoNotBackOffAlike(t *testing.T) {
	t.Parallel()
	a, b := jobs.FullJitter(time.Hour, time.Hour), jobs.FullJitter(time.Hour, time.Hour)
	for range 10 {
		if a(0) == b(0) {
			t.Error("two backoffs of the same")
		}
	}
}

// Whatever a Backoff does, failures and timeouts are recorded, all slots come back, and the
// timeouts of other jobs are kept.
func TestABackoffThatGivesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, backoff := range map[string]func(forever chan struct{}) time.Duration{
		"panics":               func(chan struct{}) time.Duration { panic("no idea") },
		"ends its goroutine":   func(chan struct{}) time.Duration { runtime.Goexit(); return 0 },
		"does not come back":   func(forever chan struct{}) time.Duration { <-forever; return 0 },
		"comes back very late": func(chan struct{}) time.Duration { time.Sleep(time.Minute); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				forever := make(chan struct{})
				defer close(forever)
				bad := jobs.Policy{Retries: 1, Timeout: time.Second, Backoff: func(int) time.Duration { return backoff(forever) }}
				fails, hangs := jobs.NewKind[jobs.None]("fails", bad), jobs.NewKind[jobs.None]("hangs", bad)
				innocent := jobs.NewKind[jobs.None]("innocent", jobs.Policy{Timeout: 2 * time.Second})
				hang := func(context.Context, jobs.None) error { <-forever; return nil }
				w := q.hire(jobs.Config{Slots: 5}, handle(hangs, hang), handle(innocent, hang),
					handle(fails, func(context.Context, jobs.None) error { return errMail }))
				q.enqueue(fails.Job(jobs.None{}), fails.Job(jobs.None{}), hangs.Job(jobs.None{}), hangs.Job(jobs.None{}), innocent.Job(jobs.None{}))
				time.Sleep(4 * time.Second)
				if !slices.ContainsFunc(q.dead(), func(d jobs.DeadLetter) bool { return d.Kind == innocent.Name() }) {
					t.Error("two seconds after its timeout the innocent is not dead")
				}
				time.Sleep(time.Minute)
				for _, d := range q.dead() {
					if d.Kind != innocent.Name() && d.Attempts != 2 {
						t.Errorf("%s died after %d attempts", d.Kind, d.Attempts)
					}
				}
				if st := q.stats(); st != (jobs.Stats{Dead: 5}) {
					t.Errorf("left %+v", st)
				}
				must(t, w.stop())
			})
		})
	}
}
