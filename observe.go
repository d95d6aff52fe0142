package jobs

// A job in here is told of: as events to the application, and to Redis with each renewal of
// the leases, where people find who works, what runs and how runs have ended. Nothing in
// here moves a job.

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// An EventKind is what an Event is about.
type EventKind int

const (
	// EventDelivered: a job came to this worker. Job, Deliveries (above 1: taken over from a
	// worker that was silent), and of a first delivery Late: for how long it was ready.
	EventDelivered EventKind = iota + 1
	// EventSettled: a run's outcome is written (or was, most likely, when its answer was lost).
	// Job, Outcome, Deliveries, Took (zero where no handler ran), Err (the handler's), Reason
	// where it is dead.
	EventSettled
	// EventBuried: a job was dead-lettered that did not run here: poison, of an unknown kind,
	// or rubbish in delayed. Job, Reason, Deliveries.
	EventBuried
	// EventAbandoned: a handler outlived its timeout, or the grace time, and goes on without
	// a slot. Job, Took so far.
	EventAbandoned
	// EventReturned: an abandoned handler has ended after all. Job, Took in all.
	EventReturned
	// EventLeaseLost: a job that runs here is another worker's by now, or gone. Job.
	EventLeaseLost
	// EventPromoted: due jobs were moved to the stream. Late: the earliest of them.
	EventPromoted
	// EventTicked: a tick became a job. Job, Name of the schedule, Late.
	EventTicked
	// EventTrouble: Redis was not there or refused. Name of the loop, Err.
	EventTrouble
)

// Outcomes of EventSettled.
const (
	OutcomeDone       = "done"
	OutcomeRetried    = "retried"
	OutcomeSnoozed    = "snoozed"
	OutcomeDead       = "dead"
	OutcomeReleased   = "released"    // given back at a shutdown
	OutcomeParked     = "parked"      // put off: its kind is not known here
	OutcomeHandedOver = "handed over" // still running when the worker left
)

type outcomeKey struct{}

// OutcomeOf says, to a Middleware, what becomes of the job whose handler runs under ctx if
// this run of it ends with err now: OutcomeDone, OutcomeRetried, OutcomeSnoozed, OutcomeDead
// or OutcomeReleased. It is the decision; that it is written, an EventSettled tells. It is
// made on the error that the outermost Middleware returns. It is "" where nothing of this
// run is written, since its lease is lost or it was abandoned, and where ctx is no run's.
func OutcomeOf(ctx context.Context, err error) string {
	of, ok := ctx.Value(outcomeKey{}).(func(error) string)
	if !ok {
		return ""
	}
	return of(err)
}

func (run *run) outcomeOf(err error) string {
	if run.over.Load() || run.lost.Load() {
		return ""
	}
	return run.concluding(err).outcome.String()
}

// An Event is something that a Middleware cannot see; its kind says which fields are set.
type Event struct {
	What       EventKind
	Job        Job    // without arguments
	Name       string // of a schedule or a loop
	Outcome    string
	Reason     Reason
	Deliveries int
	Late, Took time.Duration
	Err        error
}

// observe tells an event. Where Observe ends its goroutine, that is no loop's end.
func (r *Runner) observe(e Event) {
	if r.cfg.Observe != nil {
		r.observed(<-apart(func() { r.cfg.Observe(e) }))
	}
}

// observeJob is observe for the two events that each job has. They are told on the consumer
// loop's own goroutine, since another one costs as much as much of a job; where Observe ends
// it, so does Run.
func (r *Runner) observeJob(e Event) { r.observed(try(func() { r.cfg.Observe(e) })) }

// observed says, once, that Observe panicked.
func (r *Runner) observed(p *PanicError) {
	if p != nil {
		r.teller.panicked.Do(func() {
			r.cfg.Logger.Error("jobs: Observe panicked", "err", p, "stack", string(p.Stack))
		})
	}
}

// troubled is what a loop calls for each error; nil where nobody wants to know.
func (r *Runner) troubled(loop string) func(error) {
	if r.cfg.Observe == nil {
		return nil
	}
	return func(err error) { r.observe(Event{What: EventTrouble, Name: loop, Err: err}) }
}

// delivered tells of a run that is about to begin.
func (r *Runner) delivered(run *run) {
	if r.cfg.Observe == nil {
		return
	}
	e := Event{What: EventDelivered, Job: run.job, Deliveries: run.delivery}
	if run.delivery == 1 {
		e.Late = max(0, r.store.Clock().Sub(store.Time(run.entry.ID)))
	}
	r.observeJob(e)
}

// settled counts a run whose outcome is written, and tells of it.
func (r *Runner) settled(run *run) {
	ended := &r.strangers
	if run.handler != nil {
		ended = &run.handler.ended
	}
	ended[run.outcome].Add(1)
	if r.cfg.Observe == nil {
		return
	}
	e := Event{What: EventSettled, Job: run.job, Outcome: run.outcome.String(), Deliveries: run.delivery, Took: run.took, Err: run.err}
	if run.outcome == toDead {
		e.Reason = run.reason
	}
	r.observeJob(e)
}

// buried counts what was dead-lettered without a run, and tells of it.
func (r *Runner) buried(job Job, why Reason, deliveries int) {
	ended := &r.strangers
	if h := r.handlers[job.Kind]; h != nil {
		ended = &h.ended
	}
	ended[toDead].Add(1)
	r.observe(Event{What: EventBuried, Job: job, Reason: why, Deliveries: deliveries})
}

// outcomes are how many runs of a kind have ended how, since that was last told.
type outcomes [toOthers + 1]atomic.Int64

