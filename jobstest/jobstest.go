// Package jobstest is for the tests of an application that uses package jobs: a queue on an
// embedded miniredis, with the scripts, the codec, the wrapper and the decisions of the real
// one, in milliseconds.
//
// New gives a queue whose clock only the test moves: nothing runs until Drain or Advance is
// called, a handler may use real servers meanwhile, and two days of Advance cost milliseconds.
// Bubble runs a whole worker inside a testing/synctest bubble, where time.Sleep is how time
// passes; no real network goes in there, and an hour costs seconds: it is for seconds and
// minutes, New for days. Run takes one job through one attempt.
package jobstest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/pipe"
	"github.com/stagedoor/jobs/internal/steps"
)

// A Queue is a queue of its own with one worker. Its methods end the test when something
// fails that is not the handler's.
type Queue struct {
	t      testing.TB
	redis  *miniredis.Miniredis
	client *jobs.Client
	runner *jobs.Runner
	bubble bool
	events chan struct{} // in a bubble: something has happened to a job
	left   chan struct{} // in a bubble: closed when Run has returned
	driver driver        // not in a bubble
	begun  bool
	now    time.Time

	mu    sync.Mutex
	ended []ended
}

// driver is what package jobs lets this package do.
type driver interface {
	Begin(context.Context) error
	Tick(context.Context) error
	NextTick() time.Time
	Promote(context.Context) error
	Drain(context.Context) error
	Ready(context.Context) ([]jobs.Job, error)
	Dead(context.Context)
}

// ended is an attempt that has ended.
type ended struct {
	job jobs.Job
	err error
}

// New returns a queue whose clock starts at the present second and stands still until
// Advance moves it. It runs one job at a time, in order, unless cfg.Slots says otherwise;
// a Logger that cfg does not name is the test's own output.
func New(t testing.TB, cfg jobs.Config) *Queue {
	t.Helper()
	q := build(t, cfg)
	q.now = time.Now().UTC().Truncate(time.Second)
	q.redis.SetTime(q.now)
	return q
}

func build(t testing.TB, cfg jobs.Config) *Queue {
	q := &Queue{t: t, redis: miniredis.NewMiniRedis()}
	q.redis.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1", // never dialled: no name is to be resolved
		Dialer: func(context.Context, string, string) (net.Conn, error) { return dial(q.redis) },
	})
	t.Cleanup(func() {
		_ = rdb.Close()
		q.redis.Close()
	})
	if cfg.Slots == 0 {
		cfg.Slots = 1
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(output{t}, nil))
	}
	cfg.Middleware = append([]jobs.Middleware{q.record}, cfg.Middleware...)
	q.client = jobs.NewClient(rdb, jobs.Options{})
	q.runner = jobs.NewRunner(q.client, cfg)
	q.driver = steps.Of(q.runner).(driver)
	return q
}

// dial leads to m without a network.
func dial(m *miniredis.Miniredis) (net.Conn, error) {
	c, err := m.Dial()
	if err != nil {
		return nil, err
	}
	return pipe.Buffered(c), nil
}

// output is a test's log as a writer.
type output struct{ t testing.TB }

func (o output) Write(b []byte) (int, error) {
	o.t.Logf("%s", b)
	return len(b), nil
}

// record notes how attempts end.
func (q *Queue) record(next jobs.Handler) jobs.Handler {
	return func(ctx context.Context, job jobs.Job) error {
		err := next(ctx, job)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ended = append(q.ended, ended{job, err})
		return err
	}
}

// Client enqueues, and looks after what waits or is dead.
func (q *Queue) Client() *jobs.Client { return q.client }

// Runner is what kinds and schedules are registered with, before anything runs.
func (q *Queue) Runner() *jobs.Runner { return q.runner }

// Now is the queue's clock.
func (q *Queue) Now() time.Time {
	if q.bubble {
		return time.Now()
	}
	return q.now
}

// Enqueue adds jobs.
func (q *Queue) Enqueue(js ...jobs.Job) {
	q.t.Helper()
	q.check(q.client.Enqueue(context.Background(), js...))
}

func (q *Queue) check(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatalf("jobstest: %v", err)
	}
}

// begin is the worker's first look at its schedules.
func (q *Queue) begin() {
	q.t.Helper()
	if !q.begun {
		q.begun = true
		q.check(q.driver.Begin(context.Background()))
		q.check(q.driver.Tick(context.Background()))
	}
}

// Drain runs what is ready, and what that makes ready, until nothing is. Time stands still:
// what is delayed stays where it is, and what a job meanwhile enqueues for a time that is past
// waits for the next Drain or Advance.
func (q *Queue) Drain() {
	q.t.Helper()
	if q.bubble {
		q.drainBubble()
		return
	}
	q.begin()
	q.drain()
}

func (q *Queue) drain() {
	q.t.Helper()
	ctx := context.Background()
	q.check(q.driver.Promote(ctx))
	q.check(q.driver.Drain(ctx))
	q.driver.Dead(ctx)
}

// drainBubble looks after each event, which is exact, and ever more rarely without one: what
// is done by others than the worker, or what it does not tell.
func (q *Queue) drainBubble() {
	q.t.Helper()
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		synctest.Wait()
		st, err := q.client.Stats(context.Background())
		q.check(err)
		if st.Ready+st.Running == 0 {
			return
		}
		select {
		case <-q.events:
		case <-time.After(wait):
		case <-q.left:
			q.t.Fatalf("jobstest: the worker has left, and %d jobs are not done", st.Ready+st.Running)
		}
	}
}

