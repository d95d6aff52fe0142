package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/servers"
)

func TestMain(m *testing.M) {
	if inChild() { // the process that the kill is about
		return
	}
	os.Exit(servers.Main(m))
}

func tiny(at addresses) spec {
	return spec{At: at, Sizes: sizes{Jobs: 200, Due: 200, Failing: 200, Pickups: 20, Patience: 50 * time.Millisecond}}
}

func TestEachMeasureOfOursAndTheFloors(t *testing.T) {
	t.Parallel()
	for _, peer := range []string{"ours", "floor", "strict", "raw"} {
		e, err := entryOf(peer)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(e.measures) {
			t.Run(peer+"/"+name, func(t *testing.T) {
				t.Parallel()
				if name == "kill" && testing.Short() {
					t.Skip("it takes a lease")
				}
				s := tiny(addresses{Redis: servers.NewRedis(t).Addr()})
				s.Peer, s.Measure = peer, name
				f, err := take(t.Context(), s)
				if err != nil || len(f) == 0 {
					t.Fatalf("%v, %v", f, err)
				}
				for metric, value := range f {
					if !(value > 0) && !strings.HasSuffix(metric, "_cpu") { // so little work may cost less than the clock shows
						t.Errorf("%s is %v", metric, value)
					}
				}
			})
		}
	}
}

// What a floor asks of Redis is known, and so the counting can be checked: for each 100 jobs XREADGROUP, XACK and XDEL,
// and a few commands to begin with.
func TestCommandsAndTripsAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		peer  string
		trips float64 // for each 100 jobs
	}{{"floor", 2}, {"raw", 1}} {
		t.Run(c.peer, func(t *testing.T) {
			t.Parallel()
			s := tiny(addresses{Redis: servers.NewRedis(t).Addr()})
			s.Peer, s.Measure, s.Sizes.Jobs = c.peer, "drain64", 5000
			f, err := take(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if commands := f["drain64.commands"] * 100; commands < 3 || commands > 3.3 {
				t.Errorf("%.3f commands for 100 jobs, want 3", commands)
			}
			if trips := f["drain64.trips"] * 100; trips < c.trips || trips > c.trips+0.3 {
				t.Errorf("%.3f round trips for 100 jobs, want %g", trips, c.trips)
			}
		})
	}
}

func TestGrowth(t *testing.T) {
	t.Parallel()
	redis := servers.NewRedis(t)
	o := options{rounds: 1, big: 0.001, idle: 300 * time.Millisecond, sizes: tiny(addresses{}).Sizes}
	rs, err := o.growth(t.Context(), addresses{Redis: redis.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	table := rs.growthTable(1)
	for _, c := range growthCases {
		if !(rs.median(c.name, "growth.rate") > 0) || !strings.Contains(table, c.name) {
			t.Errorf("%s: no figure in\n%s", c.name, table)
		}
	}
	svg := filepath.Join(t.TempDir(), "growth.svg")
	if err := writeFile(svg, rs.growthPicture(1)); err != nil {
		t.Fatal(err)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	rs := results{
		"ours":  {"drain8.rate": {90, 100, 10}, "due.late": {1100, 1300, 1100}, "drain64.commands": {0.1, 0.1, 0.2}},
		"asynq": {"drain8.rate": {10, 10, 10}},
		"floor": {"due.late": {100, 100, 100}},
	}
	want := map[string]bool{
		"drain, 8 slots: at least 8 × asynq":                        true,
		"due at once, last one late: at most 1.0 × (1 s + 2 floor)": true,
		"Redis commands a job, 64 slots: at most 0.15":              true,
	}
	got := rs.verdicts(3)
	if len(got) != len(want) {
		t.Fatalf("%d verdicts, want %d: %v", len(got), len(want), got)
	}
	for _, v := range got {
		if met, ok := want[v.Target]; !ok || met != v.Met {
			t.Errorf("%+v", v)
		}
	}
	rs["ours"]["due.late"] = []float64{1300, 1300, 1100}
	if v := rs.verdicts(3)[2]; v.Met {
		t.Errorf("met: %+v", v)
	}
}
