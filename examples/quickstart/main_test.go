package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/jobstest"
)

// The whole story, with a worker running, in no time.
func TestStory(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newStory(&out, nil)
	setup := func(q *jobstest.Queue) {
		*s = *newStory(&out, q.Client())
		s.box.register(q.Runner())
	}
	jobstest.Bubble(t, s.config(), setup, func(t *testing.T, _ *jobstest.Queue) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		s.tell(ctx)
		if s.err != nil {
			t.Fatalf("%v; so far:\n%s", s.err, &out)
		}
		if err := s.sum(t.Context()); err != nil {
			t.Error(err)
		}
	})
	rest := out.String()
	for _, step := range []string{
		"1. ", "render_tickets of order 4470: done",
		"2. ", "attempt 1 failed: mail provider: 503", "attempt 2 failed: mail provider: 503", "send_tickets of order 4468: done",
		"3. ", "expire_holds of ", "expire_holds of ",
		"4. ", "send_reminder of order 4468: enqueued", "send_reminder of order 4468: done",
		"5. ", "attempt 2 failed: SeatLabelInvalid: '14-C'", "dead-lettered",
		"entry ", "kind ", "job_id ", "order_id   4471", "attempts   2", "error      SeatLabelInvalid", "traceback ",
		"6. ", "1 dead letter replayed", "render_tickets of order 4471: done",
		" + 0 dead + 1 still delayed\n",
	} {
		_, after, found := strings.Cut(rest, step)
		if !found {
			t.Fatalf("no %q where it belongs:\n%s", step, out.String())
		}
		rest = after
	}
}

func TestCountsThatDoNotAddUp(t *testing.T) {
	t.Parallel()
	q := jobstest.New(t, jobs.Config{})
	s := newStory(new(bytes.Buffer), q.Client())
	s.enqueue(t.Context(), sendReminder.Job(letter{4468, "ada@example.org"})) // and no worker
	if err := s.sum(t.Context()); err == nil || !strings.Contains(err.Error(), "do not add up: 1 enqueued") {
		t.Error(err)
	}
}

func TestAStoryThatCannotGoOnEnds(t *testing.T) {
	t.Parallel()
	q := jobstest.New(t, jobs.Config{})
	s := newStory(new(bytes.Buffer), q.Client())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.until(ctx, func() bool { return false }); s.err == nil {
		t.Error("it ended without an error")
	}
	s.tell(t.Context())
	if s.enqueued != 0 {
		t.Errorf("it went on with %d jobs", s.enqueued)
	}
}

func TestSweepLeavesOtherKeysAlone(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		for _, key := range []string{"quickstart:A:jobs", "quickstart:A:sched:x:1", "quickstart:B:jobs", "jobs"} {
			if err := rdb.Set(t.Context(), key, "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		sweep(rdb, "quickstart:A:")
		if got := rdb.Exists(t.Context(), "quickstart:A:jobs", "quickstart:A:sched:x:1").Val(); got != 0 {
			t.Errorf("%d keys are left", got)
		}
		if got := rdb.Exists(t.Context(), "quickstart:B:jobs", "jobs").Val(); got != 2 {
			t.Errorf("of 2 foreign keys %d are left", got)
		}
	})
}
