package jobs_test

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/stagedoor/jobs"
	codec "github.com/stagedoor/jobs/internal/fields"
)

// catchUp lets the model do what a worker has to have done by now, or will do without
// anything more being asked of it.
func (w *walk) catchUp(now time.Time) {
	if w.worker == nil {
		return
	}
	looked, err := w.rdb.Exists(w.t.Context(), w.key("sched:"+beat.Name())).Result()
	must(w.t, err)
	if looked > 0 { // a worker, at the schedule
		w.beats.expect(now)
	}
	for _, j := range w.all {
		switch {
		case j.unknown:
			w.strand(j, now)
		case j.place == ready:
			w.run(j)
		case j.place == delayed && !j.due.IsZero() && !j.due.After(now):
			j.from = j.due
			w.run(j)
		case j.place == running && j.deliveries < 3:
			w.run(j)
		case j.place == running: // silent for five leases, of which from counts one
			w.bury(j, j.attempts+3, jobs.ReasonPoison, j.from.Add(4*w.lease))
		}
	}
}

// strand has a job of an unknown kind wait for its end: an hour after it was first fetched
// by a worker that lives, or last by one that died.
func (w *walk) strand(j *walked, now time.Time) {
	due := j.place == delayed && !j.due.IsZero() && !j.due.After(now)
	first := j.since.IsZero()
	switch {
	case j.place == running:
		j.least = j.from.Add(unknownFor - w.lease)
		j.place, j.most = limbo, later(now, j.least).Add(2*time.Minute)
		return
	case j.place == ready && first:
		j.since = j.from
	case due && first:
		j.since = j.due
	case j.place != ready && !due:
		return
	}
	if first {
		j.latest = now.Add(unknownFor)
	}
	j.place, j.least, j.most = limbo, j.since.Add(unknownFor), later(now, j.latest).Add(2*time.Minute)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// run is one run, at some time between what the job waited for and now.
func (w *walk) run(j *walked) {
	j.want++
	j.lower = j.from
	j.deliveries, j.entry, j.due = 0, "", time.Time{}
	wait := time.Duration(0)
	err := w.outcome(j.n, j.want)
	switch a := verdict(err, j.attempts); a {
	case jobs.ReasonFailed:
		w.bury(j, j.attempts+1, a, j.from)
		return
	case "":
		j.place = gone
		return
	case "snooze":
		wait = walkSnooze
	case "retry":
		wait = walkBackoff
		j.attempts++
	}
	j.place, j.least, j.most = delayed, j.from.Add(wait), time.Time{}
	j.wait = wait
}

// verdict is the model's own reading of a policy with two retries.
func verdict(err error, attempts int) jobs.Reason {
	switch {
	case err == nil:
		return ""
	case err == errSeat && attempts < 2:
		return "retry"
	case err == errSeat || err.Error() == errSeat.Error():
		return jobs.ReasonFailed
	}
	return "snooze"
}

func (w *walk) bury(j *walked, tried int, reason jobs.Reason, from time.Time) {
	j.place, j.attempts, j.reason, j.from = dead, tried, reason, from
	j.deliveries, j.entry, j.due = 0, "", time.Time{}
}

// seen is a job as the store has it.
type seen struct {
	place                place
	attempts, deliveries int
	due, died            time.Time
	entry                string
	reason               jobs.Reason
	fields               jobs.Fields
	parked               bool // a worker has not known its kind
	times                int  // it is there
}

// look is all of the store, by IDs.
func (w *walk) look() map[string]seen {
	w.t.Helper()
	all := map[string]seen{}
	add := func(id string, s seen) {
		s.times = all[id].times + 1
		all[id] = s
	}
	fetched := map[string]delivery{}
	if len(w.entries("jobs")) > 0 && w.group() == nil {
		for _, d := range w.deliveries() {
			fetched[d.entry] = d
		}
	}
	messages, err := w.rdb.XRange(w.t.Context(), w.key("jobs"), "-", "+").Result()
	must(w.t, err)
	for _, m := range messages {
		s := seen{place: ready, entry: m.ID, fields: jobs.Fields{}}
		for name, value := range m.Values {
			s.fields[name] = value.(string)
		}
		if s.fields["kind"] == beat.Name() {
			continue
		}
		s.attempts, s.parked = count(s.fields["attempts"]), s.fields["unknown_since"] != ""
		if d, ok := fetched[m.ID]; ok {
			s.place, s.deliveries = running, int(d.n)
		}
		add(s.fields["job_id"], s)
	}
	parked := map[string]bool{}
	members, err := w.rdb.ZRange(w.t.Context(), w.key("delayed"), 0, -1).Result()
	must(w.t, err)
	for _, member := range members {
		m, err := codec.ParseMember(member)
		must(w.t, err)
		parked[m["job_id"]] = m["unknown_since"] != ""
	}
	for _, d := range w.delayed() {
		add(d.ID, seen{place: delayed, attempts: d.Attempts, due: d.Due, fields: d.Fields, parked: parked[d.ID]})
	}
	for _, d := range w.dead() {
		add(d.ID, seen{place: dead, attempts: d.Attempts, entry: d.Entry, reason: d.Reason, died: d.Died, fields: d.Fields})
	}
	return all
}

func count(digits string) (n int) {
	for _, c := range digits {
		n = 10*n + int(c-'0')
	}
	return n
}

// compare says where the store differs from the model, and lets the model learn when things
// are due.
func (w *walk) compare(now time.Time) error {
	store := w.look()
	for _, j := range w.all {
		s := store[j.ID]
		delete(store, j.ID)
		if err := w.compareOne(j, s, now); err != nil {
			return err
		}
	}
	for id := range store {
		return differ(&walked{}, "%s is in the store, and in no model", id)
	}
	if w.worker == nil {
		return nil // it may have left one behind, for the next
	}
	return w.beats.compare()
}

func (w *walk) compareOne(j *walked, s seen, now time.Time) error {
	w.mu.Lock()
	ran := w.ran[j.ID]
	w.mu.Unlock()
	switch {
	case len(ran) != j.want:
		return differ(j, "it has run %d times, want %d", len(ran), j.want)
	case j.want > 0 && ran[j.want-1].Add(time.Millisecond).Before(j.lower):
		return differ(j, "it ran at %s, before %s", ran[j.want-1], j.lower)
	case j.place == gone && s.times == 0:
		return nil
	case s.times != 1:
		return differ(j, "it is there %d times", s.times)
	case s.fields["bytes"] != "\xff" || count(s.fields["n"]) != j.n:
		return differ(j, "its fields are %q", s.fields)
	case j.place == limbo:
		return w.compareLimbo(j, s, now)
	case s.place != j.place || s.attempts != j.attempts || s.deliveries != j.deliveries || s.reason != j.reason && j.place == dead:
		return differ(j, "%s with %d attempts and %d deliveries, %s", s.place, s.attempts, s.deliveries, s.reason)
	}
	return w.learn(j, s)
}

// learn takes over what the model cannot know: names, and times within their bounds.
func (w *walk) learn(j *walked, s seen) error {
	const slack = time.Millisecond // of a stream ID, and of rounding
	j.entry = s.entry
	most := j.most
	if most.IsZero() {
		most = w.now().Add(j.wait)
	}
	switch {
	case j.place == dead && s.died.Add(slack).Before(j.from):
		return differ(j, "it died at %s, before %s", s.died, j.from)
	case j.place != delayed:
	case j.due.IsZero() && (s.due.Before(j.least) || s.due.After(most.Add(slack))):
		return differ(j, "it is due at %s, not between %s and %s", s.due, j.least, most)
	case j.due.IsZero():
		j.due = s.due
	case !j.due.Equal(s.due):
		return differ(j, "it is due at %s, and was at %s", s.due, j.due)
	}
	return nil
}

// compareLimbo: a job of an unknown kind comes and goes, and dies in time.
func (w *walk) compareLimbo(j *walked, s seen, now time.Time) error {
	const slack = time.Second // it has waited since a whole second
	switch {
	case s.attempts != j.attempts:
		return differ(j, "%d attempts", s.attempts)
	case s.place != dead && now.After(j.most):
		return differ(j, "%s with %d deliveries at %s, and should be dead since %s", s.place, s.deliveries, now, j.most)
	case s.place != dead:
		return nil
	case s.reason != jobs.ReasonUnknownKind || s.died.Add(slack).Before(j.least):
		return differ(j, "dead (%s) at %s, not from %s on", s.reason, s.died, j.least)
	}
	j.place, j.reason, j.entry, j.deliveries, j.from = dead, s.reason, s.entry, 0, j.least.Add(-slack)
	return nil
}

// beats are the ticks of a schedule, in epoch seconds. While a worker runs each is one run; of those that came while
// nobody ran the latest is; and none is from before anybody first looked.
type beats struct {
	up   time.Time // the worker looks since then
	last int64     // that the model knows of
	want map[int64]int

	mu  sync.Mutex
	ran map[int64]int
}

// period meets no other time of the walk.
const period = 433

var beat = jobs.NewKind[jobs.None]("beat", jobs.Policy{})

func newBeats() *beats { return &beats{want: map[int64]int{}, ran: map[int64]int{}} }

func (b *beats) register(r *jobs.Runner) {
	jobs.Handle(r, beat, func(ctx context.Context, _ jobs.None) error {
		job, _ := jobs.FromContext(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ran[job.Tick.Unix()]++
		return nil
	})
	r.Schedule(jobs.Periodic{When: jobs.Every(period * time.Second), Job: beat.Job(jobs.None{})})
}

// next is how long it is until the next tick.
func (b *beats) next(now time.Time) time.Duration {
	return (period - time.Duration(now.Unix()%period)) * time.Second
}

// expect is called once somebody has looked: of what was before that nothing comes.
func (b *beats) expect(now time.Time) {
	missed := b.up.Unix() / period * period
	if b.last == 0 {
		b.last = missed
	}
	if missed > b.last {
		b.add(missed)
	}
	for next := b.last + period; next <= now.Unix(); next += period {
		b.add(next)
	}
}

func (b *beats) add(tick int64) {
	b.want[tick], b.last = 1, max(b.last, tick)
}

// left learns what a worker has left in the stream when it stopped.
func (b *beats) left(entries []jobs.Fields) {
	for _, e := range entries {
		if at, err := time.Parse(time.RFC3339, e["scheduled_at"]); err == nil && e["kind"] == beat.Name() {
			b.add(at.Unix())
		}
	}
}

func (b *beats) compare() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if maps.Equal(b.ran, b.want) {
		return nil
	}
	for tick := range b.want {
		if b.ran[tick] != 1 {
			return differ(&walked{}, "the tick %d has run %d times", tick, b.ran[tick])
		}
	}
	return differ(&walked{}, "ticks have run that were not due: %v, want %v", b.ran, b.want)
}
