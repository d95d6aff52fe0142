package dashboard

// The last hour as drawings, one step a minute. They are SVG in the page, drawn with attributes alone, since the page's
// policy allows no style in it.

import (
	"fmt"
	"strings"
	"time"

	"github.com/stagedoor/jobs"
)

const steps = 60 // minutes

// hour is the last hour's minutes, oldest first; those of which nothing is known are zero.
type hour [steps]jobs.Minute

// lastHour orders what is known by minute. Redis's clock may be ahead of ours.
func lastHour(known []jobs.Minute, now time.Time) *hour {
	end := now.Truncate(time.Minute)
	if n := len(known); n > 0 && known[n-1].At.After(end) {
		end = known[n-1].At.Truncate(time.Minute)
	}
	h := new(hour)
	for i := range h {
		h[i].At = end.Add(time.Duration(i-steps+1) * time.Minute)
	}
	for _, m := range known {
		if i := steps - 1 - int(end.Sub(m.At)/time.Minute); i >= 0 && i < steps {
			h[i] = m
		}
	}
	return h
}

// course is how one depth went, as a line.
type course struct {
	Path        string
	Least, Most int64
	Known       bool
}

const courseWidth, courseHeight = 4 * (steps - 1), 36

// courseOf draws a depth, with a gap where no worker ran.
func (h *hour) courseOf(depth func(jobs.Stats) int64) course {
	var c course
	for _, m := range h {
		if m.Depth == nil {
			continue
		}
		n := depth(*m.Depth)
		if !c.Known {
			c = course{Least: n, Most: n, Known: true}
		}
		c.Least, c.Most = min(c.Least, n), max(c.Most, n)
	}
	var b strings.Builder
	pen := "M"
	for i, m := range h {
		if m.Depth == nil {
			pen = "M"
			continue
		}
		y := height(depth(*m.Depth), c.Most, courseHeight-2)
		fmt.Fprintf(&b, "%s%d %.1fh.1", pen, i*4, float64(courseHeight)-1-y) // a lone minute is a dot
		pen = "L"
	}
	c.Path = b.String()
	return c
}

// height is how high n stands where most stands at full.
func height(n, most int64, full float64) float64 {
	if most <= 0 {
		return 0
	}
	return float64(n) / float64(most) * full
}

// A bar is a minute's runs by how they ended, one part on the other.
type bar struct {
	X     int
	Title string
	Parts []part
}

type part struct {
	Class     string
	Y, Height float64
}

type bars struct {
	Bars []bar
	Most int64
	From time.Time
}

const barWidth, barsHeight = 10, 110

// ended draws how many runs ended how.
func (h *hour) ended() bars {
	b := bars{From: h[0].At}
	sums := make([]jobs.Outcomes, steps)
	for i, m := range h {
		sums[i] = sum(m.Kinds)
		b.Most = max(b.Most, runs(sums[i]))
	}
	for i, o := range sums {
		if runs(o) == 0 {
			continue
		}
		one := bar{X: i * barWidth, Title: fmt.Sprintf("%s: %s done, %s to be retried, %s dead",
			h[i].At.UTC().Format("15:04"), number(o.Done), number(o.Retried), number(o.Dead))}
		y := float64(barsHeight)
		for _, p := range [...]struct {
			class string
			n     int64
		}{{"done", o.Done}, {"retried", o.Retried}, {"died", o.Dead}} {
			if p.n == 0 {
				continue
			}
			high := max(1.5, height(p.n, b.Most, barsHeight-6)) // one in a million is seen too
			y -= high
			one.Parts = append(one.Parts, part{p.class, y, high})
		}
		b.Bars = append(b.Bars, one)
	}
	return b
}

func runs(o jobs.Outcomes) int64 { return o.Done + o.Retried + o.Dead }

func sum(kinds map[string]jobs.Outcomes) (all jobs.Outcomes) {
	for _, o := range kinds {
		all = add(all, o)
	}
	return all
}

func add(a, b jobs.Outcomes) jobs.Outcomes {
	return jobs.Outcomes{
		Done: a.Done + b.Done, Retried: a.Retried + b.Retried, Snoozed: a.Snoozed + b.Snoozed,
		Dead: a.Dead + b.Dead, Released: a.Released + b.Released, Parked: a.Parked + b.Parked,
	}
}