// String is the outcome as an Event says it.
func (o outcome) String() string {
	return [...]string{
		toDone: OutcomeDone, toRetry: OutcomeRetried, toSnooze: OutcomeSnoozed, toDead: OutcomeDead,
		toRelease: OutcomeReleased, toPark: OutcomeParked, toOthers: OutcomeHandedOver,
	}[o]
}

// take adds the outcomes of a kind to counts of "outcome:kind", and begins anew.
func (os *outcomes) take(counts map[string]int, kind string) {
	for o := range os {
		name := outcome(o).String()
		if outcome(o) == toOthers {
			name = OutcomeReleased
		}
		if n := os[o].Swap(0); n > 0 {
			counts[name+":"+kind] += int(n)
		}
	}
}

// count is what has ended since it was last asked. Only kinds that are handled here have a
// name: a producer cannot make it grow.
func (r *Runner) count() map[string]int {
	counts := map[string]int{}
	for kind, h := range r.handlers {
		h.ended.take(counts, kind)
	}
	r.strangers.take(counts, "")
	return counts
}

// A teller is what a worker has told of itself. It is the renewal loop's own.
type teller struct {
	self     store.Self     // as last told
	at       time.Time      // when that was
	number   int64          // of the counts
	counts   map[string]int // told, and not known to have arrived
	minute   int64          // of the last depths
	mute     bool           // it could not be told
	panicked sync.Once      // Observe has
}

// tell renews the leases of ids, and tells the news in the same round trip.
func (r *Runner) tell(ctx context.Context, ids []string, n store.News) (lost []string, err error) {
	if n.Empty() {
		return r.store.Renew(ctx, ids)
	}
	lost, told, err := r.store.Tell(ctx, ids, r.cfg.Lease, n)
	if err == nil {
		r.told(n, told)
	}
	return lost, err
}

// anew is after how many leases a worker describes itself that has nothing new to say.
const anew = 2

// news is what is to be told: nothing, for the most part, where a worker is idle.
func (r *Runner) news() store.News {
	t, clock := &r.teller, r.store.Clock()
	if len(t.counts) == 0 {
		if t.counts = r.count(); len(t.counts) > 0 {
			t.number++
		}
	}
	n := store.News{Counts: t.counts, Number: t.number, Minute: clock, Depths: clock.Unix()/60 != t.minute}
	self := r.describe(clock)
	if len(n.Counts) > 0 || time.Since(t.at) >= anew*r.cfg.Lease || !same(self, t.self) {
		n.Self = &self
	}
	return n
}

// same says that two descriptions differ in nothing that changes but the time.
func same(a, b store.Self) bool {
	return slices.Equal(a.Schedules, b.Schedules) &&
		slices.EqualFunc(a.Running, b.Running, func(a, b store.Running) bool { return a.Entry == b.Entry })
}

// told notes that the news have arrived, or why not: another program has a key of that name, say. They are kept.
func (r *Runner) told(n store.News, err error) {
	t := &r.teller
	if err != nil {
		if !t.mute && store.Refused(err) {
			r.cfg.Logger.Warn("jobs: what runs and what has ended cannot be told to Redis", "worker", r.consumer, "err", err)
		}
		t.mute = t.mute || store.Refused(err)
		return
	}
	t.counts, t.mute = nil, false
	if n.Self != nil {
		t.self, t.at = *n.Self, time.Now()
	}
	if n.Depths {
		t.minute = n.Minute.Unix() / 60
	}
}

// lastNews are those of a worker that leaves: the counts that may have arrived, as they were,
// and those since.
func (r *Runner) lastNews() []store.News {
	t, clock := &r.teller, r.store.Clock()
	var news []store.News
	if len(t.counts) > 0 {
		news = append(news, store.News{Counts: t.counts, Number: t.number, Minute: clock})
	}
	return append(news, store.News{Counts: r.count(), Number: t.number + 1, Minute: clock})
}

// describe is what a worker says of itself.
func (r *Runner) describe(clock time.Time) store.Self {
	self := r.teller.self
	if self.Started.IsZero() {
		host, _ := os.Hostname()
		self = store.Self{
			Host: host, PID: os.Getpid(), Slots: r.cfg.Slots, KeepDead: r.cfg.KeepDead, Lease: r.cfg.Lease,
			Kinds: slices.Sorted(maps.Keys(r.handlers)), Started: clock,
		}
	}
	self.Seen, self.Running, self.Schedules = clock, r.running(clock), nil
	for _, p := range r.periodic {
		self.Schedules = append(self.Schedules, p.describe())
	}
	return self
}

// running are the jobs whose handlers run in slots, longest first. What a producer chose is
// bounded.
func (r *Runner) running(clock time.Time) []store.Running {
	var all []store.Running
	for _, run := range r.leases.all() {
		if run.over.Load() {
			continue
		}
		j := run.job
		all = append(all, store.Running{
			Entry: run.entry.ID, ID: record.Bounded(j.ID, maxName), Kind: record.Bounded(j.Kind, maxName), Attempts: j.Attempts,
			Tick: j.Tick, RequestID: record.Bounded(j.RequestID, maxName), Trace: record.Bounded(j.Trace, maxName),
			Since: store.Epoch{Time: clock.Add(-time.Since(run.began))},
		})
	}
	slices.SortFunc(all, func(a, b store.Running) int {
		if c := a.Since.Compare(b.Since.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Entry, b.Entry)
	})
	return all
}

// describe is what a worker says of a schedule.
func (p *periodic) describe() store.Scheduled {
	job := p.Job
	job.ID = ""
	entry, _ := job.entry() // checked when it was added
	m := fields.Map(entry)
	delete(m, "job_id")
	s := store.Scheduled{Name: p.Name, Kind: job.Kind, Expression: p.expression, Job: fields.Member(m)}
	if next := p.upcoming.Load(); next != 0 {
		s.Next = store.Epoch{Time: time.Unix(next, 0)}
	}
	return s
}
