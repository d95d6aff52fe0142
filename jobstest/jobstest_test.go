package jobstest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

type mail struct {
	To string `job:"to,required"`
}

var (
	sendMail = jobs.NewKind[mail]("send_mail", jobs.Policy{Retries: 2, Backoff: jobs.FullJitter(time.Second, time.Minute)})
	sweep    = jobs.NewKind[jobs.None]("sweep", jobs.Policy{})
)

func TestAdvanceADay(t *testing.T) {
	t.Parallel()
	q := jobstest.New(t, jobs.Config{})
	sweeps, mails := 0, 0
	jobs.Handle(q.Runner(), sweep, func(context.Context, jobs.None) error { sweeps++; return nil })
	jobs.Handle(q.Runner(), sendMail, func(context.Context, mail) error {
		if mails++; mails < 3 {
			return errors.New("503")
		}
		return nil
	})
	q.Runner().Schedule(jobs.Periodic{When: jobs.Every(time.Minute), Job: sweep.Job(jobs.None{})})
	start := time.Now()
	q.Enqueue(sendMail.Job(mail{"a@b"}).In(23 * time.Hour))
	q.Advance(24 * time.Hour)
	if sweeps != 24*60 || mails != 3 || len(q.Delayed()) != 0 {
		t.Fatalf("%d sweeps, %d mails, delayed %v", sweeps, mails, q.Delayed())
	}
	t.Log("took", time.Since(start))
}

func TestBubble(t *testing.T) {
	ran := 0
	jobstest.Bubble(t, jobs.Config{}, func(q *jobstest.Queue) {
		jobs.Handle(q.Runner(), sweep, func(context.Context, jobs.None) error { ran++; return nil })
		q.Runner().Schedule(jobs.Periodic{When: jobs.Every(time.Minute), Job: sweep.Job(jobs.None{})})
	}, func(t *testing.T, q *jobstest.Queue) {
		time.Sleep(time.Hour)
		q.Drain()
		if ran != 60 {
			t.Fatalf("%d ticks in an hour", ran)
		}
		if kinds := jobstest.Kinds(q.Done()); len(kinds) != 60 || slices.Contains(kinds, "send_mail") {
			t.Fatal(kinds)
		}
	})
}

// What Bubble watches for itself, it also tells.
func TestBubbleLeavesObserveToTheTest(t *testing.T) {
	t.Parallel()
	var settled atomic.Int64
	cfg := jobs.Config{Observe: func(e jobs.Event) {
		if e.What == jobs.EventSettled {
			settled.Add(1)
		}
	}}
	jobstest.Bubble(t, cfg, func(q *jobstest.Queue) {
		jobs.Handle(q.Runner(), sweep, func(context.Context, jobs.None) error { return nil })
	}, func(t *testing.T, q *jobstest.Queue) {
		q.Enqueue(sweep.Job(jobs.None{}))
		q.Drain()
	})
	if n := settled.Load(); n != 1 {
		t.Errorf("%d settled", n)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tests := map[string]struct {
		err  error
		want jobstest.Outcome
	}{
		"nil":       {nil, jobstest.Done},
		"error":     {boom, jobstest.Retried},
		"permanent": {jobs.Permanent(boom), jobstest.Dead},
		"snooze":    {jobs.Snooze(time.Minute), jobstest.Snoozed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := jobstest.Run(t, sendMail, func(_ context.Context, m mail) error {
				if m.To != "a@b" {
					t.Errorf("arguments %v", m)
				}
				return test.err
			}, mail{"a@b"})
			if a.Outcome != test.want || !errors.Is(a.Err, test.err) {
				t.Fatal(a)
			}
		})
	}
}
