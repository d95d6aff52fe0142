package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDueLater(t *testing.T) {
	s := newSite(t)
	day := 24 * time.Hour
	before := float64(time.Now().Add(day).Unix())
	s.do("enqueue", "ok", "-in", "24h", "-id", "tomorrow")
	s.do("enqueue", "-at", "2100-01-01T12:00:00.25+01:00", "ok", "-n=3")
	got, err := s.rdb.ZRangeWithScores(t.Context(), "delayed", 0, -1).Result()
	if err != nil || len(got) != 4 {
		t.Fatalf("%d are delayed: %v", len(got), err)
	}
	if late := got[0].Score - before; late < 0 || late > 60 || !strings.Contains(got[0].Member.(string), `"tomorrow"`) {
		t.Errorf("%s is due %f s after 24 hours", got[0].Member, late)
	}
	if want := 4102484400.25; got[1].Score != want || got[3].Score != want {
		t.Errorf("due at %f and %f, not at %f", got[1].Score, got[3].Score, want)
	}
}

func TestOperator(t *testing.T) {
	s := newSite(t, "RETRIES=0")
	s.work()
	ids := []string{s.do("enqueue", "fail")[0], s.do("enqueue", "fail")[0]}
	s.next("ran")
	s.next("ran")
	first, _ := s.dead("0")
	second, _ := s.dead(first)

	s.do("replay", first)
	replayed := s.next("ran")
	third, letter := s.dead(second)
	if letter["job_id"] != replayed.ID || replayed.Attempts != 0 {
		t.Errorf("replayed %+v", replayed)
	}
	if got := s.do("replay-kind", "fail"); !cmp.Equal(got, []string{"2"}) {
		t.Errorf("replay-kind printed %q", got)
	}
	again := []string{s.next("ran").ID, s.next("ran").ID}
	if !cmp.Equal(again, ids) && !cmp.Equal(again, []string{ids[1], ids[0]}) {
		t.Errorf("ran %q, not %q", again, ids)
	}
	fourth, _ := s.dead(third)
	s.dead(fourth)
	s.do("discard", fourth)
	if n := s.rdb.XLen(t.Context(), "jobs:dead").Val(); n != 1 {
		t.Errorf("%d dead letters are left", n)
	}
	if got := s.do("replay-kind", "ok"); !cmp.Equal(got, []string{"0"}) {
		t.Errorf("replay-kind printed %q", got)
	}
}

// What does not work says so in one line on standard error, and exits 1.
func TestRefusals(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		name, says string
		env, args  []string
	}{
		{"no Redis told", "REDIS_URL is not set", []string{"REDIS_URL="}, nil},
		{"no URL", "REDIS_URL: ", []string{"REDIS_URL=localhost"}, nil},
		{"no record URL", "RECORD_URL: ", []string{"RECORD_URL=localhost"}, nil},
		{"no Redis there", "refused", []string{"REDIS_URL=redis://127.0.0.1:1"}, []string{"enqueue", "ok"}},
		{"slots", "SLOTS: ", []string{"SLOTS=many"}, nil},
		{"negative slots", "-1", []string{"SLOTS=-1"}, nil},
		{"lease", "LEASE: ", []string{"LEASE=12"}, nil},
		{"short lease", "Lease", []string{"LEASE=1ms"}, nil},
		{"grace", "GRACE: ", []string{"GRACE=short"}, nil},
		{"timeout", "TIMEOUT: ", []string{"TIMEOUT=short"}, nil},
		{"kinds", `KINDS: no kind "bad"`, []string{"KINDS=ok,bad"}, nil},
		{"retries", "RETRIES: ", []string{"RETRIES=one"}, nil},
		{"negative retries", "Retries", []string{"RETRIES=-1"}, nil},
		{"base", "BASE: ", []string{"BASE=1"}, nil},
		{"cap", "CAP: ", []string{"CAP=1"}, nil},
		{"negative cap", "FullJitter", []string{"CAP=-1s"}, nil},
		{"periodic", "PERIODIC: ", []string{"PERIODIC=every minute"}, nil},
		{"cron", "PERIODIC: ", []string{"PERIODIC=p=61 * * * *"}, nil},
		{"periodic twice", "twice", []string{"PERIODIC=p=* * * * *;p=0 * * * *"}, nil},
		{"verb", "usage: ", nil, []string{"purge", "x"}},
		{"no kind", "usage: ", nil, []string{"enqueue"}},
		{"flag", "-now", nil, []string{"enqueue", "ok", "-now"}},
		{"reserved", `"attempts"`, nil, []string{"enqueue", "ok", "attempts=3"}},
		{"kind name", "name", nil, []string{"enqueue", "two words"}},
		{"no field", `"x" is not field=value`, nil, []string{"enqueue", "ok", "x"}},
		{"one ID for two", "-n 2", nil, []string{"enqueue", "ok", "-n", "2", "-id", "x"}},
		{"none", "-n 0", nil, []string{"enqueue", "ok", "-n", "0"}},
		{"due twice", "once", nil, []string{"enqueue", "ok", "-in", "1s", "-at", "2100-01-01T00:00:00Z"}},
		{"bad time", "-at", nil, []string{"enqueue", "ok", "-at", "tomorrow"}},
		{"bad duration", "-in", nil, []string{"enqueue", "ok", "-in", "tomorrow"}},
		{"replay what", "usage: ", nil, []string{"replay"}},
		{"every kind", "usage: ", nil, []string{"replay-kind", ""}},
		{"replay nothing", "not found", nil, []string{"replay", "1-1"}},
		{"replay rubbish", "jobs: ", nil, []string{"replay", "rubbish"}},
		{"discard nothing", "not found", nil, []string{"discard", "1-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			out, stderr, code := outcome(command(ctx, append(s.env[:1:1], c.env...), c.args...))
			line, rest, ended := strings.Cut(stderr, "\n")
			if code != 1 || out != "" || !ended || rest != "" || !strings.Contains(line, c.says) {
				t.Errorf("exit %d, printed %q, said %q; want exit 1 and one line with %q", code, out, stderr, c.says)
			}
		})
	}
	t.Cleanup(func() {
		if n := s.rdb.DBSize(context.Background()).Val(); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
}
