package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
)

// History is all that is known of a run of the fleet once it is over.
type History struct {
	Lease    time.Duration
	Sent     []Sent
	Runs     []Run
	Troubles []Trouble
	Replays  []Replay
	// Hit are the jobs whose worker was killed from outside during their last permitted delivery: nobody can tell them
	// from killers. The harness spares such deliveries unless it is told not to, and looks again after each kill.
	Hit  map[string]bool
	Rest Rest
}

// Sent is a job as a producer knows it.
type Sent struct {
	ID      string
	Script  Script
	At      time.Time // before it was sent
	Acked   time.Time // when Enqueue returned
	Certain bool      // Enqueue said that it is in; else it may be in, once
}

// Replay is a replay as an operator knows it.
type Replay struct {
	Letter
	Given   int // the generation
	Acked   time.Time
	Certain bool // else the answer was lost
}

// Letter is a dead letter.
type Letter struct {
	ID, Kind             string // the job's
	Generation, Attempts int
	Reason               jobs.Reason
	Died                 time.Time
}

// Rest is what was left in Redis.
type Rest struct {
	Letters []Letter
	Waiting map[string]bool // jobs in the stream and in delayed
	Due     map[Tick]bool   // of these the ticks
	Ticks   []Tick          // those that Redis remembers to have been enqueued
	Keys    []string        // neither stream nor sorted set, and without expiry
}

// A Tick of a schedule, in epoch seconds.
type Tick struct {
	Schedule string
	At       int64
}

// Report is what the history comes to. Each finding says what is wrong.
type Report struct {
	Jobs, Runs, Dead, Replayed       int
	Lost, Doubles, Innocents         []string
	Ticks                            []string // doubled or lost
	Keys                             []string
	Wrong                            []string // all else: attempts, reasons, order, what is early, not alone, not at its end
	Explained                        map[string]int
	Struck                           []string // dead as poison, and Hit
	LostByRedis                      []string // findings of any sort that are near a loss of Redis's own
	Uncertain, UncertainIn, TicksRun int
}

// Clean reports whether nothing is wrong.
func (r Report) Clean() bool {
	return len(r.Lost)+len(r.Doubles)+len(r.Innocents)+len(r.Ticks)+len(r.Keys)+len(r.Wrong) == 0
}

// String is the one line of figures.
func (r Report) String() string {
	return fmt.Sprintf("chaos: jobs: %d, runs: %d, lost: %d, unexplained doubles: %d, innocents: %d, ticks doubled: %d, keys left: %d",
		r.Jobs, r.Runs, len(r.Lost), len(r.Doubles), len(r.Innocents), len(r.Ticks), len(r.Keys))
}

// Findings are all of them, in words.
func (r Report) Findings() (all []string) {
	for _, of := range []struct {
		name string
		list []string
	}{
		{"lost", r.Lost}, {"double", r.Doubles}, {"innocent", r.Innocents},
		{"tick", r.Ticks}, {"key", r.Keys}, {"wrong", r.Wrong},
	} {
		for _, text := range of.list {
			all = append(all, of.name+": "+text)
		}
	}
	return all
}

// life is one job's.
type life struct {
	id      string
	sent    *Sent // nil: a tick's
	runs    []Run // by their beginning
	replays []Replay
	letters []Letter
}

// checker joins a history.
type checker struct {
	*History
	report Report
	worlds *worlds
	lives  map[string]*life
	on     map[string][]Run // runs by worker
}

// Check reads the whole history.
func (h *History) Check() Report {
	c := &checker{
		History: h, worlds: newWorlds(h.Troubles, h.Lease), lives: map[string]*life{}, on: map[string][]Run{},
		report: Report{Jobs: len(h.Sent), Runs: len(h.Runs), Explained: map[string]int{}},
	}
	c.gather()
	for _, id := range slices.Sorted(maps.Keys(c.lives)) {
		c.check(c.lives[id])
	}
	c.checkTicks()
	c.report.Keys = h.Rest.Keys
	c.report.Dead, c.report.Replayed = len(h.Rest.Letters), len(h.Replays)
	return c.report
}

func (c *checker) life(id string) *life {
	l := c.lives[id]
	if l == nil {
		l = &life{id: id}
		c.lives[id] = l
	}
	return l
}

func (c *checker) gather() {
	for i := range c.Sent {
		c.life(c.Sent[i].ID).sent = &c.Sent[i]
	}
	for _, r := range c.Runs {
		l := c.life(r.Job)
		l.runs = append(l.runs, r)
		c.on[r.Worker] = append(c.on[r.Worker], r)
	}
	for _, r := range c.Replays {
		l := c.life(r.ID)
		l.replays = append(l.replays, r)
	}
	for _, letter := range c.Rest.Letters {
		l := c.life(letter.ID)
		l.letters = append(l.letters, letter)
	}
}

// find adds a finding about what happened between two moments, unless Redis may have lost just that.
func (c *checker) find(list *[]string, from, to time.Time, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c.worlds.lost(from, to) {
		list = &c.report.LostByRedis
	}
	*list = append(*list, text)
}

// seen is when a job was last heard of.
func (l *life) seen() (at time.Time) {
	if l.sent != nil {
		at = l.sent.Acked
	}
	for _, r := range l.runs {
		at = later(at, later(r.Began, r.Ended))
	}
	for _, r := range l.replays {
		at = later(at, r.Acked)
	}
	return at
}

