package jobs_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/steps"
)

// on schedules a job of kind once under a name.
func on(name string, when jobs.Schedule) func(*jobs.Runner) {
	return periodic(jobs.Periodic{Name: name, When: when})
}

func periodic(p jobs.Periodic) func(*jobs.Runner) {
	p.Job = once.Job(jobs.Fields{"schedule": p.Name})
	return func(r *jobs.Runner) { r.Schedule(p) }
}

// ticks are how often each tick of each schedule has run: "name 15:04:05".
func (rs *runs) ticks() map[string]int {
	all := map[string]int{}
	for _, job := range rs.all() {
		all[job.Fields["schedule"]+" "+job.Tick.UTC().Format(time.TimeOnly)]++
	}
	return all
}

// expected are ticks, each once.
func expected(ticks ...string) map[string]int {
	all := map[string]int{}
	for _, tick := range ticks {
		all[tick]++
	}
	return all
}

func same(t testing.TB, want, got map[string]int) {
	t.Helper()
	if maps.Equal(want, got) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %d times, not %d", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == 0 {
			t.Errorf("%s: %d times, and should not be", name, got[name])
		}
	}
}

// sched are the schedulers' keys and for how long they will live.
func (q *queue) sched() map[string]time.Duration {
	q.t.Helper()
	names, err := q.rdb.Keys(q.t.Context(), q.key("sched:*")).Result()
	must(q.t, err)
	all := map[string]time.Duration{}
	for _, name := range names {
		all[strings.TrimPrefix(name, q.prefix)] = q.rdb.PTTL(q.t.Context(), name).Val()
	}
	return all
}

func TestT01_ManyWorkersOneTick(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		for i := range 5 {
			time.Sleep(time.Duration(137*i) * time.Millisecond)
			q.hire(jobs.Config{}, sleeperOf(&rs, time.Millisecond), on("expire_holds", jobs.Every(30*time.Second)))
		}
		time.Sleep(92 * time.Second)
		same(t, expected("expire_holds 00:00:30", "expire_holds 00:01:00", "expire_holds 00:01:30"), rs.ticks())
		ids := map[string]bool{}
		for _, job := range rs.all() {
			ids[job.ID] = true
		}
		if len(ids) != 3 {
			t.Errorf("three ticks have %d IDs", len(ids))
		}
	})
}

func sleeperOf(rs *runs, d time.Duration) func(*jobs.Runner) {
	return handle(once, func(ctx context.Context, _ jobs.Fields) error {
		rs.add(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return nil
	})
}

// The same in real time: each tick once, whoever stops and starts meanwhile. They are far enough apart for a machine that
// stands still for a second: of two that are due at one look the first is not enqueued.
func TestTicksOnceWhileWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	const period = 3 * time.Second
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		hire := func() *worker {
			return q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(period)))
		}
		stays, other := hire(), hire()
		from := rs.wait(t, 1)[0].Tick
		for range 3 {
			rs.wait(t, len(rs.all())+1)
			must(t, other.stop())
			other = hire()
		}
		rs.wait(t, len(rs.all())+1)
		to := rs.all()[len(rs.all())-1].Tick
		must(t, other.stop())
		must(t, stays.stop())
		got := map[time.Time]int{}
		for _, job := range rs.all() {
			got[job.Tick.UTC()]++
		}
		for at := from; !at.After(to); at = at.Add(period) {
			if got[at.UTC()] != 1 {
				t.Errorf("the tick at %s ran %d times", at, got[at.UTC()])
			}
		}
	})
}

// Every so many minutes, hourly, daily at 03:00, by a cron expression, and in a location.
func TestSchedules(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		time.Sleep(2*time.Hour + 55*time.Minute)
		q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)),
			on("minutes", jobs.Every(2*time.Minute)), on("hours", jobs.Cron("@hourly")),
			on("daily", jobs.Daily(3, 0)), on("berlin", jobs.InZone(berlin, jobs.Daily(4, 0))),
			on("cron", jobs.Cron("57,59 2,17 * * SAT")), on("not today", jobs.Cron("57 2 * * MON-FRI")))
		time.Sleep(5*time.Minute + time.Second)
		same(t, expected("minutes 02:56:00", "minutes 02:58:00", "minutes 03:00:00", "hours 03:00:00",
			"daily 03:00:00", "berlin 03:00:00", "cron 02:57:00", "cron 02:59:00"), rs.ticks())
		for i, job := range rs.all() {
			if late := rs.times()[i].Sub(job.Tick); late < 0 || late > time.Second {
				t.Errorf("%s began %s after its tick", job.Fields["schedule"], late)
			}
		}
	})
}

