// Command quickstart shows the life of background jobs in a quarter of a minute and tells it as a story. It needs no
// server: without -redis it brings a Redis of its own. boxoffice.go is an application with its kinds and handlers; this
// file runs a worker for it, plays its users and tells what happens.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

func main() {
	url := flag.String("redis", "", "`URL` of a real Redis, such as redis://localhost:6379/0")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *url); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url string) error {
	embedded, err := servers.StartMiniredis()
	if err != nil {
		return err
	}
	defer embedded.Close()
	o, err := redis.ParseURL(cmp.Or(url, "redis://"+embedded.Addr()))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(o)
	defer rdb.Close()
	prefix := "quickstart:" + rand.Text() + ":" // whatever else is in this Redis is left alone
	defer sweep(rdb, prefix)

	s := newStory(out, jobs.NewClient(rdb, jobs.Options{Prefix: prefix}))
	worker := jobs.NewRunner(s.client, s.config())
	s.box.register(worker)
	working, stop := context.WithTimeout(ctx, time.Minute)
	stopped := make(chan error, 1)
	go func() {
		stopped <- worker.Run(working) // until the context ends and what is running then has ended too
		stop()
	}()
	s.tell(working)
	stop()
	if err := cmp.Or(<-stopped, s.err); err != nil {
		return fmt.Errorf("%w; the worker's log:\n%s", err, &s.log)
	}
	return s.sum(ctx)
}

// sweep removes the keys of this run.
func sweep(rdb *redis.Client, prefix string) {
	ctx := context.Background()
	for keys := rdb.Scan(ctx, 0, prefix+"*", 1000).Iterator(); keys.Next(ctx); {
		rdb.Del(ctx, keys.Val())
	}
}

// A story is told by one goroutine. The worker sends it what to tell next.
type story struct {
	out    io.Writer
	client *jobs.Client
	box    *boxOffice
	began  time.Time
	next   chan func()
	err    error        // the first; nothing happens after it
	log    bytes.Buffer // the worker's, for when something is wrong

	enqueued, ticks int
	done, dead      map[string]bool // by the job's ID
}

func newStory(out io.Writer, client *jobs.Client) *story {
	return &story{
		out: out, client: client, box: newBoxOffice(), began: time.Now(),
		next: make(chan func(), 100), done: map[string]bool{}, dead: map[string]bool{},
	}
}

func (s *story) config() jobs.Config {
	return jobs.Config{
		Middleware: []jobs.Middleware{s.watch},
		OnDead:     func(_ context.Context, d jobs.DeadLetter) { s.next <- func() { s.died(d) } },
		Logger:     slog.New(slog.NewTextHandler(&s.log, nil)),
	}
}

// watch is middleware: it stands between the worker and every handler.
func (s *story) watch(handler jobs.Handler) jobs.Handler {
	return func(ctx context.Context, job jobs.Job) error {
		err := handler(ctx, job)
		s.next <- func() { s.ran(job, err) }
		return err
	}
}

func (s *story) tell(ctx context.Context) {
	s.say("A box office and its worker. On the left are the seconds since the start.\n")

	s.say("\n1. Three orders are paid. Each puts a job on the queue, and the worker renders the tickets.\n")
	s.enqueue(ctx, renderTickets.Job(order{4468}), renderTickets.Job(order{4469}), renderTickets.Job(order{4470}))
	s.until(ctx, func() bool { return len(s.done)-s.ticks >= 3 })

	s.say("\n2. Tickets go out by mail. The provider is busy, so the job is tried again a while later.\n")
	tickets := sendTickets.Job(letter{4468, "ada@example.org"})
	s.enqueue(ctx, tickets)
	s.until(ctx, func() bool { return s.done[tickets.ID] })

	s.say("\n3. Every 2 seconds a schedule puts a job on the queue that frees the seats nobody paid for.\n")
	before := s.ticks
	s.until(ctx, func() bool { return s.ticks >= before+2 })

	s.say("\n4. A reminder for order 4469 is due tomorrow, one for 4468 in 3 seconds. Till then they keep no worker busy.\n")
	reminder := sendReminder.Job(letter{4468, "ada@example.org"}).In(3 * time.Second)
	s.enqueue(ctx, sendReminder.Job(letter{4469, "bob@example.org"}).In(24*time.Hour), reminder)
	s.until(ctx, func() bool { return s.done[reminder.ID] })

	s.say("\n5. A seat has the label 14-C. Rendering is tried again once, then the job waits for a human.\n")
	render := renderTickets.Job(order{4471})
	s.enqueue(ctx, render)
	s.until(ctx, func() bool { return s.dead[render.ID] })

	s.say("\n6. The organizer corrects the label to 14C. All dead letters of the kind are replayed.\n")
	s.box.relabel(4471, "14C")
	s.replay(ctx, renderTickets.Name())
	s.until(ctx, func() bool { return s.done[render.ID] })
}