// Advance moves the clock by d, and stops wherever a tick or a delayed job is due to run
// what it makes ready: retries and their retries too. What takes no time on the queue's
// clock, a handler, may take as long as it likes on the real one.
func (q *Queue) Advance(d time.Duration) {
	q.t.Helper()
	if q.bubble {
		time.Sleep(d)
		q.drainBubble()
		return
	}
	q.begin()
	q.drain()
	end := q.now.Add(d)
	for {
		next, ok := q.next()
		if !ok || next.After(end) {
			break
		}
		if next.After(q.now) {
			q.set(next)
		}
		q.check(q.driver.Tick(context.Background()))
		q.drain()
	}
	q.set(end)
}

func (q *Queue) set(now time.Time) {
	q.now = now
	q.redis.SetTime(now)
}

// next is the next instant at which something is due.
func (q *Queue) next() (time.Time, bool) {
	next := q.driver.NextTick()
	for job, err := range q.client.Delayed().List(context.Background()) {
		q.check(err)
		if next.IsZero() || job.Due.Before(next) {
			next = job.Due
		}
		break
	}
	return next, !next.IsZero()
}

// Ready returns the jobs that are ready, in their order.
func (q *Queue) Ready() []jobs.Job {
	q.t.Helper()
	ready, err := q.driver.Ready(context.Background())
	q.check(err)
	return ready
}

// Delayed returns the jobs that are not due yet, the earliest first.
func (q *Queue) Delayed() []jobs.DelayedJob {
	q.t.Helper()
	var all []jobs.DelayedJob
	for job, err := range q.client.Delayed().List(context.Background()) {
		q.check(err)
		all = append(all, job)
	}
	return all
}

// Dead returns the dead letters, oldest first.
func (q *Queue) Dead() []jobs.DeadLetter {
	q.t.Helper()
	var all []jobs.DeadLetter
	for letter, err := range q.client.DeadLetters().List(context.Background(), jobs.Filter{}) {
		q.check(err)
		all = append(all, letter)
	}
	return all
}

// Done returns the jobs whose handler has returned nil, in that order.
func (q *Queue) Done() []jobs.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	var done []jobs.Job
	for _, e := range q.ended {
		if e.err == nil {
			done = append(done, e.job)
		}
	}
	return done
}

// Bubble runs f in a testing/synctest bubble with a worker running: time.Sleep and Advance
// pass time for every clock in there. Nobody waits for that time, but the worker lives through
// all of it, and asks its Redis several times a second: an hour costs about two seconds of the
// machine's, two days some minutes. For long times take New, whose Advance goes from what is
// due to what is due.
//
// What setup registers is what the worker knows; like New's it runs one job at a time unless
// cfg.Slots says otherwise. No real network may be used inside.
func Bubble(t *testing.T, cfg jobs.Config, setup func(q *Queue), f func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		events := make(chan struct{}, 1)
		cfg.Observe = announced(events, cfg.Observe)
		q := build(t, cfg)
		q.bubble, q.events = true, events
		setup(q)
		ctx, stop := context.WithCancel(t.Context())
		q.left = make(chan struct{})
		var err error
		go func() {
			defer close(q.left)
			err = q.runner.Run(ctx)
		}()
		synctest.Wait()
		defer func() {
			stop()
			if <-q.left; err != nil {
				t.Errorf("jobstest: %v", err)
			}
		}()
		f(t, q)
	})
}

// announced is observe, which may be nil, with a token in events for whatever it is told.
func announced(events chan<- struct{}, observe func(jobs.Event)) func(jobs.Event) {
	return func(e jobs.Event) {
		select {
		case events <- struct{}{}:
		default:
		}
		if observe != nil {
			observe(e)
		}
	}
}

// An Outcome is where a job has gone after an attempt.
type Outcome string

const (
	Done    Outcome = "done"
	Retried Outcome = "retried"
	Snoozed Outcome = "snoozed"
	Dead    Outcome = "dead"
)

// An Attempt is what became of a job.
type Attempt struct {
	Outcome   Outcome
	Err       error         // what the handler returned; nil also where it was not entered
	Delay     time.Duration // until the retry, or the end of the snooze
	Error     string        // as it is stored
	Traceback string        // of a dead job
}

// Run takes one job through one attempt: arguments through the codec and back, the handler
// in its wrapper, and the decision of the kind's policy.
func Run[A any](t testing.TB, k jobs.Kind[A], h func(context.Context, A) error, args A) Attempt {
	t.Helper()
	q := New(t, jobs.Config{})
	jobs.Handle(q.runner, k, h)
	q.Enqueue(k.Job(args))
	q.begin()
	q.check(q.driver.Drain(context.Background()))
	return q.attempt()
}

func (q *Queue) attempt() Attempt {
	q.t.Helper()
	a := Attempt{Outcome: Done}
	q.mu.Lock()
	if len(q.ended) > 0 {
		a.Err = q.ended[0].err
	}
	q.mu.Unlock()
	for _, letter := range q.Dead() {
		a.Outcome, a.Error, a.Traceback = Dead, letter.Error, letter.Traceback
	}
	for _, job := range q.Delayed() {
		a.Outcome, a.Error, a.Delay = Retried, job.LastError, job.Due.Sub(q.now)
		if job.Attempts == 0 {
			a.Outcome = Snoozed
		}
	}
	return a
}

// String says it in a line, for a test's message.
func (a Attempt) String() string {
	return fmt.Sprintf("%s after %v: %s", a.Outcome, a.Delay, a.Error)
}

// Kinds returns the kinds of jobs, in their order: what tests mostly compare.
func Kinds(js []jobs.Job) []string {
	kinds := make([]string, len(js))
	for i, j := range js {
		kinds[i] = j.Kind
	}
	return slices.Clip(kinds)
}