// When a name is seen for the first time, nothing is enqueued for the past.
func TestAScheduleBeginsWithTheNextTick(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		time.Sleep(11 * time.Minute)
		q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("new", jobs.Every(2*time.Minute)))
		time.Sleep(50 * time.Second)
		same(t, expected(), rs.ticks())
		time.Sleep(time.Minute)
		same(t, expected("new 00:12:00"), rs.ticks())
	})
}

// A tick that was missed while nobody ran is enqueued late, once, the latest only; where it
// is to be skipped, none that is more than a minute late.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		missed jobs.Missed
		down   time.Duration // from 00:01:50 on; ticks are at 00:02, 00:04, …
		want   map[string]int
	}{
		"late":                  {jobs.Late, 220 * time.Second, expected("x 00:04:00", "x 00:06:00")},
		"skip":                  {jobs.Skip, 220 * time.Second, expected("x 00:06:00")},
		"skip, half a minute":   {jobs.Skip, 40 * time.Second, expected("x 00:02:00", "x 00:04:00", "x 00:06:00")},
		"late, nothing missed":  {jobs.Late, 5 * time.Second, expected("x 00:02:00", "x 00:04:00", "x 00:06:00")},
		"late, exactly at tick": {jobs.Late, 10 * time.Second, expected("x 00:02:00", "x 00:04:00", "x 00:06:00")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var rs runs
				hire := func() *hand {
					return q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)),
						periodic(jobs.Periodic{Name: "x", When: jobs.Every(2 * time.Minute), Missed: c.missed}))
				}
				midnight := time.Now()
				first := hire()
				time.Sleep(109 * time.Second)
				must(t, first.stop())
				time.Sleep(time.Until(midnight.Add(110*time.Second + c.down)))
				for range 2 { // of them one
					hire()
				}
				time.Sleep(time.Until(midnight.Add(6*time.Minute + 5*time.Second)))
				same(t, c.want, rs.ticks())
			})
		})
	}
}

// A deploy that changes an expression: each of the two versions enqueues its own ticks that
// are later than its first look, and an instant of both is one.
func TestTwoExpressionsWhileADeployRolls(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		hire := func(every time.Duration) *hand {
			return q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("x", jobs.Every(every)))
		}
		const v1, v2 = 20 * time.Second, 30 * time.Second
		old := hire(v1)
		time.Sleep(55 * time.Second) // 20, 40
		hire(v2)                     // its tick at 30 was before its first look
		time.Sleep(40 * time.Second) // 60 (of both), 80, 90
		must(t, old.stop())
		time.Sleep(60 * time.Second) // 120, 150
		hire(v2)
		time.Sleep(30 * time.Second) // 180
		same(t, expected("x 00:00:20", "x 00:00:40", "x 00:01:00", "x 00:01:20", "x 00:01:30",
			"x 00:02:00", "x 00:02:30", "x 00:03:00"), rs.ticks())
	})
}

func TestT15_RemovedAndRenamedSchedules(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		minute := jobs.Every(time.Minute)
		v1 := q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("a", minute), on("b", minute))
		time.Sleep(30 * time.Second)
		q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("a", minute), on("b2", minute))
		time.Sleep(2 * time.Minute)
		must(t, v1.stop())
		time.Sleep(3 * time.Minute)
		want := expected("b 00:01:00", "b 00:02:00")
		for i := range 5 {
			want[fmt.Sprintf("a 00:%02d:00", i+1)]++
			want[fmt.Sprintf("b2 00:%02d:00", i+1)]++
		}
		same(t, want, rs.ticks())
		for key, ttl := range q.sched() {
			if ttl <= 0 || ttl > 31*24*time.Hour {
				t.Errorf("%s lives for %s", key, ttl)
			}
		}
	})
}

// A tick is remembered for two periods and an hour at least, a schedule for three periods
// and thirty days.
func TestSchedulersKeysExpire(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		time.Sleep(115 * time.Minute)
		q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)),
			on("quick", jobs.Every(time.Minute)), on("slow", jobs.Every(2*time.Hour)))
		time.Sleep(5*time.Minute + time.Second)
		const day = 24 * time.Hour
		for key, want := range map[string]time.Duration{
			"sched:quick":           3*time.Minute + 30*day,
			"sched:slow":            6*time.Hour + 30*day,
			"sched:quick:946692000": time.Hour,
			"sched:slow:946692000":  4 * time.Hour,
		} {
			if ttl := q.sched()[key]; ttl < want-5*time.Second || ttl > want+day {
				t.Errorf("%s lives for %s, not %s", key, ttl, want)
			}
		}
		if n := len(q.sched()); n > 2+6+1 {
			t.Errorf("%d keys of two schedules", n)
		}
	})
}

