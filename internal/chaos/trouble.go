package chaos

import (
	"slices"
	"time"
)

// A Trouble is something that was done to a worker or to Redis, or that a worker noticed of itself. Only a recorded
// trouble explains why a job ran twice.
type Trouble struct {
	Sort     Sort
	Worker   string // one life of a process; empty: all of them
	From, To time.Time
}

// A Sort of trouble.
type Sort string

const (
	Crash   Sort = "crash"   // the process was killed, or killed itself, at some time from From to To
	Left    Sort = "left"    // SIGTERM at From, gone at To
	Stopped Sort = "stopped" // SIGSTOP, SIGCONT
	Hung    Sort = "hung"    // it got no processor: it noticed itself, by a clock that ticks each 50 ms
	Cutoff  Sort = "cutoff"  // its connections were closed, or carried nothing
	Outage  Sort = "outage"  // Redis was away, or about to be
	Gone    Sort = "gone"    // the part of that in which it certainly answered nobody
	Slow    Sort = "slow"    // Redis answered our own question late
	Loss    Sort = "loss"    // Redis may have lost what was written from From on, and came back at To
)

// A span of time.
type span struct{ from, to time.Time }

// silence is when a worker may have been without contact: a trouble, and of connections the time that a loop then waits
// before it tries again, which is no longer than the trouble was and a sixth of a lease at most (with dialing, a second more).
// Spans less than a quarter of a lease apart are one, since renewals come each eighth.
func silence(troubles []Trouble, worker string, lease time.Duration) (spans []span) {
	for _, t := range troubles {
		if t.Worker != "" && t.Worker != worker {
			continue
		}
		s := span{t.From, t.To}
		switch t.Sort {
		case Crash, Left, Loss, Gone:
			continue
		case Cutoff, Outage, Slow:
			s.to = s.to.Add(min(t.To.Sub(t.From), 1500*time.Millisecond) + 200*time.Millisecond)
		}
		spans = append(spans, s)
	}
	return merge(spans, lease/4)
}

// shared is when the silence of others says nothing to a worker. It takes over nothing until it has heard of Redis for a
// lease without a gap of more than half of one; so where Redis itself was gone for longer than that, others must have
// been silent for a lease after it: that time and an eighth more do not count, and seven eighths are asked for.
//
// What Redis had answered before, a worker that was stopped or cut off reads later: only from then on its gap counts.
func shared(troubles []Trouble, worker string, lease time.Duration) (spans []span) {
	for _, gone := range troubles {
		if gone.Sort != Gone {
			continue
		}
		from := gone.From
		for _, t := range troubles {
			own := t.Worker == worker && (t.Sort == Stopped || t.Sort == Hung || t.Sort == Cutoff)
			if own && !t.From.After(gone.From) && t.To.After(from) {
				from = t.To
			}
		}
		if gone.To.Sub(from) > lease/2 {
			spans = append(spans, span{gone.From, gone.To.Add(lease / 8)})
		}
	}
	return spans
}

// without are spans less what they have in common with another.
func without(spans []span, other span) (rest []span) {
	for _, s := range spans {
		for _, part := range []span{{s.from, earlier(s.to, other.from)}, {later(s.from, other.to), s.to}} {
			if part.from.Before(part.to) {
				rest = append(rest, part)
			}
		}
	}
	return rest
}

