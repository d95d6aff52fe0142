package crashes

import (
	"fmt"
	"strconv"
	"strings"
)

// A Job is one that a scenario knows of, and what is right to happen to it. The zero value but for its ID is a job that
// was in the queue for certain, and runs until it has ended well or was dead-lettered because of an error.
type Job struct {
	ID         string
	Attempts   int    // made before
	Deliveries int    // that ended in silence before
	Buried     string // the reason for which it is dead-lettered without being run
	Stays      string // a place where it is left alone, unless the victim takes it from there
	Vanishes   bool   // the victim may take it away for good
	Absent     bool   // it was not enqueued
	Unsure     bool   // it may have been enqueued
}

// Case is what there is to judge.
type Case struct {
	Jobs    []Job
	Ticks   []string // that are to become a job each
	History *History
	Cut     *State // when the victim was dead
	End     *State // when the others had settled everything
	Victim  string // what its consumer's name begins with
}

// Verdict counts what is not right, and says it.
type Verdict struct {
	Jobs, Lost, Doubled, Wrong int // Wrong: dead letters
	Notes                      []string
}

// permitted deliveries before a job is poison.
const permitted = 3

// Judge judges. A run beyond the first is explained by the run before it: it was put off, or it ended with a retry, or
// its process died before its outcome was written.
func (c Case) Judge() Verdict {
	v := Verdict{Jobs: len(c.Jobs)}
	for _, job := range c.Jobs {
		c.job(&v, job)
	}
	c.others(&v)
	for _, key := range append(c.Cut.Lasting, c.End.Lasting...) {
		v.note("key %q never expires", key)
	}
	if n := len(c.End.Pending) + c.End.Bodiless; n > 0 {
		v.note("%d entries are pending at the end", n)
	}
	return v
}

func (v *Verdict) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

func (v *Verdict) lost(job, why string) {
	v.Lost++
	v.note("lost: %s: %s", job, why)
}

func (v *Verdict) doubled(job, why string) {
	v.Doubled++
	v.note("unexplained double: %s: %s", job, why)
}

func (v *Verdict) wrong(job, why string) {
	v.Wrong++
	v.note("wrong dead letter: %s: %s", job, why)
}

func (c Case) job(v *Verdict, job Job) {
	cut, end, runs := c.Cut.Places[job.ID], c.End.Places[job.ID], c.History.Of(job.ID)
	nowhere := len(cut) == 0 && len(runs) == 0
	switch {
	case len(cut) > 1 || len(end) > 1:
		v.doubled(job.ID, fmt.Sprintf("it is in several places: %v, then %v", cut, end))
	case nowhere && (job.Absent || job.Unsure || job.Vanishes):
		if len(end) > 0 {
			v.doubled(job.ID, "it came back")
		}
	case job.Absent:
		v.doubled(job.ID, "it was refused, and is in")
	case job.Stays != "" && len(cut) == 1 && cut[0].Where == job.Stays:
		c.still(v, job, end, runs)
	default:
		c.deliveries(v, job)
		c.walk(v, job, runs, end)
	}
}

// still judges a job that nobody was to touch.
func (c Case) still(v *Verdict, job Job, end []Place, runs []Run) {
	switch {
	case len(runs) > 0:
		v.doubled(job.ID, "it ran, and was to stay "+job.Stays)
	case len(end) == 0 || end[0].Where != job.Stays:
		v.lost(job.ID, "it was to stay "+job.Stays)
	}
}

// deliveries judges how often Redis says that a pending job was delivered.
func (c Case) deliveries(v *Verdict, job Job) {
	held, ok := c.Cut.Pending[job.ID]
	most := int64(job.Deliveries)
	if strings.HasPrefix(held.Owner, c.Victim) {
		most++
	}
	if ok && held.Deliveries > most {
		v.note("%s: %d deliveries are counted, %d were made", job.ID, held.Deliveries, most)
	}
}

