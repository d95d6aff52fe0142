package jobs

// A job in here is looked at. People, and what is built for them (a tool, a page, metrics),
// see who works, what runs, what the schedules do and how the last day went, and what
// others did by hand. Nothing in here moves a job but RunSchedule.

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stagedoor/jobs/internal/doctor"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

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
// script that did it, one for each job. The newest 20,000 are kept (about 2 MB), so that a
// replay of all dead letters does not push out what was done before.
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

// Audit yields what was done by hand, newest first. Of the filter Entry, ID, Kind, Since,
// Until, Before (an Action's Record) and Limit apply. An error is the last thing it yields.
func (c *Client) Audit(ctx context.Context, f Filter) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		from, to, err := f.bounds()
		if err == nil {
			err = c.store.Audit(ctx, from, to, f.chooseActions(yield))
		}
		if err != nil {
			yield(Action{}, fmt.Errorf("jobs: audit: %w", err))
		}
	}
}

// chooseActions yields what the filter chooses, until its limit is reached.
func (f Filter) chooseActions(yield func(Action, error) bool) func(string, store.Record) bool {
	n := 0
	return func(id string, r store.Record) bool {
		a := Action{
			Record: id, At: store.Time(id), Who: r.Who, What: r.What,
			ID: r.ID, Kind: r.Kind, Entry: r.Entry, Schedule: r.Schedule, Set: r.Set,
		}
		if f.Entry != "" && f.Entry != a.Entry || f.ID != "" && record.Bounded(f.ID, maxName) != a.ID ||
			f.Kind != "" && record.Bounded(f.Kind, maxName) != a.Kind {
			return true
		}
		n++
		return yield(a, nil) && (f.Limit <= 0 || n < f.Limit)
	}
}

// maxName is how many bytes of a name or ID are kept where it is only told.
const maxName = 256

// action is the record of what is done by hand to a job under ctx.
func action(ctx context.Context, what string, j Job) store.Record {
	who, _ := ctx.Value(actorKey{}).(string)
	return store.Record{
		Who: record.Bounded(who, maxName), What: what,
		ID: record.Bounded(j.ID, maxName), Kind: record.Bounded(j.Kind, maxName),
	}
}

// StatsByKind is Stats for each kind that has a job anywhere; what names no kind is under
// "". It reads all there is, page by page, so it takes as long as there are jobs (and a
// moment passes between the pages): for a person who asks, not for a metric.
func (c *Client) StatsByKind(ctx context.Context) (map[string]Stats, error) {
	byKind, clock, err := c.countKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: stats by kind: %w", err)
	}
	all := make(map[string]Stats, len(byKind))
	for kind, k := range byKind {
		if k.Ready > 0 {
			k.OldestReady = max(0, clock.Sub(store.Time(k.oldest)))
		}
		all[kind] = k.Stats
	}
	return all, nil
}

// kindStats is a kind as it is counted, with the entry that was ready first.
type kindStats struct {
	Stats
	oldest string
}

func (c *Client) countKinds(ctx context.Context) (map[string]*kindStats, time.Time, error) {
	byKind := map[string]*kindStats{}
	of := func(kind string) *kindStats {
		if byKind[kind] == nil {
			byKind[kind] = &kindStats{}
		}
		return byKind[kind]
	}
	clock, err := c.store.Now(ctx)
	if err != nil {
		return nil, clock, err
	}
	err = c.store.EachKind(ctx, func(kind, id string, where int) {
		switch k := of(kind); where {
		case store.IsReady:
			if k.Ready++; k.Ready == 1 {
				k.oldest = id
			}
		case store.IsRunning:
			k.Running++
		case store.IsDead:
			k.Dead++
		}
	})
	if err != nil {
		return nil, clock, err
	}
	err = c.store.DelayedFrom(ctx, store.From(time.Time{}), func(page []store.Member, _ []store.Place) bool {
		for _, m := range page {
			of(m.Fields["kind"]).Delayed++
		}
		return true
	})
	return byKind, clock, err
}

