package jobs

// A job in here is not due yet: it was enqueued with a time, it failed and will be tried
// again, or its kind was not known. The promote loop of every worker moves it to the stream
// when it is due, and a person may cancel it or run it now.

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// Delayed are the jobs that are not due yet.
type Delayed struct{ store *store.Store }

// Delayed returns the jobs that are not due yet.
func (c *Client) Delayed() *Delayed { return &Delayed{c.store} }

// A DelayedJob is a job and when it is due.
type DelayedJob struct {
	Job
	Due       time.Time
	LastError string // why it waits: the last attempt failed, or no worker that fetched it knew its kind
	Cursor    string // its place, for ListAfter
}

// List yields what waits, the earliest first, page by page: what is enqueued or becomes due
// meanwhile may be missed or come twice. An error is the last thing it yields.
func (d *Delayed) List(ctx context.Context) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) {
		err := d.store.Delayed(ctx, func(page []store.Member) bool {
			for _, m := range page {
				if job, ok := read(m); ok && !yield(job, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(DelayedJob{}, fmt.Errorf("jobs: list delayed: %w", err))
		}
	}
}

// read is a member as a job; rubbish is none.
func read(m store.Member) (DelayedJob, bool) {
	if m.Err != nil {
		return DelayedJob{}, false
	}
	job, err := parse("", m.Fields)
	job.Fields = record.Arguments(m.Fields)
	return DelayedJob{Job: job, Due: m.Due, LastError: lastError(m.Fields)}, err == nil
}

func lastError(m Fields) string {
	since, err := strconv.ParseInt(m["unknown_since"], 10, 64)
	if err != nil {
		return m["last_error"]
	}
	text := fmt.Sprintf("%s: no worker that fetched it has known it since %s", ReasonUnknownKind, time.Unix(since, 0).UTC().Format(time.RFC3339))
	if before := m["last_error"]; before != "" {
		text += "; before that: " + before
	}
	return text
}

// ListFrom yields what is due at from or later, the earliest first; the zero time: all. Its
// pages are found by due time, so that the first job comes at once wherever it begins. What
// is enqueued or becomes due meanwhile may be missed, and of jobs that are due in the same
// instant as that, another may be missed or come twice. An error is the last thing it yields.
func (d *Delayed) ListFrom(ctx context.Context, from time.Time) iter.Seq2[DelayedJob, error] {
	return d.from(ctx, store.From(from))
}

// ListAfter goes on where another list was left, after the job with this Cursor. What never was
// a Cursor is ErrNotFound.
func (d *Delayed) ListAfter(ctx context.Context, cursor string) iter.Seq2[DelayedJob, error] {
	place, ok := readCursor(cursor)
	if !ok {
		return func(yield func(DelayedJob, error) bool) {
			yield(DelayedJob{}, fmt.Errorf("jobs: list delayed: the Cursor %q: %w", cursor, ErrNotFound))
		}
	}
	return d.from(ctx, place)
}

func (d *Delayed) from(ctx context.Context, place store.Place) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) {
		err := d.store.DelayedFrom(ctx, place, func(page []store.Member, places []store.Place) bool {
			for i, m := range page {
				job, ok := read(m)
				if job.Cursor = writeCursor(places[i]); ok && !yield(job, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(DelayedJob{}, fmt.Errorf("jobs: list delayed: %w", err))
		}
	}
}

// A cursor is a due time and how many are passed that are due then.
func writeCursor(p store.Place) string {
	return strconv.FormatFloat(p.Score, 'f', -1, 64) + "/" + strconv.FormatInt(p.Skip, 10)
}

func readCursor(cursor string) (p store.Place, ok bool) {
	due, skip, _ := strings.Cut(cursor, "/")
	var err, bad error
	p.Score, err = strconv.ParseFloat(due, 64)
	p.Skip, bad = strconv.ParseInt(skip, 10, 64)
	return p, err == nil && bad == nil && p.Skip >= 0 && p.Skip < 1<<53 && !math.IsNaN(p.Score)
}

// Get returns the job with this ID: of several (kinds that share an ID) all, the earliest
// first. They have no Cursor. ErrNotFound where none waits.
//
// It has to read all of what waits, as Cancel and RunNow do, and takes as long as there are
// jobs: a million of 200 bytes cost Redis 7 four seconds of CPU and the caller one. They are
// 2,000 commands of 2 ms each, between which Redis serves others.
func (d *Delayed) Get(ctx context.Context, id string) ([]DelayedJob, error) {
	found, err := d.find(ctx, id)
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	list := make([]DelayedJob, 0, len(found))
	for _, w := range found {
		list = append(list, w.DelayedJob)
	}
	slices.SortFunc(list, func(a, b DelayedJob) int { return a.Due.Compare(b.Due) })
	return list, wrap(fmt.Sprintf("jobs: delayed job %q", id), err)
}

// Cancel takes the job with this ID away, so that it will never run: of several (kinds that
// share an ID) all, each in one step with its record in the audit trail. ErrNotFound where
// none waits (any more): of two people who cancel it one does. An answer that never came is
// ErrUncertain; with an error some of several may be gone. It reads all of what waits, as Get.
func (d *Delayed) Cancel(ctx context.Context, id string) error {
	return d.each(ctx, ActionCancel, id, d.store.Cancel)
}

// RunNow makes the job with this ID ready at once; otherwise as Cancel.
func (d *Delayed) RunNow(ctx context.Context, id string) error {
	return d.each(ctx, ActionRunNow, id, d.store.RunNow)
}

// each acts on all once they are found: one that runs now and fails at once is in delayed anew.
func (d *Delayed) each(ctx context.Context, what, id string, act func(context.Context, store.Member, store.Record) (bool, error)) error {
	all, err := d.find(ctx, id)
	found := false
	for _, raw := range slices.Sorted(maps.Keys(all)) {
		if err != nil {
			break
		}
		var acted bool
		acted, err = act(ctx, all[raw].Member, action(ctx, what, all[raw].Job))
		found, err = found || acted, unsure(err)
	}
	if err == nil && !found {
		err = ErrNotFound
	}
	return wrap(fmt.Sprintf("jobs: %s delayed job %q", what, id), err)
}

// waiting is a member of delayed, and the job that it is.
type waiting struct {
	store.Member
	DelayedJob
}

// find returns the members that are a job with this ID, by their text, since some are read twice.
func (d *Delayed) find(ctx context.Context, id string) (map[string]waiting, error) {
	if id == "" {
		return nil, nil // what has no ID is not to be named
	}
	found := map[string]waiting{}
	err := d.store.Scan(ctx, id, func(page []store.Member) error {
		for _, m := range page {
			if job, ok := read(m); ok && job.ID == id {
				found[m.Raw] = waiting{m, job}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// promoteWake is how long the promote loop waits at most. What this worker itself has put
// off for less than that, it wakes the loop for.
const promoteWake = time.Second

// promote is a step of the loop that moves due jobs to the stream.
func (r *Runner) promote(ctx context.Context) (time.Duration, error) {
	const page = 100
	for {
		r.loops["promote"].Beat() // all that is due is one step
		clock, due, err := r.store.Earliest(ctx)
		if err != nil {
			return 0, err
		}
		r.heard()
		if due.IsZero() {
			return promoteWake, nil
		}
		if due.After(clock) {
			return min(promoteWake, due.Sub(clock)), nil
		}
		members, err := r.store.Due(ctx, clock, page)
		if err == nil {
			err = r.move(ctx, members)
		}
		if err != nil || ctx.Err() != nil || len(members) < page {
			return time.Millisecond, err
		}
	}
}

// move moves due members: jobs to the stream, then rubbish to the dead letters.
func (r *Runner) move(ctx context.Context, members []store.Member) error {
	var good, bad []store.Member
	for _, m := range members {
		if m.Err == nil {
			good = append(good, m)
		} else {
			bad = append(bad, m)
		}
	}
	moved, err := r.store.Promote(ctx, good)
	if moved > 0 {
		r.observe(Event{What: EventPromoted, Late: max(0, r.store.Clock().Sub(good[0].Due))})
	}
	for _, m := range bad {
		if err != nil {
			break
		}
		err = r.buryMember(ctx, m)
	}
	return err
}

func (r *Runner) buryMember(ctx context.Context, m store.Member) error {
	text := fmt.Sprintf("%s: a member of delayed: %s", ReasonUndecodable, m.Err)
	dead := Fields{"raw": m.Raw, "attempts": "0", "error": record.Bounded(text, maxError), "traceback": ""}
	entry, dropped, err := r.store.BuryMember(ctx, m, r.cfg.KeepDead, dead)
	if err == nil && entry != "" {
		r.mournFor(entry, dead, ReasonUndecodable, dropped)
		r.buried(Job{ID: entry}, ReasonUndecodable, 0)
	}
	return err
}
