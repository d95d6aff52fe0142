//go:build unix

package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	chaosJobs    = flag.Int("chaos.jobs", 1200, "how many jobs TestChaos sends")
	chaosWorkers = flag.Int("chaos.workers", 4, "how many worker processes it has")
	chaosSeed    = flag.Uint64("chaos.seed", 0, "of its plan; 0: a new one")
	chaosLease   = flag.Duration("chaos.lease", 2*time.Second, "of its workers")
	chaosLength  = flag.Duration("chaos.length", 0, "for how long it disturbs them; 0: by the number of jobs")
	chaosSpare   = flag.Bool("chaos.spare", true, "no worker is killed during a job's last permitted delivery")
	chaosRedis   = flag.String("chaos.redis", "always", "appendfsync: always; everysec; or powercut: everysec, and what was not synchronized is cut off")
	chaosPlan    = flag.Bool("chaos.plan", false, "print the plan")
)

// A fleet lives through a plan of crashes, pauses, cuts and outages, and its whole history is in order. Read the
// comment of the package first; -chaos.jobs and -chaos.workers make it the long one. It has the machine to itself.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of chaos")
	}
	o := chaosOptions(t)
	plan := Plan(o.seed, o.workers, o.length, o.lease)
	if *chaosPlan {
		for _, e := range plan {
			fmt.Println(e)
		}
	}
	fmt.Printf("chaos: %d jobs, %d workers, lease %s, %d deeds in %s, redis %s, seed: %d\n",
		o.jobs, o.workers, o.lease, len(plan), o.length, o.redis, o.seed)
	f := newFleet(t, o)
	history := f.live(plan, Scripts(o.seed, o.jobs))
	report := history.Check()
	f.publish(report)
	if !report.Clean() {
		findings := report.Findings()
		t.Errorf("repeat with -chaos.seed=%d -chaos.jobs=%d -chaos.workers=%d -chaos.redis=%s\n%s\n%s", o.seed, o.jobs,
			o.workers, o.redis, strings.Join(findings[:min(20, len(findings))], "\n"), troubles(history))
	}
}

// troubles are all of a history's, for whoever has to find out.
func troubles(h *History) string {
	var b strings.Builder
	slices.SortFunc(h.Troubles, func(x, y Trouble) int { return x.From.Compare(y.From) })
	for _, t := range h.Troubles {
		fmt.Fprintf(&b, "    %s to %s %s %s\n", clock(t.From), clock(t.To), t.Sort, t.Worker)
	}
	return b.String()
}

func chaosOptions(t *testing.T) options {
	o := options{
		seed: *chaosSeed, jobs: *chaosJobs, workers: *chaosWorkers, lease: *chaosLease, length: *chaosLength,
		spare: *chaosSpare, redis: *chaosRedis,
		args: []string{"--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--appendfsync", *chaosRedis},
	}
	switch o.redis {
	case "always", "everysec":
	case "powercut":
		o.args[len(o.args)-1] = "everysec"
	default:
		t.Fatalf("-chaos.redis=%s: always, everysec or powercut", o.redis)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000)
	}
	if o.length == 0 {
		o.length = max(25*time.Second, time.Duration(o.jobs)*time.Second/150)
	}
	return o
}

// live is the run: workers up, jobs and deeds, and then in peace until nothing is left to do.
func (f *fleet) live(plan []Event, scripts []Script) *History {
	idle, looks := 0, 0
	f.eventually(time.Minute, "every worker is up", func() bool {
		if f.consumers() < len(f.members) {
			return false
		}
		looks++
		idle = f.goroutines()
		return idle > 0 && looks > 20 // each second they tell of themselves; at first Run has not begun
	})
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { f.probe(ctx) })
	if f.o.redis == "powercut" {
		f.aof = f.watchFile(ctx, &all)
	}
	var busy sync.WaitGroup
	busy.Go(func() { f.produce(scripts, f.o.length) })
	busy.Go(func() { f.carryOut(plan) })
	busy.Wait()
	disturbed := time.Since(began)
	f.settle(idle)
	fmt.Printf("chaos: disturbed for %.0f s, and at rest after %.0f s\n", disturbed.Seconds(), time.Since(began).Seconds())
	stop()
	all.Wait()
	f.close()
	if n := f.consumers(); n != 0 {
		f.Errorf("%d consumers are left though every worker left in peace", n)
	}
	return f.collect()
}

// settle waits until everything has come to its end, and the fleet is as it was before.
func (f *fleet) settle(idle int) {
	for _, m := range f.members { // the deploy is over: all know every kind
		if p := m.life.Load(); m.blind.Load() != "" {
			m.busy.Lock()
			m.roll(p, "")
			m.busy.Unlock()
		}
	}
	f.eventually(5*time.Minute, "nothing is ready, running or delayed", func() bool {
		st, err := f.direct.Stats(context.Background())
		return err == nil && st.Ready+st.Running+st.Delayed == 0
	})
	f.eventually(time.Minute, "no more consumers than workers", func() bool { // Redis 7.0 forgets who is idle
		n := f.consumers()
		return n >= 0 && n <= len(f.members)
	})
	f.eventually(time.Minute, fmt.Sprintf("not more than %d goroutines in any worker", idle+5), func() bool {
		now := f.goroutines()
		return now > 0 && now <= idle+5
	})
}

// publish prints the figures, the line of all of them last.
func (f *fleet) publish(r Report) {
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	say := func(what string, figures map[string]int) {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(figures)) {
			parts = append(parts, fmt.Sprintf("%s: %d", name, figures[name]))
		}
		fmt.Printf("chaos: %s: %s\n", what, strings.Join(parts, ", "))
	}
	done, troubles := map[string]int{}, map[string]int{}
	for deed, n := range f.journal.done {
		done[string(deed)] = n
	}
	for _, t := range f.journal.Troubles {
		troubles[string(t.Sort)]++
	}
	say("done to the fleet", done)
	say("troubles recorded", troubles)
	say("runs beyond the first, explained", r.Explained)
	fmt.Printf("chaos: dead: %d, replayed: %d, perhaps sent: %d, of these in: %d, ticks: %d, struck at their last delivery: %d, else wrong: %d\n",
		r.Dead, r.Replayed, r.Uncertain, r.UncertainIn, r.TicksRun, len(r.Struck), len(r.Wrong))
	if f.o.redis != "always" {
		fmt.Printf("chaos: what Redis lost (appendfsync %s): %d findings\n", f.o.redis, len(r.LostByRedis))
	}
	fmt.Printf("%s, seed: %d\n", r, f.o.seed)
}
