package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// kill adds dead letters of a kind, as a worker writes them, and returns their stream IDs.
func (q *queue) kill(kind string, n int) []string {
	q.t.Helper()
	pipe := q.rdb.Pipeline()
	cmds := make([]*redis.StringCmd, n)
	for i := range n {
		cmds[i] = pipe.XAdd(q.t.Context(), &redis.XAddArgs{Stream: q.key("jobs:dead"), Values: []string{
			"kind", kind, "n", strconv.Itoa(i), "job_id", fmt.Sprint(kind, i), "attempts", "3", "request_id", "r",
			"error", "no: " + strconv.Itoa(i), "traceback", "handler x"}})
	}
	_, err := pipe.Exec(q.t.Context())
	must(q.t, err)
	ids := make([]string, n)
	for i, cmd := range cmds {
		ids[i] = cmd.Val()
	}
	return ids
}

func TestL01_TheCapAndWhoFallsOut(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		kept, cfg := 10_000, jobs.Config{Lease: 500 * time.Millisecond}
		if isMini(t) {
			kept, cfg.KeepDead = 100, 100
		}
		filler := q.kill("filler", kept)
		var log journal
		cfg.Logger = log.logger(t)
		poisoned, unknown := q.add("jobs", "kind", "once", "n", "poison"), q.add("jobs", "kind", "nobody")
		q.ghost(2)
		for id, idle := range map[string]time.Duration{poisoned: time.Hour, unknown: 2 * time.Hour} {
			must(t, rdb.Do(t.Context(), "xclaim", "jobs", "workers", "ghost", 0, id, "idle", idle.Milliseconds(), "retrycount", 3).Err())
		}
		q.addDelayed(1, "rubbish")
		q.add("jobs", "no", "kind")
		q.add("jobs", "kind", "unheard", "unknown_since", strconv.FormatInt(q.now().Add(-2*time.Hour).Unix(), 10))
		q.enqueue(many(20)...)
		q.start(cfg, handle(once, func(context.Context, jobs.Fields) error { return errMail }))
		deaths := map[jobs.Reason]int{}
		eventually(t, "25 more have died", func() bool {
			clear(deaths)
			for _, line := range log.lines(t, "dead-lettered") {
				deaths[jobs.Reason(line["reason"].(string))]++
			}
			return deaths[jobs.ReasonFailed]+deaths[jobs.ReasonUndecodable]+deaths[jobs.ReasonUnknownKind]+deaths[jobs.ReasonPoison] == 25
		})
		if want := map[jobs.Reason]int{jobs.ReasonFailed: 20, jobs.ReasonUndecodable: 2, jobs.ReasonUnknownKind: 2, jobs.ReasonPoison: 1}; !maps.Equal(deaths, want) {
			t.Errorf("died of %v, want %v", deaths, want)
		}
		dead := q.dead()
		if len(dead) != kept || dead[0].Entry != filler[25] {
			t.Errorf("%d are kept, the oldest is %s", len(dead), dead[0].Entry)
		}
		dropped := 0.0
		for _, line := range log.lines(t, "dropped") {
			dropped += line["dropped"].(float64)
		}
		if dropped != 25 {
			t.Errorf("the log tells of %v that were dropped, of 25", dropped)
		}
	})
}

func TestKeepDeadIsExact(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.enqueue(many(30)...)
		q.start(jobs.Config{Slots: 1, KeepDead: 7}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			return errMail
		}))
		rs.wait(t, 30)
		q.idle()
		dead := q.dead()
		if len(dead) != 7 || dead[0].Fields["n"] != "23" || dead[6].Fields["n"] != "29" {
			t.Errorf("%d are kept: %v", len(dead), dead)
		}
		for i := range 20 {
			q.addDelayed(float64(i), fmt.Sprint("rubbish ", i))
		}
		eventually(t, "the rubbish is buried", func() bool { return q.stats().Delayed == 0 })
		if dead := q.dead(); len(dead) != 7 || dead[6].Raw != "rubbish 19" {
			t.Errorf("of rubbish %d are kept: %v", len(dead), dead)
		}
	})
}

func TestListGetAndDiscard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		a, b := q.kill("a", 120), q.kill("b", 3)
		boundary := died(b[0])
		eventually(t, "the clock goes on", func() bool { return q.now().After(boundary.Add(2 * time.Millisecond)) })
		c := q.kill("c", 2)
		all := slices.Concat(a, b, c)
		tests := map[string]struct {
			filter jobs.Filter
			want   []string
		}{
			"all":            {jobs.Filter{}, all},
			"a kind":         {jobs.Filter{Kind: "b"}, b},
			"no part of it":  {jobs.Filter{Kind: "B"}, nil},
			"an ID":          {jobs.Filter{ID: "a7"}, a[7:8]},
			"an error":       {jobs.Filter{Error: ": 119"}, a[119:]},
			"a limit":        {jobs.Filter{Limit: 105}, a[:105]},
			"kind and limit": {jobs.Filter{Kind: "b", Limit: 2}, b[:2]},
			"kind and error": {jobs.Filter{Kind: "b", Error: "no: 1"}, b[1:2]},
			"since":          {jobs.Filter{Since: died(c[0])}, c},
			"since later":    {jobs.Filter{Since: died(c[1]).Add(time.Nanosecond)}, nil},
			"until":          {jobs.Filter{Until: died(c[0])}, all[:123]},
			"until, later":   {jobs.Filter{Until: died(c[1]).Add(time.Nanosecond)}, all},
			"long ago":       {jobs.Filter{Until: time.Unix(-1, 0)}, nil},
		}
		for name, test := range tests {
			var got []string
			for _, d := range collect(t, q.DeadLetters().List(t.Context(), test.filter)) {
				got = append(got, d.Entry)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %d chosen, want %d: %v", name, len(got), len(test.want), got)
			}
		}
		q.getAndDiscard(b[1])
	})
}