// A Worker is one running Runner, as it last described itself: with each renewal of its
// leases that finds something new, so an eighth of a lease ago where jobs come and go, and at
// most two leases where it is idle.
type Worker struct {
	Name    string // its consumer in the group: Config.Worker and a random part
	Host    string
	PID     int
	Slots   int
	Kinds   []string // that it handles, sorted
	Lease   time.Duration
	Started time.Time
	Seen    time.Time    // when it last described itself; zero: no process is behind the name any more
	Silent  bool         // for longer than one that lives: it was killed, is paused, or cannot reach Redis
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
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	found, err := c.store.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: workers: %w", err)
	}
	clock, _ := c.store.Now(ctx) // where that is forbidden, nobody is silent
	workers := make([]Worker, len(found))
	for i, w := range found {
		workers[i] = Worker{
			Name: w.Name, Host: w.Host, PID: w.PID, Slots: w.Slots, Kinds: w.Kinds, Lease: w.Lease,
			Started: w.Started, Seen: w.Seen, Silent: silent(w, clock) > 0, Owns: w.Owns,
		}
		for _, run := range w.Running {
			workers[i].Running = append(workers[i].Running, RunningJob{
				Job: Job{
					ID: run.ID, Kind: run.Kind, Attempts: run.Attempts, Tick: run.Tick,
					RequestID: run.RequestID, Trace: run.Trace,
				},
				Entry: run.Entry, Since: run.Since.Time,
			})
		}
	}
	return workers, nil
}

// silent is for how long a worker has not described itself, where that is longer than one that
// lives is silent: it does in each second lease, with a renewal.
func silent(w store.Worker, clock time.Time) time.Duration {
	if d := clock.Sub(w.Seen); !w.Seen.IsZero() && d > anew*w.Lease+w.Lease/renewals+time.Second {
		return d
	}
	return 0
}

// A ScheduleState is a schedule as the living workers follow it.
type ScheduleState struct {
	Name, Kind string
	Expression string
	Next       time.Time // tick; zero: never again; not after Last: no worker has told of the next one yet
	Last       time.Time // the last tick that was dealt with; zero: none yet
	By         string    // the worker that dealt with Last; empty: nobody did, or it is too long ago to tell
	New        bool      // nobody did: the schedule was new then, and nothing was enqueued yet
	Workers    int       // how many follow it
	Job        Job       // what is enqueued; it has no ID
}

// Schedules returns what the living workers follow, by name. Where they differ (a deploy is
// rolling) it is what the worker says that started last. One that was killed is among them for
// a few leases: a Next that was dealt with since gives way to another's.
func (c *Client) Schedules(ctx context.Context) ([]ScheduleState, error) {
	states, err := c.followed(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: schedules: %w", err)
	}
	clock, err := c.store.Now(ctx)
	if err != nil && !store.Forbidden(err) { // without it nothing is known to be new
		return nil, fmt.Errorf("jobs: schedules: %w", err)
	}
	for i := range states {
		states[i].New = states[i].isNew(clock)
	}
	return states, nil
}

func (c *Client) followed(ctx context.Context) ([]ScheduleState, error) {
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return c.schedules(ctx, workers)
}

func (c *Client) schedules(ctx context.Context, workers []store.Worker) ([]ScheduleState, error) {
	slices.SortStableFunc(workers, func(a, b store.Worker) int { return a.Started.Compare(b.Started) })
	byName := map[string][]store.Scheduled{}
	for _, w := range workers {
		for _, s := range w.Schedules {
			byName[s.Name] = append(byName[s.Name], s)
		}
	}
	names := slices.Sorted(maps.Keys(byName))
	lasts, err := c.store.Lasts(ctx, names)
	if err != nil {
		return nil, err
	}
	states := make([]ScheduleState, len(names))
	for i, name := range names {
		states[i] = scheduleState(byName[name], lasts[name])
	}
	return states, nil
}

