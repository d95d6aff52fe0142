package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// measure is something that a peer is taken through.
type measure struct {
	name  string
	about string
	setup setup
	keeps bool // what is on the server
	apart bool // not taken unless asked for
	take  func(context.Context, *sample) (figures, error)
}

// Everyday policy: five retries, which nothing needs but what is about failing.
var everyday = setup{slots: 8, retries: 5}

var measures = []measure{
	{name: "drain8", about: "a backlog is worked off on 8 slots", setup: everyday, take: drain},
	{name: "drain64", about: "a backlog is worked off on 64 slots", setup: setup{slots: 64, retries: 5}, take: drain},
	{name: "enqueue", about: "one goroutine enqueues job after job", setup: everyday, take: enqueueOne},
	{name: "bulk", about: "one goroutine enqueues 1,000 jobs a call", setup: everyday, take: enqueueBulk},
	{name: "pickup", about: "one job at a time is put into an idle queue", setup: everyday, take: pickup},
	{name: "memory", about: "bytes of the server a job takes that waits", setup: everyday, take: memoryQueued},
	{name: "delayed", about: "bytes of the server a job takes that is not due", setup: everyday, take: memoryDelayed},
	{name: "due", about: "jobs due at the same moment, 64 slots", setup: setup{slots: 64, retries: 5, delays: true}, take: dueAtOnce},
	{name: "failonce", about: "jobs that fail once and then succeed, 64 slots", setup: setup{slots: 64, retries: 1, delays: true, fails: true}, take: failOnce},
	{name: "dead", about: "jobs that fail and are not to be retried, 64 slots", setup: setup{slots: 64, fails: true}, take: deadLetter},
	{name: "kill", about: "SIGKILL of a worker with 8 jobs in flight", setup: everyday, take: kill},
	{name: "transact1", about: "a job a transaction of PostgreSQL, from eight goroutines, worked off meanwhile on 64 slots", setup: setup{slots: 64, retries: 5}, take: transactions(1)},
	{name: "transact100", about: "the same, 100 jobs a transaction", setup: setup{slots: 64, retries: 5}, take: transactions(100)},
	{name: "commit", about: "one job at a time is committed while nothing else is to be done", setup: everyday, take: committed},
	{name: "hold", setup: everyday, keeps: true, apart: true, take: hold},
	{name: "growth", setup: setup{slots: 64, retries: 5}, apart: true, take: grown},
	{name: "growth8", setup: everyday, apart: true, take: grown},
	{name: "growth50", setup: everyday, apart: true, take: grown},
	{name: "idle", setup: everyday, apart: true, take: idle},
}

func measureOf(name string) (measure, bool) {
	i := slices.IndexFunc(measures, func(m measure) bool { return m.name == name })
	if i < 0 {
		return measure{}, false
	}
	return measures[i], true
}

// tally is the no-op handler: it counts, and knows when the first and when the last has been there.
type tally struct {
	want  int64
	n     atomic.Int64
	first atomic.Int64 // ns since the epoch
	last  time.Time    // to be read once all is closed
	all   chan struct{}
}

func newTally(want int) *tally { return &tally{want: int64(want), all: make(chan struct{})} }

func (t *tally) handle(int) error {
	t.begin()
	if t.n.Add(1) == t.want {
		t.last = time.Now()
		close(t.all)
	}
	return nil
}

