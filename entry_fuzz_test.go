package jobs_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	codec "github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/steps"
	"github.com/stagedoor/jobs/internal/store"
)

// loose are the names and values of an entry that a fuzzer writes as bytes: each with its length in front.
func loose(data []byte) (flat []string) {
	for len(data) > 0 && len(flat) < 2*store.MaxFields+100 {
		n := min(int(data[0]), len(data)-1)
		flat, data = append(flat, string(data[1:1+n])), data[1+n:]
	}
	return flat[:len(flat)/2*2]
}

// tight is the other way round.
func tight(flat ...string) (data []byte) {
	for _, s := range flat {
		data = append(append(data, byte(len(s))), s...)
	}
	return data
}

// stepped is a worker that goes step by step.
type stepped struct {
	*queue
	driver interface {
		Begin(context.Context) error
		Drain(context.Context) error
	}
	ran []jobs.Job
}

// newStepped has handlers for two kinds: one takes what comes, the other wants a seat.
func newStepped(f *testing.F) *stepped {
	m := miniredis.RunT(f)
	m.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	f.Cleanup(func() { _ = rdb.Close() })
	s := &stepped{queue: newQueue(f, rdb, "")}
	r := jobs.NewRunner(s.Client, jobs.Config{Slots: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	note := func(ctx context.Context) {
		job, _ := jobs.FromContext(ctx)
		s.ran = append(s.ran, job)
	}
	jobs.Handle(r, once, func(ctx context.Context, f jobs.Fields) error { note(ctx); return nil })
	jobs.Handle(r, render, func(ctx context.Context, args ticket) error { note(ctx); return nil })
	s.driver = steps.Of(r).(interface {
		Begin(context.Context) error
		Drain(context.Context) error
	})
	must(f, s.driver.Begin(context.Background()))
	return s
}

// Whatever another program writes into the stream, the loop lives on, and the entry comes to one end: it runs with
// exactly what was written, or it is a dead letter that says why and holds all of it, or (of a kind not known here) it
// waits in delayed.
func FuzzEntry(f *testing.F) {
	f.Add(tight("kind", "once", "job_id", "1", "attempts", "0", "order_id", "4471"))
	f.Add(tight("kind", "render_tickets", "outbox_id", "88210", "attempts", "2", "order_id", "4471", "seat", "14C"))
	f.Add(tight("kind", "render_tickets", "order_id", "many", "seat", "14C"))
	f.Add(tight("kind", "render_tickets", "order_id", "4471"))
	f.Add(tight("kind", "", "job_id", ""))
	f.Add(tight("kind", "once", "kind", "elsewhere", "\xff", "\x00", "", "", "attempts", "-1"))
	f.Add(tight("kind", "once", "error", "e", "traceback", "t", "raw", "r", "last_error", "l", "unknown_since", "u"))
	f.Add(tight("kind", "elsewhere", "unknown_since", "99999999999999999999", "scheduled_at", "yesterday"))
	s := newStepped(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if flat := loose(data); len(flat) > 0 {
			s.check(t, flat)
		}
	})
}

func (s *stepped) check(t *testing.T, flat []string) {
	ctx := t.Context()
	must(t, s.rdb.Del(ctx, "delayed", "jobs:dead").Err())
	s.ran = nil
	id, err := s.rdb.XAdd(ctx, &redis.XAddArgs{Stream: "jobs", Values: flat}).Result()
	must(t, err)
	must(t, s.driver.Drain(ctx))
	st, err := s.Stats(ctx)
	must(t, err)
	if st.Ready+st.Running != 0 || int64(len(s.ran))+st.Dead+st.Delayed != 1 {
		t.Fatalf("%d runs, left %+v: %q", len(s.ran), st, flat)
	}
	written := fields(flat)
	switch kind := written["kind"]; {
	case len(s.ran) == 1:
		checkRan(t, s.ran[0], id, written)
	case st.Dead == 1:
		letters := collect(t, s.DeadLetters().List(ctx, jobs.Filter{}))
		checkLetter(t, letters[0], written)
	case kind == once.Name() || kind == render.Name():
		t.Fatalf("delayed: %q", flat)
	}
}

func checkRan(t *testing.T, job jobs.Job, id string, written jobs.Fields) {
	for _, name := range []string{"outbox_id", "job_id"} {
		if written[name] != "" {
			id = written[name]
		}
	}
	own := maps.Clone(written)
	maps.DeleteFunc(own, func(name, _ string) bool { return codec.Reserved(name) })
	if job.ID != id || job.Kind != written["kind"] || job.RequestID != written["request_id"] || !maps.Equal(job.Fields, own) {
		t.Fatalf("it ran as %+v: %q", job, written)
	}
}

func checkLetter(t *testing.T, letter jobs.DeadLetter, written jobs.Fields) {
	if letter.Error == "" || letter.Reason != jobs.ReasonUndecodable && letter.Reason != jobs.ReasonUnknownKind {
		t.Fatalf("dead, %s, with the error %q: %q", letter.Reason, letter.Error, written)
	}
	if store.TooMany(written) {
		return // it is in raw
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if got, ok := letter.Fields[name]; !codec.Reserved(name) && (!ok || got != written[name]) {
			t.Fatalf("dead without %q as it was: %q", name, written)
		}
	}
}
