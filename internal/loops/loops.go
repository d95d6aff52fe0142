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

// A Loop is one goroutine's view of its own going round. Only Stands and Wake may be called
// by others.
type Loop struct {
	Trouble func(error) // is told of each error; nil: nobody

	name    string
	with    string // what there may be trouble with
	log     *slog.Logger
	ceiling time.Duration // of the wait after trouble
	leader  *Loop         // nil: none
	times   int           // it went wrong in a row
	spoken  time.Time     // when it last said so
	down    atomic.Bool   // in trouble, for those that follow it
	due     atomic.Int64
	early   chan struct{} // the next step is wanted sooner
}

// New returns a loop that has not begun, and that Redis may be in the way of. After trouble
// it waits for two seconds at most.
func New(name string, log *slog.Logger) *Loop { return With("Redis", name, log) }

// With returns a loop that something else may be in the way of.
func With(what, name string, log *slog.Logger) *Loop {
	return &Loop{name: name, with: what, log: log, ceiling: 2 * time.Second, early: make(chan struct{}, 1)}
}

// Hurry has it wait for no longer than d.
func (l *Loop) Hurry(d time.Duration) { l.ceiling = min(l.ceiling, d) }

// Follow has it, once something went wrong, leave it to another loop to find out when that
// is over.
func (l *Loop) Follow(leader *Loop) { l.leader = leader }

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
		l.wait(ctx, wait)
		l.Await(ctx)
	}
	l.Rest()
}

func (l *Loop) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-l.early:
	case <-t.C:
	}
}

// Wake asks for a step within d: at once, unless a wait ends by then. A step that goes on
// may have looked too early, so that another one follows.
func (l *Loop) Wake(d time.Duration) {
	now, end := int64(time.Since(epoch)), l.due.Load()-int64(Standstill)
	if now < end && end <= now+int64(d) {
		return
	}
	select {
	case l.early <- struct{}{}:
	default:
	}
}

// Await waits while both this loop and the one that it follows are in trouble.
func (l *Loop) Await(ctx context.Context) {
	for l.leader != nil && l.times > 0 && l.leader.down.Load() && ctx.Err() == nil {
		l.Beat()
		Sleep(ctx, 100*time.Millisecond)
	}
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
// and longer with jitter, up to a ceiling.
func (l *Loop) Met(err error) time.Duration {
	if l.times == 0 || time.Since(l.spoken) > time.Minute {
		l.log.Warn("jobs: trouble with "+l.with+", trying again", "loop", l.name, "err", err)
		l.spoken = time.Now()
	}
	ceiling := min(l.ceiling, 200*time.Millisecond<<min(l.times, 4))
	l.times++
	l.down.Store(true)
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
		l.down.Store(false)
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
