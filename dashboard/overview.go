package dashboard

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/stagedoor/jobs"
)

// overview is how the queue is.
type overview struct {
	Stats    jobs.Stats
	Workers  int
	Slots    int
	Tiles    []tile
	Ended    bars
	Kinds    []kindHour
	Findings []jobs.Finding
	Troubles []string // what could not be read
}

// A tile is a figure and how it went.
type tile struct {
	Name, Value, Note, Link string
	Bad                     bool
	Course                  course
}

// kindHour is what became of a kind's runs in the last hour.
type kindHour struct {
	Kind string
	jobs.Outcomes
	Course course
}

// Runs are those that ended for good or will be repeated.
func (k kindHour) Runs() int64 { return runs(k.Outcomes) }

// PutOff are those that did not count: snoozed, given back at a shutdown, or of a kind not known to the worker.
func (k kindHour) PutOff() int64 { return k.Snoozed + k.Released + k.Parked }

// Failed are the runs that ended in an error.
func (k kindHour) Failed() int64 { return k.Retried + k.Dead }

func (d *dashboard) overview(ctx context.Context, _ url.Values) (page, error) {
	var o overview
	var err error
	if o.Stats, err = d.client.Stats(ctx); err != nil {
		return page{}, err
	}
	o.trouble("the last hour", d.readHour(ctx, &o))
	o.trouble("what is wrong", d.readFindings(ctx, &o))
	return page{Name: "overview", Tab: "./", Title: "Overview", Data: o, Live: true}, nil
}

func (o *overview) trouble(what string, err error) {
	if err != nil {
		o.Troubles = append(o.Troubles, what+" could not be read: "+err.Error())
	}
}

func (d *dashboard) readHour(ctx context.Context, o *overview) error {
	workers, err := d.client.Workers(ctx)
	var known []jobs.Minute
	if err == nil {
		known, err = d.client.History(ctx, time.Now().Add(-steps*time.Minute))
	}
	for _, w := range workers {
		if !w.Seen.IsZero() {
			o.Workers++
			o.Slots += w.Slots
		}
	}
	h := lastHour(known, time.Now())
	if len(known) > 0 {
		h[steps-1].Depth = &o.Stats // the present: what the minute was counted with may be older
	}
	o.Tiles = o.tiles(h)
	o.Ended = h.ended()
	o.Kinds = h.kinds()
	return err
}

func (o *overview) tiles(h *hour) []tile {
	s := o.Stats
	running := number(o.Slots) + " slots of " + count(o.Workers, "worker", "workers")
	oldest := age(s.OldestReady)
	if s.Ready == 0 {
		oldest = "–"
	}
	return []tile{
		{Name: "Ready", Value: number(s.Ready), Course: h.courseOf(func(s jobs.Stats) int64 { return s.Ready })},
		{Name: "Oldest waiting", Value: oldest, Bad: s.OldestReady > time.Minute,
			Course: h.courseOf(func(s jobs.Stats) int64 { return int64(s.OldestReady.Seconds()) }), Note: "seconds"},
		{Name: "Running", Value: number(s.Running), Note: running, Link: "workers", Bad: o.Workers == 0,
			Course: h.courseOf(func(s jobs.Stats) int64 { return s.Running })},
		{Name: "Delayed", Value: number(s.Delayed), Link: "delayed",
			Course: h.courseOf(func(s jobs.Stats) int64 { return s.Delayed })},
		{Name: "Dead", Value: number(s.Dead), Link: "dead", Bad: s.Dead > 0,
			Course: h.courseOf(func(s jobs.Stats) int64 { return s.Dead })},
	}
}

// kinds sums the hour up by kind, those that fail first.
func (h *hour) kinds() []kindHour {
	all := make(map[string]jobs.Outcomes)
	for _, m := range h {
		for kind, o := range m.Kinds {
			all[kind] = add(all[kind], o)
		}
	}
	var list []kindHour
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		list = append(list, kindHour{Kind: kind, Outcomes: all[kind], Course: h.perMinute(kind)})
	}
	slices.SortStableFunc(list, func(a, b kindHour) int { return int(b.Dead - a.Dead) })
	return list
}

// perMinute draws a kind's runs; a minute without any is none, not unknown.
func (h *hour) perMinute(kind string) course {
	all := new(hour)
	for i, m := range h {
		all[i].Depth = &jobs.Stats{Ready: runs(m.Kinds[kind])}
	}
	return all.courseOf(func(s jobs.Stats) int64 { return s.Ready })
}

// health is what Diagnose found, kept for a while: the overview is read every few seconds by each person who looks.
type health struct {
	mu       sync.Mutex
	at       time.Time
	findings []jobs.Finding
}

const healthFor = 20 * time.Second

func (d *dashboard) readFindings(ctx context.Context, o *overview) error {
	d.health.mu.Lock()
	defer d.health.mu.Unlock()
	if d.health.at.IsZero() || time.Since(d.health.at) > healthFor {
		findings, err := d.client.Diagnose(ctx)
		if err != nil {
			return err
		}
		d.health.at, d.health.findings = time.Now(), findings
	}
	for _, f := range d.health.findings {
		if f.Level == jobs.LevelError || f.Level == jobs.LevelWarning {
			o.Findings = append(o.Findings, f)
		}
	}
	return nil
}