// merge makes one span of those that are less than gap apart.
func merge(spans []span, gap time.Duration) (merged []span) {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range spans {
		last := len(merged) - 1
		if last >= 0 && s.from.Sub(merged[last].to) < gap {
			merged[last].to = later(merged[last].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// overlap is how much of s lies between two moments.
func (s span) overlap(from, to time.Time) time.Duration {
	return max(0, earlier(s.to, to).Sub(later(s.from, from)))
}

// worlds are what befell each worker.
type worlds struct {
	troubles []Trouble
	lease    time.Duration
	silent   map[whose][]span   // as silences has it
	ends     map[string]Trouble // of lives: Crash or Left
	losses   []Trouble
}

// whose silence, and who is to take over for it; empty: nobody.
type whose struct{ worker, taker string }

func newWorlds(troubles []Trouble, lease time.Duration) *worlds {
	w := &worlds{troubles: troubles, lease: lease, silent: map[whose][]span{}, ends: map[string]Trouble{}}
	for _, t := range troubles {
		switch t.Sort {
		case Crash, Left:
			w.ends[t.Worker] = t
		case Loss:
			w.losses = append(w.losses, t)
		}
	}
	return w
}

// silences are when a worker may have been without contact, less what says nothing to the one who takes over.
func (w *worlds) silences(worker, taker string) []span {
	key := whose{worker, taker}
	spans, ok := w.silent[key]
	if !ok {
		spans = silence(w.troubles, worker, w.lease)
		if taker != "" {
			for _, s := range shared(w.troubles, taker, w.lease) {
				spans = without(spans, s)
			}
		}
		w.silent[key] = spans
	}
	return spans
}

// leaseOut reports whether the lease of a run may have run out before another began. It outlives a lease of silence; a
// renewal that came late for want of a processor leaves it an eighth less.
func (w *worlds) leaseOut(r, after Run) bool {
	from := r.Began.Add(-w.lease / 4)
	renewed := r.Began.Add(w.lease/4 + promptly)
	if s, ok := w.begunAfter(r, after.Worker); ok && (after.Began.Before(renewed) || w.lateStart(after)) {
		from = earlier(from, s.from) // the worker may have been given the job when it fell silent, or before
	}
	return slices.ContainsFunc(w.silences(r.Worker, after.Worker), func(s span) bool {
		return s.overlap(from, after.Began) >= w.enough()
	})
}

// promptly is how long a worker may take to begin what it was given, where nothing disturbs it.
const promptly = 500 * time.Millisecond

// enough is how long a silence is that a lease need not survive.
func (w *worlds) enough() time.Duration { return w.lease*7/8 - 100*time.Millisecond }

// begunAfter is the silence in or after which a run began, where there is one: what the worker was given before it,
// it may begin only now.
func (w *worlds) begunAfter(r Run, taker string) (span, bool) {
	spans := w.silences(r.Worker, taker)
	i := slices.IndexFunc(spans, func(s span) bool {
		return !s.from.After(r.Began) && r.Began.Sub(s.to) <= promptly
	})
	if i < 0 {
		return span{}, false
	}
	return spans[i], true
}

// lateStart reports whether a run began after a silence that a lease need not survive: its job may have been another
// worker's by then.
func (w *worlds) lateStart(r Run) bool {
	s, ok := w.begunAfter(r, r.Worker)
	return ok && s.overlap(s.from, r.Began) >= w.enough()
}

// settling is for how long after its end a run's outcome may still be on its way, where nothing disturbs it.
const settling = time.Second

// heldUntil is until when the outcome of a run may not have been written.
func (w *worlds) heldUntil(r Run) time.Time {
	if r.Ended.IsZero() {
		return time.Unix(1<<40, 0)
	}
	end := r.Ended.Add(settling)
	if r.Kind == Deaf && r.Outcome == Failed {
		end = end.Add(Overtime) // it is given up only then
	}
	for _, s := range w.silences(r.Worker, "") {
		if !s.from.After(end) && s.to.After(r.Ended) {
			end = later(end, s.to.Add(settling))
		}
	}
	return end
}

// troubled reports whether anything kept a worker from Redis between two moments.
func (w *worlds) troubled(worker string, from, to time.Time) bool {
	return slices.ContainsFunc(w.silences(worker, ""), func(s span) bool { return s.overlap(from, to) > 0 })
}

// lost reports whether Redis may have lost something that happened between two moments.
func (w *worlds) lost(from, to time.Time) bool {
	return slices.ContainsFunc(w.losses, func(l Trouble) bool { return !from.After(l.To) && !to.Before(l.From) })
}
