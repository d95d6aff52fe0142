package dashboard

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/stagedoor/jobs"
)

// delayed is a page of what is not due yet, the earliest first.
type delayed struct {
	Find  find
	Jobs  []waiting
	Total int64
	Seen  int    // jobs that were looked at and not chosen
	Next  string // where it goes on; empty: nowhere
}

// find is what a person looks for in delayed. It is not indexed: a page looks at so many jobs and then says where to go on.
type find struct{ ID, Kind, From, After string }

const maxLooked = 20_000

func (f find) Any() bool { return f.ID+f.Kind != "" }

func (f find) chooses(j jobs.DelayedJob) bool {
	return (f.ID == "" || f.ID == j.ID) && (f.Kind == "" || f.Kind == j.Kind)
}

func (f find) after(cursor string) string {
	return path("delayed", "id", f.ID, "kind", f.Kind, "from", f.From, "after", cursor)
}

// First is the first page of the same search.
func (f find) First() string { return path("delayed", "id", f.ID, "kind", f.Kind, "from", f.From) }

// waiting is a delayed job with its fields in one line.
type waiting struct {
	jobs.DelayedJob
	Brief []value
	More  int // fields that Brief leaves out
	Link  string
}

func (d *dashboard) delayed(ctx context.Context, form url.Values) (page, error) {
	v := delayed{Find: find{form.Get("id"), form.Get("kind"), form.Get("from"), form.Get("after")}}
	list, err := d.listed(ctx, v.Find)
	if err != nil {
		return page{}, err
	}
	last := ""
	for job, err := range list {
		if errors.Is(err, jobs.ErrNotFound) {
			return page{}, refusal{400, "There is no such page of the list."}
		}
		if err != nil {
			return page{}, err
		}
		if len(v.Jobs) == perPage || v.Seen == maxLooked {
			v.Next = v.Find.after(last)
			break
		}
		last = job.Cursor
		if !v.Find.chooses(job) {
			v.Seen++
			continue
		}
		v.Jobs = append(v.Jobs, waits(job))
	}
	stats, err := d.client.Stats(ctx)
	if err != nil {
		return page{}, err
	}
	v.Total = stats.Delayed
	live := !v.Find.Any()
	return page{Name: "delayed", Tab: "delayed", Title: "Delayed", Data: v, Live: live, Said: said(form)}, nil
}

// listed is what waits, from where a page of it begins.
func (d *dashboard) listed(ctx context.Context, f find) (iter.Seq2[jobs.DelayedJob, error], error) {
	from, err := f.time()
	switch {
	case err != nil:
		return nil, err
	case f.After == "":
		return d.client.Delayed().ListFrom(ctx, from), nil
	}
	return d.client.Delayed().ListAfter(ctx, f.After), nil
}

// time is when From begins: as a browser's field for a time writes it, in UTC.
func (f find) time() (time.Time, error) {
	if f.From == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, f.From); err == nil {
			return t, nil
		}
	}
	return time.Time{}, refusal{400, "A time is written as in 2026-03-29T03:00."}
}

func waits(job jobs.DelayedJob) waiting {
	const shown = 3
	w := waiting{DelayedJob: job, Link: path("job", place(job)...)}
	for i, name := range slices.Sorted(maps.Keys(job.Fields)) {
		if i == shown {
			w.More = len(job.Fields) - shown
			break
		}
		w.Brief = append(w.Brief, value{Name: name, Value: job.Fields[name]})
	}
	return w
}

// place is how a link names a delayed job: there is no name but the ID, and no index but the time.
func place(job jobs.DelayedJob) []string {
	return []string{"due", strconv.FormatInt(job.Due.UnixMicro(), 10), "id", job.ID, "kind", job.Kind}
}

// delayedJob is all of one delayed job.
type delayedJob struct {
	jobs.DelayedJob
	Values []value
}

func (d *dashboard) job(ctx context.Context, form url.Values) (page, error) {
	job, err := d.waiting(ctx, form)
	if err != nil {
		return page{}, err
	}
	v := delayedJob{DelayedJob: job}
	for _, name := range slices.Sorted(maps.Keys(job.Fields)) {
		all := url.Values{"name": {name}}
		for i, q := 0, place(job); i < len(q); i += 2 {
			all.Set(q[i], q[i+1])
		}
		v.Values = append(v.Values, value{Name: name, Value: job.Fields[name], All: "value?" + all.Encode()})
	}
	return page{Name: "job", Tab: "delayed", Title: "Delayed job", Data: v}, nil
}

func (d *dashboard) delayedValue(ctx context.Context, form url.Values) (page, error) {
	job, err := d.waiting(ctx, form)
	if err != nil {
		return page{}, err
	}
	return field(job.Fields, form.Get("name"))
}

// waiting finds a job by its place, among those that are due at the same time.
func (d *dashboard) waiting(ctx context.Context, form url.Values) (jobs.DelayedJob, error) {
	us, err := strconv.ParseInt(form.Get("due"), 10, 64)
	if err != nil {
		return jobs.DelayedJob{}, refusal{404, "There is no such delayed job."}
	}
	due := time.UnixMicro(us)
	f := find{ID: form.Get("id"), Kind: form.Get("kind")}
	for job, err := range d.client.Delayed().ListFrom(ctx, due.Add(-time.Millisecond)) {
		if err != nil {
			return jobs.DelayedJob{}, err
		}
		if job.Due.After(due.Add(time.Millisecond)) {
			break
		}
		if job.ID == f.ID && job.Kind == f.Kind {
			return job, nil
		}
	}
	return jobs.DelayedJob{}, refusal{404, "It is not delayed any more: it became due, or was cancelled."}
}
