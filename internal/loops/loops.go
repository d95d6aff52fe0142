// Package loops has what the loops of a worker share: a step done again and again, a way of
// waiting out trouble, a sign of life, and the worker's contact with Redis.
package loops

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Standstill is how long a step may take before its loop is said to stand still.
const Standstill = time.Minute

// A Loop is one goroutine's view of its own going round. Only Stands may be called by
// others.
type Loop struct {
	Trouble func(error) // is told of each error; nil: nobody

	name   string
	log    *slog.Logger
	times  int       // it went wrong in a row
	spoken time.Time // when it last said so
	due    atomic.Int64
}

// New returns a loop that has not begun.
func New(name string, log *slog.Logger) *Loop { return &Loop{name: name, log: log} }

// Every calls step again and again until ctx ends, each time after the wait it asked for,
// or after a while where it failed.
func (l *Loop) Every(ctx context.Context, step func(context.Context) (time.Duration, error)) {
	for ctx.Err() == nil {
		l.Beat()
		wait, err := step(ctx)
		switch {
		case err == nil:
			l.Over()
		case ctx.Err() == nil:
			wait = l.Met(err)
		}
		l.rest(wait)
		Sleep(ctx, wait)
	}
	l.Rest()
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Met tells of an error, at once and then once a minute, and for how long to wait: longer
// and longer with jitter, up to a second.
func (l *Loop) Met(err error) time.Duration {
	if l.times == 0 || time.Since(l.spoken) > time.Minute {
		l.log.Warn("jobs: trouble with Redis, trying again", "loop", l.name, "err", err)
		l.spoken = time.Now()
	}
	ceiling := min(time.Second, 50*time.Millisecond<<min(l.times, 5))
	l.times++
	if l.Trouble != nil {
		l.Trouble(err)
	}
	return ceiling/2 + rand.N(ceiling/2)
}

// Over tells that it works again, where it did not.
func (l *Loop) Over() {
	if l.times > 0 {
		l.log.Info("jobs: working again", "loop", l.name, "failures", l.times)
		l.times = 0
	}
}

var epoch = time.Now() // of the monotonic clock

// Beat says that a step begins.
func (l *Loop) Beat() { l.rest(0) }

// Rest says that nothing is to be done, for any time.
func (l *Loop) Rest() { l.due.Store(0) }

func (l *Loop) rest(d time.Duration) { l.due.Store(int64(time.Since(epoch) + d + Standstill)) }

// Stands says that a step has begun, and gone on for longer than Standstill.
func (l *Loop) Stands() bool {
	due := l.due.Load()
	return due != 0 && int64(time.Since(epoch)) > due
}

// Name returns the loop's name.
func (l *Loop) Name() string { return l.name }

// Contact is for how long a worker has heard of Redis without a gap. After an outage or a
// pause of this process every lease in the fleet may look out of date, and none needs to be.
type Contact struct {
	mu          sync.Mutex
	since, last time.Time
}

// Heard notes an answer of Redis. A gap longer than most begins a new contact.
func (c *Contact) Heard(most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.last.IsZero() || now.Sub(c.last) > most {
		c.since = now
	}
	c.last = now
}

// Length is how long the contact has lasted without a gap longer than most; 0 where there
// is none.
func (c *Contact) Length(most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !c.last.IsZero() && now.Sub(c.last) <= most {
		return now.Sub(c.since)
	}
	return 0
}
