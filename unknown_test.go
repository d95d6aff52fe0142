package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
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
