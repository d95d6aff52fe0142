package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/servers"
)

func TestDemo(t *testing.T) {
	t.Setenv("DATABASE_URL", servers.NewPostgres(t))
	redis := servers.NewMiniredis(t)
	t.Setenv("REDIS_URL", "redis://"+redis.Addr())
	for range 2 { // a second demo finds what the first left, and what an interrupted one would have
		if _, err := redis.XAdd("stagedoor_demo:jobs:dead", "*", []string{"kind", "render_tickets"}); err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		if err := tellStory(t.Context(), &told); err != nil {
			t.Fatalf("%v, after:\n%s", err, told.String())
		}
		for _, line := range []string{
			"order 4471",
			`"SeatLabelInvalid: '14-C' is not a row letter and a seat number"`,
			"4 enqueued = 3 done + 0 dead + 1 delayed",
		} {
			if !strings.Contains(told.String(), line) {
				t.Errorf("the story lacks %s:\n%s", line, told.String())
			}
		}
		audit, err := redis.Stream("stagedoor_demo:jobs:audit")
		if err != nil || len(audit) != 1 || !strings.Contains(strings.Join(audit[0].Values, " "), "who demo") {
			t.Errorf("the audit trail: %v, %v", audit, err)
		}
	}
}

// The worker of a new shop sells one order, whose render ends in jobs:dead; interrupted, it drains and ends well.
func TestWork(t *testing.T) {
	t.Setenv("DATABASE_URL", servers.NewPostgres(t))
	t.Setenv("REDIS_URL", "redis://"+servers.NewMiniredis(t).Addr())
	ctx, interrupt := context.WithCancel(t.Context())
	log := &watchedLog{want: "dead-lettered", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, log) }()
	select {
	case <-log.seen:
	case err := <-ended:
		t.Fatalf("it ended early: %v\n%s", err, log)
	case <-time.After(time.Minute):
		t.Fatalf("no render was dead-lettered:\n%s", log)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

func TestWorkWithoutADatabase(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/shop")
	t.Setenv("REDIS_URL", "redis://"+servers.NewMiniredis(t).Addr())
	err := work(t.Context(), t.Output())
	if err == nil || !strings.HasPrefix(err.Error(), "DATABASE_URL: ") {
		t.Errorf("work: %v", err)
	}
}

// watchedLog closes seen once a text was written.
type watchedLog struct {
	mu   sync.Mutex
	all  bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

func (l *watchedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	if strings.Contains(l.all.String(), l.want) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(b), nil
}

func (l *watchedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
