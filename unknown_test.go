package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
)

func TestAnUnknownKindWaitsForAWorkerThatKnowsIt(t *testing.T) {
	t.Parallel()
	q := jobstest.New(t, jobs.Config{})
	job := once.Job(jobs.Fields{"a": "b"})
	job.Attempts = 0
	start := q.Now()
	q.Enqueue(job)
	var waits []time.Duration
	for q.Drain(); len(q.Delayed()) > 0; q.Drain() {
		waiting := q.Delayed()[0]
		waits = append(waits, waiting.Due.Sub(q.Now()).Round(time.Millisecond))
		if waiting.ID != job.ID || waiting.Attempts != 0 || !maps.Equal(waiting.Fields, job.Fields) {
			t.Fatalf("waits as %+v", waiting)
		}
		q.Advance(waiting.Due.Sub(q.Now()))
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 8e9, 15e9, 15e9}; !slices.Equal(waits[:6], want) {
		t.Errorf("waits %v, want %v and so on", waits[:6], want)
	}
	dead := q.Dead()
	if age := q.Now().Sub(start); len(dead) != 1 || age < time.Hour || age > time.Hour+20*time.Second {
		t.Fatalf("after %s dead: %+v", age, dead)
	}
	if d := dead[0]; d.Reason != jobs.ReasonUnknownKind || d.Attempts != 0 || !strings.Contains(d.Error, `"once"`) || !maps.Equal(d.Fields, job.Fields) {
		t.Errorf("%+v", d)
	}
}

func TestAnUnknownKindRunsWhereItIsKnown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		job := render.Job(ticket{1, "14C"})
		q.enqueue(job)
		old := q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		eventually(t, "the old worker has put it back", func() bool { return q.stats().Delayed == 1 })
		for text := range q.scores() {
			var f jobs.Fields
			must(t, json.Unmarshal([]byte(text), &f))
			since, err := strconv.ParseInt(f["unknown_since"], 10, 64)
			if age := q.now().Unix() - since; err != nil || age < 0 || age > 5 || f["attempts"] != "0" || f["job_id"] != job.ID {
				t.Errorf("waits as %v", f)
			}
		}
		must(t, old.stop())
		q.start(jobs.Config{}, handle(render, func(ctx context.Context, args ticket) error {
			if rs.add(ctx); len(rs.all()) == 1 {
				return jobs.RetryAfter(time.Hour, errors.New("503"))
			}
			return nil
		}))
		if all := rs.wait(t, 1); all[0].ID != job.ID || all[0].Attempts != 0 {
			t.Errorf("%+v", all)
		}
		eventually(t, "it waits for its retry", func() bool { return q.stats().Delayed == 1 })
		for text := range q.scores() {
			if strings.Contains(text, "unknown_since") {
				t.Errorf("a known kind waits as %s", text)
			}
		}
	})
}

// Whoever knows the kind ends the time in which it was unknown: else a worker that does not know it, hours later, buries
// what all others run.
func TestAKindThatWasKnownIsNotUnknownSinceBefore(t *testing.T) {
	t.Parallel()
	long := jobs.NewKind[jobs.None]("long", jobs.Policy{})
	for name, handler := range map[string]func(context.Context, jobs.None) error{
		"put off":    func(context.Context, jobs.None) error { return jobs.Snooze(time.Minute) },
		"given back": func(ctx context.Context, _ jobs.None) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				q.add("jobs", "kind", "long", "unknown_since", strconv.FormatInt(q.now().Add(-2*time.Hour).Unix(), 10))
				knows := q.hire(jobs.Config{Grace: time.Second}, handle(long, handler))
				time.Sleep(time.Second)
				must(t, knows.stop())
				q.hire(jobs.Config{}, handle(once, record[jobs.Fields](new(runs))))
				time.Sleep(2 * time.Minute)
				if dead := q.dead(); len(dead) > 0 || q.stats().Delayed != 1 {
					t.Errorf("dead: %+v; %+v", dead, q.stats())
				}
			})
		})
	}
}

func TestAnUnknownKindIsTold(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var log journal
		since := q.now().UTC().Format(time.RFC3339)
		q.enqueue(render.Job(ticket{1, "14C"}), render.Job(ticket{2, "14D"}))
		q.hire(jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](new(runs))))
		time.Sleep(140 * time.Second)
		for job, err := range q.Delayed().List(t.Context()) {
			if must(t, err); !strings.Contains(job.LastError, "unknown kind") || !strings.Contains(job.LastError, since) {
				t.Errorf("it waits since %s for %q", since, job.LastError)
			}
		}
		if lines := log.lines(t, "no handler for its kind"); len(lines) != 2 || !strings.Contains(fmt.Sprint(lines[0]), "render_tickets") {
			t.Errorf("told %d times in 140 s: %v", len(lines), lines)
		}
	})
}