// since is when a job was first heard of.
func (l *life) since() time.Time {
	switch {
	case l.sent != nil:
		return l.sent.At
	case len(l.runs) > 0:
		return l.runs[0].Began
	}
	return time.Time{}
}

func (l *life) isTick() bool { return len(l.runs) > 0 && l.runs[0].Tick != 0 }

// script is the job's; a tick is steady.
func (l *life) script() Script {
	if l.sent != nil {
		return l.sent.Script
	}
	return Script{Kind: Steady}
}

func (l *life) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", l.script().Kind, l.id)
	if l.sent != nil {
		fmt.Fprintf(&b, " (sent %s, certain %t)", clock(l.sent.Acked), l.sent.Certain)
	}
	for _, r := range l.runs {
		fmt.Fprintf(&b, "\n    %s", r)
	}
	for _, r := range l.replays {
		fmt.Fprintf(&b, "\n    replayed as generation %d at %s, certain %t", r.Given, clock(r.Acked), r.Certain)
	}
	for _, r := range l.letters {
		fmt.Fprintf(&b, "\n    dead at %s: %s, generation %d, attempts %d", clock(r.Died), r.Reason, r.Generation, r.Attempts)
	}
	return b.String()
}

// check reads one life.
func (c *checker) check(l *life) {
	if l.sent == nil && !l.isTick() {
		c.find(&c.report.Wrong, l.since(), l.seen(), "nobody sent %s", l)
		return
	}
	if l.sent != nil && !l.sent.Certain {
		c.report.Uncertain++
	}
	if l.sent != nil && len(l.runs) > 0 && l.runs[0].Began.Before(l.sent.At.Add(l.sent.Script.Delay)) {
		c.find(&c.report.Wrong, l.since(), l.seen(), "early, due after %s: %s", l.sent.Script.Delay, l)
	}
	slots := map[slot][]Run{}
	for _, r := range l.runs {
		slots[r.slot()] = append(slots[r.slot()], r)
	}
	for s, runs := range slots {
		c.checkOrigin(l, s, slots)
		c.checkDoubles(l, runs)
	}
	c.checkEnd(l, slots)
}

// checkOrigin asks where a slot comes from: a failure before it, a replay, or the producer.
func (c *checker) checkOrigin(l *life, s slot, slots map[slot][]Run) {
	switch {
	case s.attempts > 0:
		before := slots[slot{s.generation, s.attempts - 1}]
		if !slices.ContainsFunc(before, func(r Run) bool { return c.mayHaveFailed(r) }) {
			c.find(&c.report.Wrong, l.since(), l.seen(), "attempts %d without a failure before it: %s", s.attempts, l)
		}
	case s.generation > 0:
		if !slices.ContainsFunc(l.replays, func(r Replay) bool { return r.Given == s.generation }) {
			c.find(&c.report.Wrong, l.since(), l.seen(), "generation %d without a replay: %s", s.generation, l)
		}
	}
}

// mayHaveFailed reports whether a retry can come from a run: it failed, or a silence of its worker made it overrun its
// timeout whatever its handler was about to return.
func (c *checker) mayHaveFailed(r Run) bool {
	if r.Outcome == Failed {
		return true
	}
	overran := r.Kind == Hanging || r.Kind == Deaf
	return overran && c.worlds.troubled(r.Worker, r.Began, c.worlds.heldUntil(r))
}

// checkDoubles wants each run of a slot beyond the first explained, each by another run before it.
func (c *checker) checkDoubles(l *life, runs []Run) {
	used := make([]bool, len(runs))
	for i := 1; i < len(runs); i++ {
		why := ""
		for j := i - 1; j >= 0 && why == ""; j-- {
			if used[j] {
				continue
			}
			why = c.why(runs[j], runs[i])
			used[j] = why != ""
		}
		if why == "" && c.worlds.lateStart(runs[i]) {
			why = "begun late"
		}
		if why == "" {
			c.find(&c.report.Doubles, runs[0].Began, runs[i].Began, "run %d of %s: %s", runs[i].Number, runs[i].Worker, l)
			continue
		}
		c.report.Explained[why]++
	}
}

// why says which recorded fact about a run lets the same slot be run again.
func (c *checker) why(before, after Run) string {
	end, ended := c.worlds.ends[before.Worker]
	gone := ended && end.From.Before(after.Began)
	switch {
	case before.Outcome == Snoozed:
		return "snoozed"
	case gone && end.Sort == Crash && !end.From.After(c.worlds.heldUntil(before)):
		return "crash"
	case gone && end.Sort == Left && c.leftBehind(before, end):
		return "shutdown"
	case c.worlds.leaseOut(before, after):
		return "silence"
	}
	return ""
}

// leftBehind reports whether a worker that left in peace may have left a run's outcome unwritten.
func (c *checker) leftBehind(r Run, end Trouble) bool {
	switch {
	case r.Ended.IsZero():
		return true
	case r.Outcome != Done && !r.Ended.Before(end.From):
		return true
	}
	return c.worlds.troubled(r.Worker, r.Ended, end.To) && !end.From.After(c.worlds.heldUntil(r))
}