// died is the time in a dead letter's stream ID.
func died(entry string) time.Time {
	ms, _, _ := strings.Cut(entry, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return time.UnixMilli(n)
}

// getAndDiscard does so with the second dead letter of kind b.
func (q *queue) getAndDiscard(entry string) {
	q.t.Helper()
	letters, ctx := q.DeadLetters(), q.t.Context()
	d, err := letters.Get(ctx, entry)
	must(q.t, err)
	if d.ID != "b1" || d.Kind != "b" || d.Attempts != 3 || d.RequestID != "r" || d.Error != "no: 1" || d.Traceback != "handler x" ||
		d.Reason != jobs.ReasonFailed || !d.Died.Equal(died(entry)) || d.Entry != entry || !maps.Equal(d.Fields, jobs.Fields{"n": "1"}) {
		q.t.Errorf("%+v", d)
	}
	before := q.stats().Dead
	must(q.t, letters.Discard(ctx, entry))
	if _, err := letters.Get(ctx, entry); !errors.Is(err, jobs.ErrNotFound) || q.stats().Dead != before-1 {
		q.t.Errorf("get after discard: %v", err)
	}
	if err := letters.Discard(ctx, entry); !errors.Is(err, jobs.ErrNotFound) {
		q.t.Errorf("discarded twice: %v", err)
	}
	if err := letters.Discard(ctx, "no ID"); err == nil || errors.Is(err, jobs.ErrNotFound) {
		q.t.Errorf("discard: %v", err)
	}
}

func TestListOneEntry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		entries := q.kill("once", 3)
		var got []string
		for d, err := range q.DeadLetters().List(t.Context(), jobs.Filter{Entry: entries[1]}) {
			must(t, err)
			got = append(got, d.Entry)
		}
		if !slices.Equal(got, entries[1:2]) {
			t.Errorf("got %v", got)
		}
	})
}

func TestASlowOnDeadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var told counter
		last := once.Job(jobs.Fields{"ends": "well"})
		q.start(jobs.Config{OnDead: func(context.Context, jobs.DeadLetter) {
			eventually(t, "jobs run meanwhile", func() bool { return rs.of(last.ID) == 1 })
			told.add(1)
		}}, handle(once, func(ctx context.Context, f jobs.Fields) error {
			if rs.add(ctx); f["ends"] == "well" {
				return nil
			}
			return errMail
		}))
		q.enqueue(many(20)...)
		q.awaitDead(20)
		q.enqueue(last)
		eventually(t, "OnDead is told of all", func() bool { return told.value() == 20 })
	})
}

func TestOnDeadIsToldOfEachDeadLetter(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		told := make(chan jobs.DeadLetter, 10)
		var log journal
		q.addDelayed(1, "rubbish")
		q.start(jobs.Config{Logger: log.logger(t), OnDead: func(ctx context.Context, d jobs.DeadLetter) {
			if told <- d; d.Kind == "render_tickets" {
				panic("the pager is off")
			}
		}}, handle(render, func(context.Context, ticket) error { return jobs.Permanent(errSeat) }))
		job := render.Job(ticket{4471, "14-C"})
		job.Trace = "4bf92f35"
		q.enqueue(job)
		for range 2 {
			d := receive(t, told)
			stored, err := q.DeadLetters().Get(t.Context(), d.Entry)
			must(t, err)
			if d.Kind == "" {
				if d.Raw != "rubbish" || d.Reason != jobs.ReasonUndecodable {
					t.Errorf("%+v", d)
				}
				continue
			}
			if d.ID != job.ID || d.Trace != job.Trace || d.Attempts != 1 || d.Error != stored.Error || d.Traceback != stored.Traceback || !maps.Equal(d.Fields, stored.Fields) {
				t.Errorf("told %+v, stored %+v", d, stored)
			}
		}
		q.enqueue(render.Job(ticket{1, "x"}))
		receive(t, told)
		eventually(t, "the panics are logged", func() bool { return len(log.lines(t, "OnDead panicked")) == 2 })
	})
}

// What ends the goroutine that it is told on, as t.FailNow does, is told of the next one too.
func TestAnOnDeadThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		const letters = 3
		var told counter
		var log journal
		w := q.hire(jobs.Config{Logger: log.logger(t), OnDead: func(context.Context, jobs.DeadLetter) {
			told.add(1)
			runtime.Goexit()
		}}, handle(once, func(context.Context, jobs.Fields) error { return errMail }))
		q.enqueue(many(letters)...)
		time.Sleep(time.Second)
		began := time.Now()
		must(t, w.stop())
		if took := time.Since(began); told.value() != letters || took > time.Second {
			t.Errorf("told of %d; Run returned after %s", told.value(), took)
		}
		if lines := log.lines(t, "OnDead panicked"); len(lines) != letters || !strings.Contains(lines[0]["err"].(string), "Goexit") {
			t.Errorf("logged: %v", lines)
		}
		if lines := log.lines(t, "not waited for"); len(lines) != 0 {
			t.Errorf("logged: %v", lines)
		}
	})
}
