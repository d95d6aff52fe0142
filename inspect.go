package jobs

// A job in here is looked at. People, and what is built for them (a tool, a page, metrics),
// see who works, what runs, what the schedules do and how the last day went, and what
// others did by hand. Nothing in here moves a job but RunSchedule.

import (
	"context"
	"errors"
	"iter"
	"time"
)

var errNotBuilt = errors.New("not built yet")

type actorKey struct{}

// WithActor returns a context under which what is done by hand (DeadLetters.Replay,
// ReplayAll and Discard, Delayed.Cancel and RunNow, Client.RunSchedule) is written to the
// audit trail as who's: a login, say. Without it, or with "", the trail says that the actor
// is not known. At most 256 bytes of it are kept.
func WithActor(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, actorKey{}, who)
}

// What people do by hand, as Action.What says it.
const (
	ActionReplay      = "replay"
	ActionDiscard     = "discard"
	ActionCancel      = "cancel"
	ActionRunNow      = "run now"
	ActionRunSchedule = "run schedule"
)

// An Action is what somebody did by hand: a record of the audit trail, written by the very
// script that did it. The newest 10,000 are kept.
type Action struct {
	Record   string    // its own stream ID, for Filter.Before
	At       time.Time // by Redis's clock
	Who      string    // see WithActor; empty: unknown
	What     string    // ActionReplay and its like
	ID, Kind string    // the job's
	Entry    string    // the dead letter's, of a replay or discard
	Schedule string    // its name, of ActionRunSchedule
	Set      []string  // the names of the fields that a replay corrected, sorted; values may be private
}

// Audit yields what was done by hand, newest first. Of the filter ID, Kind, Since, Until,
// Before (an Action's Record) and Limit apply. An error is the last thing it yields.
func (c *Client) Audit(ctx context.Context, f Filter) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) { yield(Action{}, errNotBuilt) }
}

// Newest yields what the filter chooses, newest first, in small pages: the first letters
// come at once, however many there are. To go on later, give Filter.Before the last one's
// Entry. An error is the last thing it yields.
func (d *DeadLetters) Newest(ctx context.Context, f Filter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) { yield(DeadLetter{}, errNotBuilt) }
}

// ListFrom yields what is due at from or later, the earliest first; the zero time: all. Its
// pages are found by due time, so that the first job comes at once wherever it begins. What
// is enqueued or becomes due meanwhile may be missed. An error is the last thing it yields.
func (d *Delayed) ListFrom(ctx context.Context, from time.Time) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) { yield(DelayedJob{}, errNotBuilt) }
}

// ListAfter goes on where another list was left, after the job with this Cursor.
func (d *Delayed) ListAfter(ctx context.Context, cursor string) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) { yield(DelayedJob{}, errNotBuilt) }
}

// StatsByKind is Stats for each kind that has a job anywhere; what names no kind is under
// "". It reads all there is, page by page, so it takes as long as there are jobs (and a
// moment passes between the pages): for a person who asks, not for a metric.
func (c *Client) StatsByKind(ctx context.Context) (map[string]Stats, error) {
	return nil, errNotBuilt
}

// A Worker is one running Runner, as it last described itself: with each renewal of its
// leases, so at most a quarter of a lease ago.
type Worker struct {
	Name    string // its consumer in the group: Config.Worker and a random part
	Host    string
	PID     int
	Slots   int
	Kinds   []string // that it handles, sorted
	Lease   time.Duration
	Started time.Time
	Seen    time.Time    // when it last described itself; zero: no process is behind the name any more
	Running []RunningJob // longest first; what was abandoned is not among them
	Owns    int64        // entries that were delivered to it and not settled
}

// A RunningJob is a job in a slot. Its Fields are empty, since arguments may be private.
type RunningJob struct {
	Job
	Entry string // its stream ID
	Since time.Time
}

// Workers returns who works, by name. One that died is there until its jobs are taken over
// and a few leases have passed, with Seen zero once its own description has run out.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) { return nil, errNotBuilt }

// A ScheduleState is a schedule as the living workers follow it.
type ScheduleState struct {
	Name, Kind string
	Expression string
	Next       time.Time // tick; zero: never again
	Last       time.Time // the last tick that was dealt with; zero: none yet
	By         string    // the worker that enqueued Last; empty: nobody did, the schedule was new then
	Workers    int       // how many follow it
	Job        Job       // what is enqueued; it has no ID
}

// Schedules returns what the living workers follow, by name. Where they differ (a deploy is
// rolling) it is what the worker says that started last.
func (c *Client) Schedules(ctx context.Context) ([]ScheduleState, error) { return nil, errNotBuilt }

// RunSchedule enqueues a schedule's job now, under an ID of its own and beside the ticks,
// which it leaves alone. ErrNotFound where no living worker has such a schedule. It is
// written to the audit trail.
func (c *Client) RunSchedule(ctx context.Context, name string) error { return errNotBuilt }

// A Minute is what happened in one minute of Redis's clock.
type Minute struct {
	At    time.Time           // its beginning
	Depth *Stats              // some time in it; nil: no worker ran
	Kinds map[string]Outcomes // by kind, where something ended; "": what names no kind that its worker knew
}

// Outcomes are how many runs ended how. What a worker has counted is written with its next
// renewal, within a quarter of a lease; a crash loses what it had not written yet.
type Outcomes struct {
	Done     int64
	Retried  int64 // failed, will run again
	Snoozed  int64
	Dead     int64
	Released int64 // given back at a shutdown
	Parked   int64 // put off, since the worker that fetched it does not know its kind
}

// History returns the minutes since then that something is known of, oldest first and at
// most for the last 24 hours.
func (c *Client) History(ctx context.Context, since time.Time) ([]Minute, error) {
	return nil, errNotBuilt
}

// A Level is how bad a Finding is.
type Level string

const (
	LevelError   Level = "error"   // jobs are or will be lost, or do not run
	LevelWarning Level = "warning" // look at it today
	LevelUnknown Level = "unknown" // it could not be found out
	LevelFine    Level = "fine"
)

// A Finding is one thing that Diagnose looked at.
type Finding struct {
	Level  Level
	What   string // is so
	Advice string // what to do; empty where it is fine
}

// Diagnose looks for what is wrong around a queue, worst first: the server's version,
// eviction and persistence, clocks, the types of the keys, the group, entries that nobody
// settles, consumers without a process, a full stream of the dead, jobs that wait without
// workers, schedules without ticks. What it may not ask (CONFIG and INFO are often
// forbidden) is a Finding too; the error is for a Redis that does not answer at all.
func (c *Client) Diagnose(ctx context.Context) ([]Finding, error) { return nil, errNotBuilt }

// An EventKind is what an Event is about.
type EventKind int

const (
	// EventDelivered: a job came to this worker. Job, Deliveries (above 1: taken over from a
	// worker that was silent), and of a first delivery Late: for how long it was ready.
	EventDelivered EventKind = iota + 1
	// EventSettled: a run's outcome is written. Job, Outcome, Deliveries, Took (zero where no
	// handler ran), Err (the handler's), Reason where it is dead.
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
