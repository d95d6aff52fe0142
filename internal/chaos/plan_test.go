package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// The same seed is the same plan and the same jobs, and another seed is not.
func TestSeed(t *testing.T) {
	t.Parallel()
	plan := func(seed uint64) []Event { return Plan(seed, 10, time.Minute, 2*time.Second) }
	if !slices.Equal(plan(7), plan(7)) || slices.Equal(plan(7), plan(8)) {
		t.Error("plans")
	}
	if !slices.Equal(Scripts(7, 500), Scripts(7, 500)) || slices.Equal(Scripts(7, 500), Scripts(8, 500)) {
		t.Error("jobs")
	}
}

// Each deed and each kind comes up, deeds in the order of their times, and none to a worker that suffers another.
func TestPlan(t *testing.T) {
	t.Parallel()
	plan := Plan(1, 4, time.Minute, 2*time.Second)
	deeds, free, last := map[Deed]int{}, map[int]time.Duration{}, time.Duration(0)
	for _, e := range plan {
		deeds[e.Deed]++
		toWorker := slices.Contains(toWorkers, e.Deed)
		if e.At < last || e.At > time.Minute || toWorker && e.At < free[e.Worker] || e.For > 5*time.Second {
			t.Errorf("%s", e)
		}
		if last = e.At; toWorker {
			free[e.Worker] = e.At + e.For
		}
	}
	if len(deeds) != 13 {
		t.Errorf("%d deeds: %v", len(deeds), deeds)
	}
	for seed := range uint64(20) { // a short plan has what is done to workers too
		dealt := map[Deed]bool{}
		for _, e := range Plan(seed, 4, 25*time.Second, 2*time.Second) {
			dealt[e.Deed] = true
		}
		for _, d := range toWorkers {
			if !dealt[d] {
				t.Errorf("no %s with seed %d", d, seed)
			}
		}
	}
	kinds := map[string]int{}
	for _, s := range Scripts(1, 1200) {
		kinds[s.Kind]++
	}
	if len(kinds) != len(Kinds)-len(Schedules) {
		t.Errorf("%d kinds: %v", len(kinds), slices.Sorted(maps.Keys(kinds)))
	}
}

// A line that came twice counts once; what cannot be joined is an error.
func TestJoin(t *testing.T) {
	t.Parallel()
	const (
		began = `{"what":"began","worker":"a","run":1,"at":2000000,"job":"x","kind":"steady"}`
		ended = `{"what":"ended","worker":"a","run":1,"at":3000000,"job":"x","kind":"steady","outcome":"done"}`
		other = `{"what":"began","worker":"b","run":1,"at":1000000,"job":"x","kind":"steady"}`
		hung  = `{"what":"stalled","worker":"b","since":1000000,"at":2000000}`
	)
	runs, stalls, err := Join([]string{began, began, ended, other, hung})
	if err != nil || len(runs) != 2 || len(stalls) != 1 {
		t.Fatalf("%d runs, %d stalls: %v", len(runs), len(stalls), err)
	}
	if runs[0].Worker != "b" || !runs[0].Ended.IsZero() || runs[1].Outcome != Done || runs[1].Ended.Sub(runs[1].Began) != time.Second {
		t.Errorf("%v", runs)
	}
	if s := stalls[0]; s.Sort != Hung || s.To.Sub(s.From) != time.Second {
		t.Errorf("%v", s)
	}
	for _, bad := range []string{"rubbish", ended} {
		if _, _, err := Join([]string{bad}); err == nil {
			t.Errorf("%q is joined", bad)
		}
	}
}