func (s *story) enqueue(ctx context.Context, batch ...jobs.Job) {
	if s.err == nil {
		s.err = s.client.Enqueue(ctx, batch...)
	}
	if s.err != nil {
		return
	}
	s.enqueued += len(batch)
	for _, job := range batch {
		s.note("%s: enqueued", subject(job))
	}
}

func (s *story) replay(ctx context.Context, kind string) {
	if s.err != nil {
		return
	}
	n := 0
	n, s.err = s.client.DeadLetters().ReplayAll(ctx, jobs.Filter{Kind: kind}, jobs.ReplayOptions{})
	s.note("%s: %d dead letter replayed", kind, n)
}

// until tells what happens until it is enough, and for at least two seconds.
func (s *story) until(ctx context.Context, enough func() bool) {
	for began := time.Now(); s.err == nil && (!enough() || time.Since(began) < 2*time.Second); {
		select {
		case tell := <-s.next:
			tell()
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			s.err = ctx.Err()
		}
	}
}

func (s *story) ran(job jobs.Job, err error) {
	if err != nil {
		s.note("%s: attempt %d failed: %v", subject(job), job.Attempts+1, err)
		return
	}
	s.note("%s: done", subject(job))
	if !job.Tick.IsZero() && !s.done[job.ID] {
		s.ticks++
	}
	s.done[job.ID] = true
}

func (s *story) died(d jobs.DeadLetter) {
	s.dead[d.ID] = true
	s.note("%s: dead-lettered", subject(d.Job))
	line := func(name string, value any) { s.say("            %-10s %v\n", name, value) }
	line("entry", d.Entry)
	line("kind", d.Kind)
	line("job_id", d.ID)
	for _, name := range slices.Sorted(maps.Keys(d.Fields)) {
		line(name, d.Fields[name])
	}
	line("attempts", d.Attempts)
	line("error", d.Error)
	line("traceback", strings.ReplaceAll(strings.TrimSpace(d.Traceback), "\n", "\n"+strings.Repeat(" ", 23)))
}

// sum is called when the worker has stopped: whatever went in must be somewhere.
func (s *story) sum(ctx context.Context) error {
	for len(s.next) > 0 {
		(<-s.next)()
	}
	stats, err := s.client.Stats(ctx)
	if err != nil {
		return err
	}
	in, out := s.enqueued+s.ticks, len(s.done)+int(stats.Dead+stats.Delayed)
	s.say("\nThe worker has stopped. We enqueued %d jobs, the schedule %d:\n", s.enqueued, s.ticks)
	s.say("%d enqueued = %d done + %d dead + %d still delayed\n", in, len(s.done), stats.Dead, stats.Delayed)
	if in != out {
		return fmt.Errorf("the counts do not add up: %d enqueued, but %d done, dead or delayed (%+v)", in, out, stats)
	}
	return nil
}

func subject(job jobs.Job) string {
	if !job.Tick.IsZero() {
		return job.Kind + " of " + job.Tick.Format("15:04:05")
	}
	return job.Kind + " of order " + job.Fields["order_id"]
}

// note says what happened, and how many seconds after the start.
func (s *story) note(format string, args ...any) {
	s.say("   %4.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func (s *story) say(format string, args ...any) {
	if s.err == nil {
		fmt.Fprintf(s.out, format, args...)
	}
}