// walk follows a job from run to run: each is owed by the one before.
func (c Case) walk(v *Verdict, job Job, runs []Run, end []Place) {
	silent := job.Deliveries
	if strings.HasPrefix(c.Cut.Pending[job.ID].Owner, c.Victim) {
		silent++
	}
	p := path{attempts: job.Attempts, owed: true}
	for i, run := range runs {
		poison := job.Deliveries >= permitted || silent >= permitted && !run.Victim
		if !p.owed || poison || job.Buried != "" {
			v.doubled(job.ID, fmt.Sprintf("run %d of %+v", i+1, runs))
			return
		}
		if run.Attempts != p.attempts {
			v.note("%s: run %d of %+v has %d attempts, want %d", job.ID, i+1, runs, run.Attempts, p.attempts)
		}
		if last := i+1 == len(runs) || !runs[i+1].Victim; run.Victim && last && c.unwritten(run) {
			continue
		}
		if p.follow(run.End); run.End == Open {
			v.note("%s: run %d of %+v never ended, and nobody died", job.ID, i+1, runs)
		}
	}
	switch {
	case job.Buried != "":
		dead(v, job.ID, end, job.Buried, p.attempts)
	case p.expired:
		dead(v, job.ID, end, Failed, p.attempts+1)
	case p.owed && silent >= permitted:
		dead(v, job.ID, end, Poison, p.attempts+silent)
	default:
		gone(v, job.ID, end, p.owed)
	}
}

// path is how far a job has come.
type path struct {
	attempts int  // made
	owed     bool // one more run
	expired  bool // no more, since the last permitted one has failed
}

// follow takes a job to where a run that ended so leaves it.
func (p *path) follow(end End) {
	switch end {
	case Retried:
		p.attempts++
	case Finished:
		p.owed = false
	case Expired:
		p.owed, p.expired = false, true
	}
}

// unwritten says that the last run in the process that died has no outcome: its entry was pending then.
func (c Case) unwritten(run Run) bool {
	_, pending := c.Cut.Pending[run.Job]
	if !pending {
		return false
	}
	attempts, _ := strconv.Atoi(c.Cut.Places[run.Job][0].Fields["attempts"]) // absent: 0
	return attempts == run.Attempts
}

// dead judges a job that is to be a dead letter.
func dead(v *Verdict, id string, end []Place, reason string, attempts int) {
	switch {
	case len(end) == 0 || end[0].Where != Dead:
		v.lost(id, fmt.Sprintf("it is no dead letter (%s) but %v", reason, end))
	case end[0].reason() != reason || end[0].Fields["attempts"] != strconv.Itoa(attempts):
		v.wrong(id, fmt.Sprintf("want %s after %d attempts: %v", reason, attempts, end[0].Fields))
	}
}

// gone judges a job that is to have ended well.
func gone(v *Verdict, id string, end []Place, owed bool) {
	switch {
	case len(end) > 0 && end[0].Where == Dead:
		v.wrong(id, fmt.Sprintf("%v", end[0].Fields))
	case owed:
		v.lost(id, fmt.Sprintf("it never ended; at the end: %v", end))
	case len(end) > 0:
		v.doubled(id, fmt.Sprintf("it has ended, and is still there: %v", end))
	}
}

// others judges ticks, and finds jobs that nobody knows of.
func (c Case) others(v *Verdict) {
	known := map[string]bool{}
	for _, job := range c.Jobs {
		known[job.ID] = true
	}
	ticks := map[string]int{} // jobs of each
	for id, tick := range c.found() {
		if known[id] {
			continue
		}
		v.Jobs++
		c.job(v, Job{ID: id})
		if ticks[tick]++; tick == "" {
			v.doubled(id, "nobody enqueued it")
		}
	}
	for _, tick := range c.Ticks {
		if ticks[tick] == 0 {
			v.lost("tick "+tick, "it never became a job")
		}
		ticks[tick]--
	}
	for tick, n := range ticks {
		if n > 0 && tick != "" {
			v.doubled("tick "+tick, fmt.Sprintf("%d jobs too many", n))
		}
	}
}

// found are the jobs that were anywhere, by ID, and the ticks that they are of.
func (c Case) found() map[string]string {
	found := map[string]string{}
	for _, id := range c.History.jobs() {
		found[id] = c.History.Of(id)[0].Tick
	}
	for _, state := range []*State{c.Cut, c.End} {
		for id, places := range state.Places {
			if at := places[0].Fields["scheduled_at"]; at != "" {
				found[id] = places[0].Fields["schedule"] + "@" + at
			} else if _, ok := found[id]; !ok {
				found[id] = ""
			}
		}
	}
	return found
}
