package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

// never is never due, backwards does not advance.
type (
	never     struct{}
	backwards struct{}
)

func (never) Next(time.Time) time.Time           { return time.Time{} }
func (backwards) Next(after time.Time) time.Time { return after }

func TestScheduleRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	minute, job := jobs.Every(time.Minute), once.Job(nil)
	for name, c := range map[string]struct {
		p    jobs.Periodic
		says string
	}{
		"twice":           {jobs.Periodic{Name: "there", When: minute, Job: job}, "there"},
		"a colon":         {jobs.Periodic{Name: "a:b", When: minute, Job: job}, "colon"},
		"no job":          {jobs.Periodic{Name: "x", When: minute}, "name"},
		"no schedule":     {jobs.Periodic{Name: "x", Job: job}, "nil"},
		"never due":       {jobs.Periodic{Name: "x", When: never{}, Job: job}, "never"},
		"no advance":      {jobs.Periodic{Name: "x", When: backwards{}, Job: job}, "advance"},
		"its own time":    {jobs.Periodic{Name: "x", When: minute, Job: job.In(time.Hour)}, "time of its own"},
		"at a time":       {jobs.Periodic{Name: "x", When: minute, Job: job.At(time.Now())}, "time of its own"},
		"missed":          {jobs.Periodic{Name: "x", When: minute, Job: job, Missed: 7}, "Missed"},
		"reserved field":  {jobs.Periodic{Name: "x", When: minute, Job: once.Job(jobs.Fields{"attempts": "1"})}, "attempts"},
		"a kind's colons": {jobs.Periodic{When: minute, Job: jobs.Job{Kind: "a:b"}}, "colon"},
	} {
		r := jobs.NewRunner(jobs.NewClient(nowhere(t), jobs.Options{}), jobs.Config{})
		r.Schedule(jobs.Periodic{Name: "there", When: minute, Job: job})
		text := panics(t, func() { r.Schedule(c.p) })
		if !strings.HasPrefix(text, "jobs: schedule ") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %q does not say %q", name, text, c.says)
		}
	}
}

func TestScheduleComesBeforeRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		w := q.start(jobs.Config{})
		eventually(t, "it runs", func() bool { return q.rdb.Exists(t.Context(), q.key("jobs")).Val() == 1 })
		text := panics(t, func() {
			w.Schedule(jobs.Periodic{Name: "late", When: jobs.Every(time.Minute), Job: once.Job(nil)})
		})
		if !strings.Contains(text, "late") || !strings.Contains(text, "Run") {
			t.Errorf("%q", text)
		}
	})
}

// A schedule that cannot be is refused where it is written down.
func TestSchedulesThatCannotBe(t *testing.T) {
	t.Parallel()
	for says, f := range map[string]func(){
		"whole seconds":     func() { jobs.Every(1500 * time.Millisecond) },
		"at least 1s":       func() { jobs.Every(0) },
		"25":                func() { jobs.Daily(25, 0) },
		"61":                func() { jobs.Cron("61 * * * *") },
		"location":          func() { jobs.InZone(nil, jobs.Every(time.Minute)) },
		"unknown time zone": func() { jobs.Cron("CRON_TZ=Mars/Phobos 0 3 * * *") },
		"Local":             func() { jobs.Cron("TZ=Local 0 3 * * *") },
	} {
		if text := panics(t, f); !strings.Contains(text, says) {
			t.Errorf("%q does not say %q", text, says)
		}
	}
}

func TestT10_DatesThatNeverComeAndThatRarelyCome(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6,9,11 *"} {
		if s, err := jobs.ParseCron(expr); err == nil {
			t.Errorf("%s is due at %s", expr, s.Next(time.Now()))
		}
	}
	for expr, want := range map[string][]string{
		"0 0 31 * *": {"2026-03-31", "2026-05-31", "2026-07-31"},
		"0 0 29 2 *": {"2028-02-29", "2032-02-29"},
	} {
		at := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		for _, day := range want {
			if at = jobs.Cron(expr).Next(at); at.Format(time.DateOnly) != day {
				t.Errorf("%s: %s, not %s", expr, at, day)
			}
		}
	}
}

// next checks what a schedule answers.
func next(t *testing.T, zone, expr, after string, want ...string) {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	must(t, err)
	at, err := time.ParseInLocation("2006-01-02 15:04", after, loc)
	must(t, err)
	s := jobs.InZone(loc, jobs.Cron(expr))
	for _, w := range want {
		at = s.Next(at)
		if got := at.UTC().Format(time.RFC3339); got != w {
			t.Errorf("%s %s: %s, not %s", zone, expr, got, w)
		}
	}
}

func TestT07_SpringForward(t *testing.T) {
	t.Parallel()
	next(t, "America/New_York", "30 2 * * *", "2026-03-07 12:00", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z")
	next(t, "America/Los_Angeles", "0 2 * * *", "2025-03-08 12:00", "2025-03-09T10:00:00Z", "2025-03-10T09:00:00Z")
}

func TestT09_MidnightThatDoesNotExist(t *testing.T) {
	t.Parallel()
	next(t, "America/Sao_Paulo", "0 0 * * *", "2018-11-03 12:00", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z")
	next(t, "America/Sao_Paulo", "0 1 4 11 *", "2018-11-03 12:00", "2018-11-04T03:00:00Z")
	next(t, "America/Sao_Paulo", "0 9 10 * *", "2018-10-17 12:00", "2018-11-10T11:00:00Z")
}

// Through the whole library: half past two in New York, each day once, also on the day
// that has none.
func TestT07_SpringForwardRunsOnce(t *testing.T) {
	t.Parallel()
	newYork, err := time.LoadLocation("America/New_York")
	must(t, err)
	q := jobstest.New(t, jobs.Config{})
	var rs runs
	jobs.Handle(q.Runner(), once, record[jobs.Fields](&rs))
	q.Runner().Schedule(jobs.Periodic{Name: "x", When: jobs.InZone(newYork, jobs.Cron("30 2 * * *")), Job: once.Job(nil)})
	_, change := q.Now().In(newYork).ZoneBounds()
	if !change.IsDST() {
		_, change = change.ZoneBounds()
	}
	q.Advance(change.Sub(q.Now()) + 36*time.Hour) // to the second day after it
	all := rs.all()
	last, day := all[len(all)-2].Tick.In(newYork), change.In(newYork)
	if !last.Equal(change) || all[len(all)-1].Tick.In(newYork).Format(time.DateTime) != day.AddDate(0, 0, 1).Format(time.DateOnly)+" 02:30:00" {
		t.Errorf("ran at %s and %s; the clock went forward at %s", last, all[len(all)-1].Tick, change)
	}
	for i := range all[1:] {
		if d := all[i+1].Tick.Sub(all[i].Tick); d < 23*time.Hour || d > 25*time.Hour {
			t.Errorf("%s between two runs", d)
		}
	}
}

func TestT16_TimeZones(t *testing.T) {
	t.Parallel()
	next(t, "UTC", "CRON_TZ=Europe/Berlin 0 3 * * *", "2026-07-01 00:00", "2026-07-01T01:00:00Z")
	if s, err := jobs.ParseCron("CRON_TZ=Mars/Phobos 0 3 * * *"); err == nil {
		t.Errorf("Mars is taken for %v", s)
	}
}
