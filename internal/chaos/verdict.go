package chaos

import (
	"maps"
	"slices"
	"time"

	"github.com/stagedoor/jobs"
)

// checkEnd asks what became of a job in its last generation.
func (c *checker) checkEnd(l *life, slots map[slot][]Run) {
	last := l.last()
	waiting := c.Rest.Waiting[l.id]
	if len(l.letters) > 1 || waiting && len(l.letters) > 0 {
		c.find(&c.report.Wrong, l.since(), l.seen(), "in more places than one (waiting %t): %s", waiting, l)
		return
	}
	switch {
	case len(l.letters) == 1:
		c.checkLetter(l, l.letters[0], slots)
	case waiting && l.isTick():
		// It was enqueued while the last workers left.
	case waiting:
		c.find(&c.report.Wrong, l.since(), l.seen(), "not at its end: %s", l)
	case !c.wasIn(l):
		return
	default:
		c.checkGone(l, last)
	}
	if l.sent != nil && !l.sent.Certain {
		c.report.UncertainIn++
	}
}

// last is the last generation that there must have been.
func (l *life) last() int {
	last := 0
	for _, r := range l.runs {
		last = max(last, r.Generation)
	}
	for _, r := range l.letters {
		last = max(last, r.Generation)
	}
	for _, r := range l.replays {
		if r.Certain {
			last = max(last, r.Given)
		}
	}
	return last
}

// wasIn reports whether the job was ever in Redis.
func (c *checker) wasIn(l *life) bool {
	return l.sent == nil || l.sent.Certain || len(l.runs)+len(l.replays)+len(l.letters) > 0
}

// checkGone is about a job that is nowhere any more.
func (c *checker) checkGone(l *life, last int) {
	fate := l.script().Fate(last)
	done := slices.ContainsFunc(l.runs, func(r Run) bool { return r.Generation == last && r.Outcome == Done })
	from := l.seen()
	if n := len(l.runs); n > 0 {
		from = l.runs[n-1].Began // a loss may have taken what it ran
	}
	switch {
	case fate.Reason != "":
		c.find(&c.report.Lost, from, l.seen(), "no dead letter (%s, generation %d): %s", fate.Reason, last, l)
	case !done:
		c.find(&c.report.Lost, from, l.seen(), "never done (generation %d): %s", last, l)
	}
}

// checkLetter is about a job that is dead.
func (c *checker) checkLetter(l *life, letter Letter, slots map[slot][]Run) {
	from, to := l.since(), later(l.seen(), letter.Died)
	fate := l.script().Fate(letter.Generation)
	if letter.Generation < l.last() {
		c.find(&c.report.Wrong, from, to, "dead and replayed: %s", l)
		return
	}
	if fate.Reason == "" && letter.Reason == jobs.ReasonPoison && l.killedLast() {
		c.report.Explained["killed its process at its last delivery, as told"]++
		fate.Reason = jobs.ReasonPoison
	}
	switch {
	case fate.Reason == "" && letter.Reason == jobs.ReasonPoison && c.Hit[l.id]:
		c.report.Struck = append(c.report.Struck, l.String())
	case fate.Reason == "":
		c.find(&c.report.Innocents, from, to, "%s", l)
	case letter.Reason != fate.Reason:
		c.find(&c.report.Wrong, from, to, "dead for the wrong reason, not %q: %s", fate.Reason, l)
	default:
		c.checkAttempts(l, letter, fate, slots)
	}
}

// killedLast reports whether the last run of a job killed its process, though it was to do so a few times only: others
// died under it by outside kills, and the last death was its own doing.
func (l *life) killedLast() bool { return len(l.runs) > 0 && l.runs[len(l.runs)-1].Outcome == Suicide }

// checkAttempts compares a dead letter's attempts with those that were recorded.
func (c *checker) checkAttempts(l *life, letter Letter, fate Fate, slots map[slot][]Run) {
	from, to := l.since(), later(l.seen(), letter.Died)
	failed := 0
	for s, runs := range slots {
		if s.generation == letter.Generation && slices.ContainsFunc(runs, c.mayHaveFailed) {
			failed++
		}
	}
	want := failed
	if letter.Reason == jobs.ReasonPoison {
		want += Deliveries
		c.checkPoison(l, slots[slot{letter.Generation, failed}])
	}
	if letter.Attempts != want || fate.Attempts != 0 && letter.Attempts != fate.Attempts {
		c.find(&c.report.Wrong, from, to, "attempts %d, recorded %d, foretold %d: %s", letter.Attempts, want, fate.Attempts, l)
	}
}

// checkPoison is about the runs that a job died by. More than are permitted are wrong; fewer can be, where a worker
// died between taking the job and beginning it. What was given back at a shutdown, or snoozed, is another entry since,
// with a count of its own. Where all of them began, the last was to run alone.
func (c *checker) checkPoison(l *life, runs []Run) {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Outcome == Released || r.Outcome == Snoozed })
	if len(runs) > Deliveries || len(runs) == 0 {
		c.find(&c.report.Wrong, l.since(), l.seen(), "poison after %d runs: %s", len(runs), l)
		return
	}
	if len(runs) < Deliveries {
		c.report.Explained["a delivery that never began"]++
		return
	}
	final := runs[len(runs)-1]
	for _, other := range c.on[final.Worker] {
		running := other.Ended.IsZero() || other.Ended.After(final.Began)
		if other.Number != final.Number && other.Began.Before(final.Ended) && running {
			c.find(&c.report.Wrong, l.since(), l.seen(), "not alone at its last delivery, but with %s: %s", other, l)
		}
	}
}

// checkTicks wants each tick that Redis remembers to be one job, and no tick run that it does not remember.
func (c *checker) checkTicks() {
	ids := map[Tick]map[string]bool{}
	for _, r := range c.Runs {
		if r.Tick == 0 {
			continue
		}
		tick := Tick{r.Kind, r.Tick}
		if ids[tick] == nil {
			ids[tick] = map[string]bool{}
		}
		ids[tick][r.Job] = true
	}
	c.report.TicksRun = len(ids)
	remembered := map[Tick]bool{}
	for _, tick := range c.Rest.Ticks {
		remembered[tick] = true
		if len(ids[tick]) == 0 && !c.Rest.Due[tick] {
			c.findTick(tick, "enqueued, and never run", nil)
		}
	}
	for tick, jobs := range ids {
		switch {
		case len(jobs) > 1:
			c.findTick(tick, "more than one job", jobs)
		case !remembered[tick]:
			c.findTick(tick, "run, and not remembered", jobs)
		}
	}
}

func (c *checker) findTick(tick Tick, what string, ids map[string]bool) {
	from := timeOf(tick)
	to := from
	for id := range ids {
		to = later(to, c.lives[id].seen())
	}
	c.find(&c.report.Ticks, from, to, "%s %s: %s %v", tick.Schedule, clock(from), what, slices.Sorted(maps.Keys(ids)))
}

func timeOf(tick Tick) time.Time { return time.Unix(tick.At, 0) }
