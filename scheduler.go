package jobs

// A job in here does not exist yet: it is a tick of a schedule, an instant at which it is
// due. Every worker computes the ticks; the one whose script comes first makes it a job,
// and it is ready like any other.

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/loops"
	"github.com/stagedoor/jobs/internal/store"
)

// A Schedule tells when something is due next: strictly after a time, in that time's
// location, always the same answer for the same time; the zero time where never again.
// It may be the application's own. Fractions of a second are cut off.
//
// Where Next panics once Run has begun, or ends its goroutine, the log says so now and then, it
// is asked again each second, and other schedules tick on time. It must come back at once.
type Schedule interface {
	Next(after time.Time) time.Time
}

// Every is due each d, counted from the Unix epoch and not from when a worker started. It
// panics unless d is whole seconds, at least one.
func Every(d time.Duration) Schedule { return must(calendar.NewEvery(d)) }

// Daily is due each day at this time of the clock on the wall, in UTC unless InZone says
// otherwise. It panics where there is no such time.
func Daily(hour, minute int) Schedule { return must(calendar.Daily(hour, minute)) }

// Cron is ParseCron for an expression in the program's text: it panics where ParseCron
// returns an error.
func Cron(expr string) Schedule { return must(ParseCron(expr)) }

// ParseCron reads a cron expression of five fields (minute, hour, day of the month, month,
// day of the week; lists, ranges, steps, names; 7 is Sunday; where both days are restricted
// either matches, as POSIX has it), @hourly, @daily and their like, or "@every 90s".
//
// Where clocks change, the rule is Vixie cron's: a time that does not exist is due at the
// first instant after the gap, a time that exists twice is due once, and what is due every
// so often (minute or hour begin with "*") is due at every real interval.
func ParseCron(expr string) (Schedule, error) {
	s, err := calendar.Parse(expr)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return s, nil
}

// InZone reads a schedule by the clocks of loc.
func InZone(loc *time.Location, s Schedule) Schedule { return calendar.InZone(loc, s) }

func must[S Schedule](s S, err error) S {
	if err != nil {
		panic("jobs: " + strings.TrimPrefix(err.Error(), "jobs: "))
	}
	return s
}

// Missed is what becomes of a tick while no worker ran.
type Missed int

const (
	Late Missed = iota // enqueued late, once: the latest of those that were missed
	Skip               // not enqueued, where it is more than a minute late
)

// A Periodic is a job on a schedule.
type Periodic struct {
	Name   string   // of the schedule, the same in the whole fleet, without ":"; empty: the job's kind
	When   Schedule // in UTC, unless InZone
	Job    Job      // its kind and arguments; each tick mints an ID of its own
	Missed Missed
}

// periodic is a schedule as a worker follows it.
type periodic struct {
	Periodic
	expression string
	since      time.Time // Redis's clock at the first look
	handled    time.Time // the last tick that is known to be a job, or none of ours
	next       time.Time // the first one after that; zero: not computed, or none
	following  time.Time // the first one after the tick that is to be enqueued
	broken     error     // When has given no answer
	pace       *loops.Loop

	upcoming atomic.Int64 // next in epoch seconds, for the renewal loop; 0: none
}

// Schedule adds a job to what r enqueues at a time. A tick is enqueued once, however many
// workers have the schedule, and stays out of other workers' way where a deploy changes its
// expression. When a name is seen for the first time nothing is enqueued for the past; nor,
// from a change of its expression until the new one's first tick, for the time in which no
// worker with the new one ran.
//
// It panics on a schedule that can never be due, on a name that is there already, and on a
// job that could not be enqueued.
func (r *Runner) Schedule(p Periodic) {
	if p.Name == "" {
		p.Name = p.Job.Kind
	}
	if err := r.checkPeriodic(p); err != nil {
		panic(fmt.Sprintf("jobs: schedule %q: %s", p.Name, err))
	}
	r.periodic = append(r.periodic, &periodic{
		Periodic: p, expression: calendar.Expression(p.When),
		pace: loops.With("schedule "+p.Name, "tick", r.cfg.Logger.With("worker", r.consumer)),
	})
}

