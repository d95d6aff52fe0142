package jobs_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// isTick is true of the command that makes a tick a job.
func isTick(cmd []string) bool {
	return strings.EqualFold(cmd[0], "eval") && strings.Contains(cmd[1], "A tick becomes a job")
}

// The same on a real connection that stands still. The ticks are far enough apart for a machine that does, too: of two that
// are due at one look the first is not enqueued.
func TestT12_TheConnectionStoodStill(t *testing.T) {
	t.Parallel()
	const period = 6 * time.Second
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		var rs runs
		q.start(jobs.Config{Lease: 10 * time.Second}, handle(once, record[jobs.Fields](&rs)), on("x", jobs.Every(period)))
		first := rs.wait(t, 1)[0].Tick
		next := first.Add(period)
		eventually(t, "half a second before the next", func() bool { return q.now().After(next.Add(-500 * time.Millisecond)) })
		proxy.Stall(true)
		eventually(t, "a second after it", func() bool { return q.now().After(next.Add(time.Second)) })
		proxy.Stall(false)
		all := rs.wait(t, 3)
		for i, job := range all[:3] {
			if want := first.Add(time.Duration(i) * period); !job.Tick.Equal(want) {
				t.Errorf("tick %d is %s, not %s", i, job.Tick, want)
			}
		}
	})
}

// Wherever the connection breaks, a tick is one entry.
func TestT03_TheConnectionBreaksAtATick(t *testing.T) {
	t.Parallel()
	const period = 3 * time.Second
	for name, action := range map[string]servers.Action{
		"before it is sent": servers.CutBefore, "before the reply": servers.SwallowReply,
	} {
		for workers := range 2 {
			t.Run(fmt.Sprint(workers+1, " workers, ", name), func(t *testing.T) {
				t.Parallel()
				through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
					var rs runs
					var n atomic.Int32
					proxy.Hook(func(cmd []string) servers.Action {
						if isTick(cmd) && n.Add(1)%2 == 0 {
							return action
						}
						return servers.Pass
					})
					for range workers + 1 {
						q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(period)))
					}
					all := rs.wait(t, 4)
					for i, job := range all[1:] {
						if !job.Tick.Equal(all[i].Tick.Add(period)) {
							t.Errorf("the tick at %s came after that at %s", job.Tick, all[i].Tick)
						}
					}
				})
			})
		}
	}
}

// A worker whose lock command fails has not won.
func TestT06_AnErrorIsNotAWin(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]servers.Action{
		"reset": servers.CutBefore, "OOM": servers.ReplyError("OOM command not allowed when used memory > 'maxmemory'."),
		"NOPERM": servers.ReplyError("NOPERM User has no permissions to run the 'set' command"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
				var a, b runs
				var log journal
				proxy.Hook(func(cmd []string) servers.Action {
					if isTick(cmd) {
						return action
					}
					return servers.Pass
				})
				beat := on("beat", jobs.Every(time.Second))
				loser := q.start(jobs.Config{Worker: "b", Logger: log.logger(t)}, handle(once, record[jobs.Fields](&b)), beat)
				direct := newQueue(t, q.rdb, q.prefix)
				winner := direct.start(jobs.Config{Worker: "a"}, handle(once, record[jobs.Fields](&a)), beat)
				eventually(t, "b has tried", func() bool { return len(log.lines(t, "trouble")) > 0 })
				eventually(t, "three ticks", func() bool { return len(a.all())+len(b.all()) >= 3 })
				must(t, loser.stop())
				must(t, winner.stop())
				locks := 0
				for key := range q.sched() {
					if strings.Count(key, ":") != 2 {
						continue
					}
					locks++
					if by := q.rdb.Get(t.Context(), q.key(key)).Val(); !strings.HasPrefix(by, "a-") {
						t.Errorf("%s was enqueued by %s", key, by)
					}
				}
				if n := len(a.all()) + len(b.all()) + int(direct.stats().Ready); n != locks {
					t.Errorf("%d jobs of %d ticks", n, locks)
				}
				if lines := log.lines(t, "trouble"); lines[0]["level"] != "WARN" || lines[0]["loop"] != "tick" {
					t.Errorf("b said %v", lines)
				}
			})
		})
	}
}

func TestT13_ManySchedulesOverASlowLink(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		schedules := 500
		if isMini(t) {
			schedules = 100 // it is several times slower
		}
		var rs runs
		proxy.Delay(20 * time.Millisecond)
		for range 3 {
			q.start(jobs.Config{Slots: 50}, handle(once, record[jobs.Fields](&rs)), manyBeats(schedules))
		}
		eachOnce(t, rs.wait(t, 2*schedules))
	})
}

// A trip of 20 ms for each of 500 schedules would take longer than until they are due again.
func TestManySchedulesOverASlowLinkAreInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		const schedules = 500
		var rs runs
		for range 3 {
			w := q.hire(jobs.Config{Slots: 50}, handle(once, record[jobs.Fields](&rs)), manyBeats(schedules))
			w.far(20 * time.Millisecond)
		}
		time.Sleep(15*time.Second - 1)
		all := rs.all()
		eachOnce(t, all)
		for i, job := range all {
			if late := rs.times()[i].Sub(job.Tick); late > 2*time.Second {
				t.Errorf("%s late for %s", late, job.Tick)
			}
		}
		if len(all) != 2*schedules {
			t.Errorf("%d runs", len(all))
		}
	})
}

// manyBeats are schedules that are due together, each 5 s.
func manyBeats(n int) func(*jobs.Runner) {
	return func(r *jobs.Runner) {
		for i := range n {
			on(fmt.Sprint("s", i), jobs.Every(5*time.Second))(r)
		}
	}
}

// eachOnce checks that no tick has become two jobs.
func eachOnce(t *testing.T, all []jobs.Job) {
	t.Helper()
	got := map[string]int{}
	for _, job := range all {
		got[fmt.Sprint(job.Fields["schedule"], job.Tick)]++
	}
	for tick, n := range got {
		if n != 1 {
			t.Errorf("%s ran %d times", tick, n)
		}
	}
}