// scheduleState is what those who follow a schedule say of it, in the order in which they started.
func scheduleState(told []store.Scheduled, last store.Last) ScheduleState {
	newest := told[len(told)-1]
	m, _ := fields.ParseMember(newest.Job) // what is no job has no fields
	job, _ := parse("", m)
	job.Fields = record.Arguments(m)
	return ScheduleState{
		Name: newest.Name, Kind: newest.Kind, Expression: newest.Expression, Job: job,
		Next: nextTick(told, last.Tick), Last: last.Tick, By: last.By, Workers: len(told),
	}
}

// nextTick is the earliest after last, by the expression of the worker that started last
// among those who know of one; where none does, what the newest says. By another expression
// there may be an earlier one that nobody waits for: who did was killed in a deploy.
func nextTick(told []store.Scheduled, last time.Time) time.Time {
	next := told[len(told)-1]
	for _, s := range slices.Backward(told) {
		if s.Next.After(last) && (!next.Next.After(last) || s.Expression == next.Expression && s.Next.Before(next.Next.Time)) {
			next = s
		}
	}
	return next.Next.Time
}

// isNew says whether nobody enqueued Last: whoever enqueues a tick is remembered for a while.
func (s *ScheduleState) isNew(clock time.Time) bool {
	period := min(max(0, s.Next.Sub(s.Last)), longestPeriod)
	return s.By == "" && !s.Last.IsZero() && clock.Sub(s.Last) < remembered(period) && !clock.IsZero()
}

// RunSchedule enqueues a schedule's job now, under an ID of its own and beside the ticks,
// which it leaves alone. ErrNotFound where no living worker has such a schedule. It is
// written to the audit trail. An answer that never came is ErrUncertain.
func (c *Client) RunSchedule(ctx context.Context, name string) error {
	return wrap(fmt.Sprintf("jobs: run schedule %q", name), c.runSchedule(ctx, name))
}

func (c *Client) runSchedule(ctx context.Context, name string) error {
	states, err := c.followed(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(states, func(s ScheduleState) bool { return s.Name == name })
	if at < 0 {
		return ErrNotFound
	}
	job := states[at].Job
	job.ID = mint()
	entry, err := job.entry()
	if err != nil {
		return err
	}
	by := action(ctx, ActionRunSchedule, job)
	by.Schedule = name
	return unsure(c.store.RunSchedule(ctx, entry, by))
}

// A Minute is what happened in one minute of Redis's clock.
type Minute struct {
	At    time.Time           // its beginning
	Depth *Stats              // some time in it; nil: no worker ran
	Kinds map[string]Outcomes // by kind, where something ended; "": what names no kind that its worker knew
}

// Outcomes are how many runs ended how. What a worker has counted is written with its next
// renewal, within an eighth of a lease; a crash loses what it had not written yet.
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
	now, err := c.store.Now(ctx)
	var found []store.Minute
	if err == nil {
		if day := now.Add(-24 * time.Hour); since.Before(day) {
			since = day
		}
		found, err = c.store.History(ctx, since, now)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: history: %w", err)
	}
	minutes := make([]Minute, len(found))
	for i, m := range found {
		minutes[i] = Minute{At: m.At, Kinds: map[string]Outcomes{}}
		if m.Counted {
			depths := Stats(m.Depths)
			minutes[i].Depth = &depths
		}
		for name, n := range m.Counts {
			outcome, kind, _ := strings.Cut(name, ":")
			minutes[i].Kinds[kind] = minutes[i].Kinds[kind].with(outcome, n)
		}
	}
	return minutes, nil
}

