package jobs

import (
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/store"
)

// What a sweep does about a pending entry, in the order in which it asks.
func TestJudge(t *testing.T) {
	t.Parallel()
	const lease, overdue, hour = 8 * time.Second, 9 * time.Second, time.Hour
	own := func(j judgement) judgement { j.own = true; return j }
	here := func(j judgement) judgement { j.own, j.here = true, true; return j }
	unknownHere := func(j judgement) judgement { j.known = false; return j }
	patient := func(j judgement) judgement { j.permitted = 5; return j }
	for name, c := range map[string]struct {
		idle       time.Duration
		deliveries int
		gone       bool
		as         func(judgement) judgement
		want       fate
		wait       time.Duration
	}{
		"the lease lasts":                         {idle: 6 * time.Second, deliveries: 1, want: leave, wait: 3 * time.Second},
		"it has just run out":                     {idle: lease, deliveries: 1, want: leave, wait: time.Second},
		"overdue":                                 {idle: overdue, deliveries: 1, want: claim},
		"a suspect, the lease lasts":              {idle: overdue - 1, deliveries: 2, want: leave, wait: 1},
		"a suspect":                               {idle: overdue, deliveries: 2, want: isolate},
		"handed over before anybody ran it":       {idle: overdue, deliveries: 0, want: claim},
		"delivered as often as permitted":         {idle: overdue, deliveries: 3, want: leave, wait: 5*lease - overdue},
		"almost poison":                           {idle: 5*lease - 1, deliveries: 3, want: leave, wait: 1},
		"poison":                                  {idle: 5 * lease, deliveries: 3, want: poison},
		"poison, and more than that":              {idle: 5 * lease, deliveries: 9, want: poison},
		"permitted more often":                    {idle: 5 * lease, deliveries: 3, as: patient, want: claim},
		"permitted more often, a suspect":         {idle: overdue, deliveries: 4, as: patient, want: isolate},
		"permitted more often, poison":            {idle: 5 * lease, deliveries: 5, as: patient, want: poison},
		"its body is gone":                        {idle: lease / 2, deliveries: 1, gone: true, want: drop},
		"its body is gone, delivered too often":   {idle: hour, deliveries: 9, gone: true, want: drop},
		"ours, its body is gone":                  {idle: lease / 2, deliveries: 1, gone: true, as: own, want: drop},
		"it runs here":                            {idle: hour, deliveries: 1, as: here, want: leave, wait: lease},
		"it runs here, and its body is gone":      {idle: hour, deliveries: 1, gone: true, as: here, want: leave, wait: lease},
		"it runs here, for the last time":         {idle: hour, deliveries: 3, as: here, want: leave, wait: lease},
		"ours, never arrived":                     {idle: lease / 2, deliveries: 1, as: own, want: claim},
		"ours, never arrived, the last but one":   {idle: lease / 2, deliveries: 2, as: own, want: claim},
		"ours, never arrived, the last":           {idle: lease / 2, deliveries: 3, as: own, want: isolate},
		"ours, never arrived, the last, for long": {idle: hour, deliveries: 3, as: own, want: isolate},
		"a kind not known here":                   {idle: overdue, deliveries: 1, as: unknownHere, want: leave, wait: lease},
		"a suspect of a kind not known here":      {idle: overdue, deliveries: 2, as: unknownHere, want: leave, wait: lease},
		"no poison where the kind is not known":   {idle: 5 * lease, deliveries: 3, as: unknownHere, want: leave, wait: lease},
		"not known here for an hour":              {idle: hour, deliveries: 3, as: unknownHere, want: unknown},
	} {
		j := judgement{known: true, permitted: 3, lease: lease, overdue: overdue}
		if c.as != nil {
			j = c.as(j)
		}
		p := store.Pending{ID: "1-1", Idle: c.idle, Deliveries: c.deliveries, Gone: c.gone}
		if got, wait := judge(p, j); got != c.want || wait != c.wait {
			t.Errorf("%s: %d after %s; want %d after %s", name, got, wait, c.want, c.wait)
		}
	}
}