// clock has a function put Redis's clock, which goes on, ahead of ours, until stop.
func (q *queue) clock() (put func(ahead time.Duration), stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ahead atomic.Int64
	var clock sync.WaitGroup
	clock.Go(func() {
		for ctx.Err() == nil {
			q.mini.SetTime(time.Now().Add(time.Duration(ahead.Load())))
			time.Sleep(10 * time.Millisecond)
		}
	})
	return func(d time.Duration) { ahead.Store(int64(d)) }, func() {
		cancel()
		clock.Wait()
	}
}

// Redis's clock was a day ahead for a moment. What ticked then is one tick, and the next comes when it is due.
func TestRedisClockIsPutBack(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T, q *queue) {
			var rs runs
			put, stop := q.clock()
			defer stop()
			hire := func() {
				q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("x", jobs.Every(time.Minute)))
			}
			hire()
			time.Sleep(10*time.Minute + time.Second)
			put(24 * time.Hour)
			time.Sleep(3 * time.Second)
			if late { // who begins at the wrong time
				hire()
				time.Sleep(3 * time.Second)
			}
			before := len(rs.all())
			put(0)
			time.Sleep(30 * time.Minute)
			if n := len(rs.all()) - before; n != 30 || before != 11 {
				t.Errorf("%d ticks before, and %d in half an hour", before, n)
			}
			seen := map[time.Time]bool{}
			for _, job := range rs.all() {
				seen[job.Tick] = true
			}
			if len(seen) != len(rs.all()) {
				t.Errorf("%d ticks are %d jobs", len(seen), len(rs.all()))
			}
		})
	}
}

// onceAt is due at one time, and then when all is over.
type onceAt struct{ at time.Time }

func (s onceAt) Next(after time.Time) time.Time {
	if after.Before(s.at) {
		return s.at
	}
	return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
}

func TestAScheduleWhoseFollowingTickIsFarAway(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		at := q.now().Add(2 * time.Second).Truncate(time.Second)
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("x", onceAt{at}))
		if tick := rs.wait(t, 1)[0].Tick; !tick.Equal(at) {
			t.Errorf("it ticked for %s", tick)
		}
	})
}

// Redis's clock says which tick it is, whatever the workers' clocks say.
func TestSkewedClocksOfWorkers(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{10*time.Minute + 7*time.Second, -10*time.Minute - 7*time.Second} {
		bubble(t, func(t *testing.T, q *queue) {
			var rs runs
			put, stop := q.clock()
			defer stop()
			put(skew)
			time.Sleep(time.Second)
			for range 2 {
				q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("x", jobs.Every(time.Minute)))
			}
			time.Sleep(2*time.Minute + time.Second)
			if got := rs.ticks(); len(got) != 2 || len(rs.all()) != 2 {
				t.Errorf("ticks %v", got)
			}
			for i, job := range rs.all() {
				if late := rs.times()[i].Add(skew).Sub(job.Tick); late < 0 || late > 1100*time.Millisecond {
					t.Errorf("began %s after its tick, by Redis's clock", late)
				}
			}
		})
	}
}

func TestT12_TheLoopWasLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		w := q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("x", jobs.Every(time.Minute)))
		time.Sleep(2*time.Minute - 500*time.Millisecond)
		w.cut()
		time.Sleep(2500 * time.Millisecond)
		w.mend()
		time.Sleep(time.Minute)
		same(t, expected("x 00:01:00", "x 00:02:00", "x 00:03:00"), rs.ticks())
		if late := rs.times()[1].Sub(rs.all()[1].Tick); late > 4*time.Second {
			t.Errorf("%s late", late)
		}
	})
}

// A job that takes longer than the period of its schedule overlaps: each tick is a job.
func TestT17_ASlowPeriodicJobOverlapsItself(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		var c crew
		for range 2 {
			q.hire(jobs.Config{}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
				defer c.enter()()
				rs.add(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Second):
				}
				return nil
			}), on("slow", jobs.Every(20*time.Second)))
		}
		time.Sleep(2*time.Minute + 10*time.Second)
		if len(rs.all()) != 6 || c.peak() != 3 {
			t.Errorf("%d runs, %d at once", len(rs.all()), c.peak())
		}
	})
}

// Slots that are busy for hours are no reason to restart a worker, nor is a worker that is
// emptying itself.
func TestABusyWorkerIsHealthy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		w := q.hire(jobs.Config{Slots: 2}, sleeper(&rs), handle(suspicious, record[jobs.Fields](&rs)))
		q.enqueue(sleep(5*time.Minute), sleep(6*time.Minute))
		time.Sleep(time.Second)
		q.suspects(1, 0)
		for range 8 {
			time.Sleep(time.Minute)
			if err := w.Healthy(); err != nil {
				t.Fatal(err)
			}
		}
		if len(rs.all()) != 3 {
			t.Errorf("%d runs", len(rs.all()))
		}
	})
}