// with is o with n of one outcome.
func (o Outcomes) with(outcome string, n int64) Outcomes {
	switch outcome {
	case OutcomeDone:
		o.Done = n
	case OutcomeRetried:
		o.Retried = n
	case OutcomeSnoozed:
		o.Snoozed = n
	case OutcomeDead:
		o.Dead = n
	case OutcomeReleased:
		o.Released = n
	case OutcomeParked:
		o.Parked = n
	}
	return o
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
// workers or that nobody promotes, kinds that no worker knows, workers that are silent, schedules
// without ticks. What it may not ask (CONFIG and INFO are often forbidden) is a Finding too; the
// error is for a Redis that does not answer at all.
func (c *Client) Diagnose(ctx context.Context) ([]Finding, error) {
	f := doctor.Facts{}
	var err error
	if f.Now, f.Skew, err = c.store.Skew(ctx); err != nil {
		if !store.Forbidden(err) {
			return nil, fmt.Errorf("jobs: diagnose: %w", err)
		}
		f.Now, f.Unasked = time.Time{}, []string{fmt.Sprintf("the clock: %s", err)}
	}
	for what, ask := range map[string]func(context.Context, *doctor.Facts) error{
		"the server": c.askServer, "the keys": c.askKeys, "the depths": c.askDepths,
		"the workers": c.askWorkers, "what is delayed": c.askStrange,
	} {
		if err := ask(ctx, &f); err != nil {
			f.Unasked = append(f.Unasked, fmt.Sprintf("%s: %s", what, err))
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("jobs: diagnose: %w", err)
	}
	slices.Sort(f.Unasked)
	var findings []Finding
	for _, found := range doctor.Examine(f) {
		findings = append(findings, Finding{Level(found.Level), found.What, found.Advice})
	}
	return findings, nil
}

func (c *Client) askServer(ctx context.Context, f *doctor.Facts) (err error) {
	f.Server, err = c.store.Server(ctx)
	return err
}

func (c *Client) askKeys(ctx context.Context, f *doctor.Facts) error {
	types, err := c.store.Types(ctx)
	for _, t := range types {
		f.Keys = append(f.Keys, doctor.Key{Name: t.Key, Is: t.Is, Want: t.Want})
	}
	return err
}

func (c *Client) askDepths(ctx context.Context, f *doctor.Facts) error {
	st, err := c.store.Stats(ctx)
	if err != nil {
		return err
	}
	now, due, err := c.store.Earliest(ctx)
	if err != nil {
		return err
	}
	depths := doctor.Depths{Ready: st.Ready, Dead: st.Dead, Oldest: st.OldestReady}
	if !due.IsZero() {
		depths.Overdue = now.Sub(due)
	}
	if depths.Stream, depths.Group, err = c.store.HasGroup(ctx); err == nil {
		f.Depths = &depths
	}
	return err
}

// askStrange looks for kinds that nobody knows among the jobs that are due first: such a job is put off for seconds.
func (c *Client) askStrange(ctx context.Context, f *doctor.Facts) error {
	return c.store.DelayedFrom(ctx, store.From(time.Time{}), func(page []store.Member, _ []store.Place) bool {
		for _, m := range page {
			if kind := m.Fields["kind"]; m.Fields["unknown_since"] != "" && !slices.Contains(f.Strange, kind) {
				f.Strange = append(f.Strange, kind)
			}
		}
		return false
	})
}

// askWorkers asks for all that depends on who works: what a lease is, what nobody renews.
func (c *Client) askWorkers(ctx context.Context, f *doctor.Facts) error {
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return err
	}
	f.Listed = true
	long := time.Duration(0)
	for _, w := range workers {
		f.Workers = append(f.Workers, doctor.Worker{
			Name: w.Name, Lease: w.Lease, Silent: silent(w, f.Now), Owns: w.Owns, KeepDead: w.KeepDead, Kinds: w.Kinds,
		})
		long = max(long, poisonLeases*w.Lease)
	}
	states, err := c.schedules(ctx, workers)
	if err != nil {
		return err
	}
	for _, s := range states {
		f.Schedules = append(f.Schedules, doctor.Schedule{Name: s.Name, Last: s.Last, Next: s.Next})
	}
	err = c.store.Idle(ctx, or(long, time.Minute), func(page []store.Pending) error {
		for _, p := range page {
			f.Stuck = append(f.Stuck, doctor.Stuck{Owner: p.Owner, Kind: p.Kind, Idle: p.Idle})
		}
		return nil
	})
	if store.NoGroup(err) {
		return nil
	}
	return err
}