func (r *Runner) checkPeriodic(p Periodic) error {
	switch {
	case r.started.Load():
		return fmt.Errorf("added after Run")
	case p.Name == "" || strings.ContainsAny(p.Name, ":\n"):
		return fmt.Errorf("a name may not be empty nor hold a colon")
	case p.Missed != Late && p.Missed != Skip:
		return fmt.Errorf("Missed is %d", p.Missed)
	case p.Job.when != atOnce:
		return fmt.Errorf("its job has a time of its own")
	}
	for _, other := range r.periodic {
		if other.Name == p.Name {
			return fmt.Errorf("added twice")
		}
	}
	if _, err := p.Job.entry(); err != nil {
		return err
	}
	return calendar.Check(p.When, time.Now().UTC())
}

// tick is a step of the loop that enqueues what is due.
func (r *Runner) tick(ctx context.Context) (time.Duration, error) {
	const wake = time.Second
	if len(r.periodic) == 0 {
		return time.Hour, nil
	}
	clock, err := r.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	r.heard()
	err = r.enqueueTicks(ctx, clock.UTC())
	wait := wake
	for _, p := range r.periodic { // whose ticks are a second apart at least, whatever When says
		if p.upcoming.Store(0); !p.next.IsZero() {
			p.upcoming.Store(p.next.Unix())
			wait = min(wait, max(p.next.Sub(clock), p.handled.Add(time.Second).Sub(clock), time.Millisecond))
		}
	}
	return wait, err
}

// enqueueTicks makes jobs of what is due at clock, Redis's.
func (r *Runner) enqueueTicks(ctx context.Context, clock time.Time) error {
	var due []*periodic
	var ticks []store.Tick
	for _, p := range r.periodic {
		if t, ok := p.ask(clock); ok {
			due, ticks = append(due, p), append(ticks, t)
		}
	}
	var failed error
	for i, reply := range r.store.Tick(ctx, ticks) {
		p, at := due[i], ticks[i].At
		if reply.Err != nil {
			failed = fmt.Errorf("tick %s of schedule %q: %w", at.Format(time.RFC3339), p.Name, reply.Err)
			continue
		}
		p.handled, p.next = at, p.following
		if reply.Enqueued {
			job, _ := parse("", fields.Map(ticks[i].Entry))
			r.cfg.Logger.Debug("jobs: tick enqueued", "job", job, "schedule", p.Name, "late", clock.Sub(at))
			r.observe(Event{What: EventTicked, Job: job, Name: p.Name, Late: clock.Sub(at)})
		}
	}
	return failed
}

// remembered is for how long who enqueued a tick is.
func remembered(period time.Duration) time.Duration { return max(2*period, time.Hour) }

// longestPeriod is for how long a schedule is remembered, about: three of them are a Duration.
const longestPeriod = 10 * 366 * 24 * time.Hour

// ask is due, whatever When does short of not coming back. Nothing else asks When once Run has
// begun.
func (p *periodic) ask(clock time.Time) (t store.Tick, ok bool) {
	p.broken = nil
	if panicked := <-apart(func() { t, ok = p.due(clock) }); panicked != nil {
		p.next = time.Time{}
		p.broken = fmt.Errorf("schedule %q: %w\n%s", p.Name, panicked, panicked.Stack)
		_ = p.pace.Met(p.broken) // it is asked again with the others
		return store.Tick{}, false
	}
	p.pace.Over()
	return t, ok
}

// after is the first instant after t; zero where there is none, or When talks nonsense.
func (p *periodic) after(t time.Time) time.Time {
	next := p.When.Next(t)
	if !next.After(t) {
		return time.Time{}
	}
	return next
}

// due returns the latest tick, where it is not known to be handled.
func (p *periodic) due(clock time.Time) (store.Tick, bool) {
	if p.since.IsZero() {
		p.since = clock
	}
	if p.handled.After(clock) || p.since.After(clock) { // Redis's clock was put back
		p.since, p.handled, p.next = clock, clock, time.Time{}
	}
	if p.next.After(clock) {
		return store.Tick{}, false
	}
	at := calendar.Latest(p.When, clock).Truncate(time.Second)
	if at.IsZero() || !at.After(p.handled) {
		p.next = p.after(clock)
		return store.Tick{}, false
	}
	job := p.Job
	job.ID, job.Tick = mint(), at
	entry, _ := job.entry() // checked when it was added
	period := time.Duration(0)
	if p.following = p.after(at); !p.following.IsZero() {
		period = min(p.following.Sub(at), longestPeriod)
	}
	return store.Tick{
		Name: p.Name, At: at, Expression: p.expression, Since: p.since,
		Lock:     remembered(period),
		Bookmark: 3*period + 30*24*time.Hour,
		Stale:    p.Missed == Skip && clock.Sub(at) > time.Minute,
		Entry:    entry,
	}, true
}