// odd is due each minute; while the clock on the wall is between two times its answer is another.
type odd struct {
	from, to string
	answer   func(after time.Time) time.Time
}

func (o odd) Next(after time.Time) time.Time {
	if clock := time.Now().UTC().Format(time.TimeOnly); o.from <= clock && clock < o.to {
		return o.answer(after)
	}
	return jobs.Every(time.Minute).Next(after)
}

// A schedule that cannot tell when it is due is said in the log now and then, and goes on
// when it can; others tick on time all along.
func TestAScheduleThatGivesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(time.Time) time.Time{
		"panics":             func(time.Time) time.Time { panic("no calendar") },
		"ends its goroutine": func(time.Time) time.Time { runtime.Goexit(); return time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var rs runs
				var log journal
				var es events
				w := q.hire(jobs.Config{Logger: log.logger(t), Observe: es.observe}, handle(once, record[jobs.Fields](&rs)),
					on("odd", odd{"00:01:30", "00:04:30", answer}), on("other", jobs.Every(30*time.Second)))
				time.Sleep(5*time.Minute + time.Second)
				same(t, expected("odd 00:01:00", "odd 00:04:00", "odd 00:05:00",
					"other 00:00:30", "other 00:01:00", "other 00:01:30", "other 00:02:00", "other 00:02:30",
					"other 00:03:00", "other 00:03:30", "other 00:04:00", "other 00:04:30", "other 00:05:00"), rs.ticks())
				for i, job := range rs.all() {
					if late := rs.times()[i].Sub(job.Tick); job.Fields["schedule"] == "other" && late > time.Second {
						t.Errorf("the other was %s late", late)
					}
				}
				lines := log.lines(t, "trouble with schedule odd")
				if len(lines) < 2 || len(lines) > 4 || len(log.lines(t, "working again")) != 1 {
					t.Errorf("said: %v", lines)
				}
				for _, line := range lines {
					if err := line["err"].(string); name == "panics" && (!strings.Contains(err, "no calendar") || !strings.Contains(err, "scheduler_test.go")) {
						t.Errorf("said: %s", err)
					}
				}
				if n := len(es.of(jobs.EventTrouble, "")); n != 0 {
					t.Errorf("told of as trouble with Redis, %d times", n)
				}
				must(t, w.stop())
			})
		})
	}
}

// To a test that goes by package jobstest it is an error.
func TestAScheduleThatPanicsFailsATest(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		r := jobs.NewRunner(q.Client, jobs.Config{})
		on("odd", odd{"00:01:00", "00:02:00", func(time.Time) time.Time { panic("no calendar") }})(r)
		driver := steps.Of(r).(interface {
			Begin(context.Context) error
			Tick(context.Context) error
		})
		must(t, driver.Begin(t.Context()))
		for i, fails := range []bool{false, false, true, false} {
			if err := driver.Tick(t.Context()); fails != (err != nil) || fails && !strings.Contains(err.Error(), `schedule "odd": panic: no calendar`) {
				t.Errorf("look %d: %v", i, err)
			}
			time.Sleep(40 * time.Second)
		}
	})
}

// An answer that cannot be is no reason to ask Redis more often than each second.
func TestAScheduleThatTellsNonsense(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(time.Time) time.Time{
		"never again":     func(time.Time) time.Time { return time.Time{} },
		"now":             func(after time.Time) time.Time { return after },
		"before":          func(after time.Time) time.Time { return after.Add(-time.Hour) },
		"before the era":  func(time.Time) time.Time { return time.Time{}.Add(-time.Hour) },
		"a moment later":  func(after time.Time) time.Time { return after.Add(1) },
		"a little later":  func(after time.Time) time.Time { return after.Add(time.Millisecond) },
		"the end of time": func(time.Time) time.Time { return time.Unix(1<<62, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				const seconds = 60
				var rs runs
				q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)),
					on("odd", odd{"00:01:30", "00:09:30", answer}), on("other", jobs.Every(time.Minute)))
				time.Sleep(2*time.Minute + 30*time.Second)
				before, ran := q.mini.CommandCount(), len(rs.all())
				time.Sleep(seconds * time.Second)
				if n := q.mini.CommandCount() - before; n > 10*seconds+40*(len(rs.all())-ran) {
					t.Errorf("%d commands in %d s, with %d runs", n, seconds, len(rs.all())-ran)
				}
				if rs.ticks()["other 00:03:00"] != 1 {
					t.Errorf("the other did not tick: %v", rs.ticks())
				}
			})
		})
	}
}