func (t *tally) begin() {
	if t.first.Load() == 0 {
		t.first.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// took is from the first handler's start to end.
func (t *tally) took(end time.Time) time.Duration { return end.Sub(time.Unix(0, t.first.Load())) }

func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rate is jobs a second until end, the first not counted: with it the clock began.
func (t *tally) rate(end time.Time) float64 { return float64(t.want-1) / t.took(end).Seconds() }

func drain(ctx context.Context, s *sample) (figures, error) {
	if err := s.fill(ctx, time.Time{}, s.Sizes.Jobs); err != nil {
		return nil, err
	}
	runtime.GC() // what filling has left is not the worker's
	before, err := read(ctx, s.server, s.setup.trips)
	if err != nil {
		return nil, err
	}
	done := newTally(s.Sizes.Jobs)
	var used usage
	err = s.working(ctx, done.handle, func(ctx context.Context) error {
		if err := done.wait(ctx); err != nil {
			return err
		}
		if err := s.settled(ctx); err != nil {
			return err
		}
		after, err := read(ctx, s.server, s.setup.trips)
		used = after.since(before)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := used.perJob(s.Measure, float64(s.Sizes.Jobs), s.entry.postgres)
	f[s.Measure+".rate"] = done.rate(done.last)
	return f, nil
}

// perJob is what a job has cost. Queries of PostgreSQL are no commands of Redis.
func (u usage) perJob(name string, jobs float64, postgres bool) figures {
	f := figures{
		name + ".trips":      float64(u.trips) / jobs,
		name + ".worker_cpu": u.worker.Seconds() / jobs * 1000,
		name + ".server_cpu": u.server.Seconds() / jobs * 1000,
	}
	if !postgres {
		f[name+".commands"] = float64(u.commands) / jobs
	}
	return f
}

func enqueueOne(ctx context.Context, s *sample) (figures, error) {
	rate, err := s.enqueue(ctx, 1)
	return figures{"enqueue.rate": rate}, err
}

func enqueueBulk(ctx context.Context, s *sample) (figures, error) {
	rate, err := s.enqueue(ctx, 1000)
	return figures{"bulk.rate": rate}, err
}

// enqueue enqueues so many jobs a call for as long as there is patience, after a first call that opens the connection.
func (s *sample) enqueue(ctx context.Context, batch int) (rate float64, err error) {
	if err := s.peer.enqueue(ctx, time.Time{}, newOrders(0, batch)...); err != nil {
		return 0, err
	}
	n, start := 0, time.Now()
	for time.Since(start) < s.Sizes.Patience {
		if err := s.peer.enqueue(ctx, time.Time{}, newOrders(n, batch)...); err != nil {
			return 0, err
		}
		n += batch
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// pickup is how long after it is enqueued a job starts on an idle queue.
func pickup(ctx context.Context, s *sample) (figures, error) {
	return s.oneByOne(ctx, "pickup", func(ctx context.Context, i int) (time.Time, error) {
		before := time.Now()
		return before, s.peer.enqueue(ctx, time.Time{}, newOrder(i))
	})
}

// oneByOne has the worker start jobs that come singly, each from when enqueue says, and waits between two of them for 5 to
// 15 ms, so that the queue is idle again.
func (s *sample) oneByOne(ctx context.Context, name string, enqueue func(ctx context.Context, i int) (time.Time, error)) (figures, error) {
	started := make(chan time.Time, 1)
	handle := func(int) error { started <- time.Now(); return nil }
	var waits []time.Duration
	err := s.working(ctx, handle, func(ctx context.Context) error {
		last := time.Now().Add(2 * s.Sizes.Patience)
		for i := 0; i < s.Sizes.Pickups && (i < 5 || time.Now().Before(last)); i++ {
			time.Sleep(time.Duration(5+10*rand.Float64()) * time.Millisecond)
			before, err := enqueue(ctx, i)
			if err != nil {
				return err
			}
			select {
			case at := <-started:
				waits = append(waits, at.Sub(before))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	waits = waits[min(len(waits)-1, 3):] // the worker has been starting
	slices.Sort(waits)
	return figures{name + ".p50": quantile(waits, 50), name + ".p99": quantile(waits, 99)}, nil
}

// quantile is the nearest rank, in milliseconds.
func quantile(sorted []time.Duration, percent int) float64 {
	rank := (len(sorted)*percent + 99) / 100
	return milliseconds(sorted[max(rank, 1)-1])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func memoryQueued(ctx context.Context, s *sample) (figures, error) {
	bytes, err := s.takes(ctx, time.Time{})
	return figures{"memory.bytes": bytes}, err
}

func memoryDelayed(ctx context.Context, s *sample) (figures, error) {
	bytes, err := s.takes(ctx, time.Now().Add(24*time.Hour))
	return figures{"delayed.bytes": bytes}, err
}

// takes fills an empty server and weighs it: before the peer has a connection, and once its connections, which have
// buffers, are gone again.
func (s *sample) takes(ctx context.Context, due time.Time) (float64, error) {
	before, err := s.weigh(ctx)
	if err != nil {
		return 0, err
	}
	if s.peer, err = s.entry.open(ctx, s.setup); err != nil {
		return 0, err
	}
	if err := s.fill(ctx, due, s.Sizes.Jobs); err != nil {
		return 0, err
	}
	after, err := s.weigh(ctx)
	if err != nil {
		return 0, err
	}
	return float64(after-before) / float64(s.Sizes.Jobs), nil
}

func (s *sample) weigh(ctx context.Context) (int64, error) {
	if err := s.peer.close(); err != nil {
		return 0, err
	}
	time.Sleep(200 * time.Millisecond) // the server notices
	return s.server.memory(ctx)
}

// dueAtOnce enqueues jobs for one moment while a worker waits, and tells how late the last one has started.
func dueAtOnce(ctx context.Context, s *sample) (figures, error) {
	n := s.Sizes.Due
	done := newTally(n)
	var due time.Time
	err := s.working(ctx, done.handle, func(ctx context.Context) error {
		lead := 2*time.Second + time.Duration(n)*time.Second/8000
		due = time.Now().Add(lead).Truncate(time.Millisecond)
		if err := s.fill(ctx, due, n); err != nil {
			return err
		}
		if time.Now().After(due) {
			return fmt.Errorf("enqueueing %d jobs took longer than %s", n, lead)
		}
		return done.wait(ctx)
	})
	return figures{"due.late": milliseconds(done.last.Sub(due))}, err
}

// failOnce is from the first run's start to the last success.
func failOnce(ctx context.Context, s *sample) (figures, error) {
	n := s.Sizes.Failing
	if err := s.fill(ctx, time.Time{}, n); err != nil {
		return nil, err
	}
	done, seen := newTally(n), make([]atomic.Bool, n)
	handle := func(i int) error {
		done.begin()
		if seen[i].CompareAndSwap(false, true) {
			return errFailed
		}
		return done.handle(i)
	}
	err := s.working(ctx, handle, done.wait)
	return figures{"failonce.seconds": done.took(done.last).Seconds()}, err
}

// deadLetter is from the first handler's start until nothing is left to settle, to within the 5 ms of the polls.
func deadLetter(ctx context.Context, s *sample) (figures, error) {
	n := max(2, s.Sizes.Jobs/3)
	if err := s.fill(ctx, time.Time{}, n); err != nil {
		return nil, err
	}
	done := newTally(n)
	handle := func(i int) error {
		_ = done.handle(i)
		return errFailed
	}
	var end time.Time
	err := s.working(ctx, handle, func(ctx context.Context) error {
		if err := done.wait(ctx); err != nil {
			return err
		}
		err := s.settled(ctx)
		end = time.Now()
		return err
	})
	return figures{"dead.rate": done.rate(end)}, err
}
