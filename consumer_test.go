package jobs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// pending is how many entries each worker owns.
func (q *queue) pending() map[string]int64 {
	q.t.Helper()
	p, err := q.rdb.XPending(q.t.Context(), q.key("jobs"), "workers").Result()
	must(q.t, err)
	return p.Consumers
}

// many are n jobs of a kind without arguments that matter.
func many(n int) []jobs.Job {
	js := make([]jobs.Job, n)
	for i := range js {
		js[i] = once.Job(jobs.Fields{"n": fmt.Sprint(i)})
	}
	return js
}

func TestFetchTakesNoMoreThanThereAreFreeSlots(t *testing.T) {
	t.Parallel()
	const slots = 3
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.enqueue(many(40)...)
		q.start(jobs.Config{Slots: slots}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			for _, n := range q.pending() {
				if n > slots {
					t.Errorf("%d entries fetched, for %d slots", n, slots)
				}
			}
			time.Sleep(rand.N(3 * time.Millisecond)) // so that slots fall free one by one
			return nil
		}))
		rs.wait(t, 40)
		q.idle()
	})
}

// Of what one trip has fetched none waits for another's handler, though a goroutine goes on with
// the next job where a handler has come back.
func TestWhatIsFetchedTogetherRunsTogether(t *testing.T) {
	t.Parallel()
	const several = 10
	waits := jobs.NewKind[jobs.None]("waits", jobs.Policy{})
	for name, others := range map[string]int{"alone": 0, "among others": several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				var rs runs
				all := many(others)
				for range others {
					all = append(all, ends.Job(jobs.None{}))
				}
				for range several {
					all = append(all, waits.Job(jobs.None{}))
				}
				rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				q.enqueue(all...)
				var here sync.WaitGroup
				here.Add(several)
				q.start(jobs.Config{Slots: len(all)}, handle(once, record[jobs.Fields](&rs)),
					handle(waits, func(context.Context, jobs.None) error {
						here.Done()
						here.Wait()
						return nil
					}),
					handle(ends, goexits))
				rs.wait(t, others)
				q.awaitDead(others)
				q.idle()
			})
		})
	}
}

func TestR11_FetchNoFurtherThanFreeSlots(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var slow, quick runs
		finish := make(chan struct{})
		long := jobs.NewKind[jobs.Fields]("long", jobs.Policy{})
		q.start(jobs.Config{Worker: "a", Lease: time.Minute}, handle(once, record[jobs.Fields](&slow)),
			handle(long, func(ctx context.Context, _ jobs.Fields) error {
				slow.add(ctx)
				<-finish
				return nil
			}))
		defer close(finish)
		for range 8 {
			q.enqueue(long.Job(nil))
		}
		slow.wait(t, 8)
		q.enqueue(many(8)...)
		q.start(jobs.Config{Worker: "b", Lease: time.Minute}, handle(once, record[jobs.Fields](&quick)))
		within(t, prompt, "the idle worker runs all 8", func() bool { return len(quick.all()) == 8 })
		if n := len(slow.all()); n != 8 {
			t.Errorf("the busy worker ran %d jobs", n)
		}
		for worker, n := range q.pending() {
			if n > 8 {
				t.Errorf("%s holds %d entries", worker, n)
			}
		}
	})
}

func TestC04_EnqueuedBeforeTheFirstWorker(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				var rs runs
				var log journal
				q.enqueue(many(10)...)
				for range workers {
					q.start(jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
				}
				within(t, prompt, "10 runs", func() bool { return len(rs.all()) == 10 })
				q.idle()
				if n := len(rs.all()); n != 10 {
					t.Errorf("%d runs", n)
				}
				if text := log.String(); strings.Contains(text, "BUSYGROUP") || strings.Contains(text, `"level":"WARN"`) {
					t.Errorf("logged: %s", text)
				}
			})
		})
	}
}

// blocked is how many connections wait in a blocking command.
func blocked(t testing.TB, admin *redis.Client) int {
	t.Helper()
	list, err := admin.ClientList(t.Context()).Result()
	must(t, err)
	n := 0
	for line := range strings.Lines(list) {
		if _, flags, ok := strings.Cut(line, " flags="); ok && strings.HasPrefix(flags, "b") {
			n++
		}
	}
	return n
}

// reads is how often entries were asked for so far.
func reads(t testing.TB, admin *redis.Client) (n int) {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	must(t, err)
	_, rest, _ := strings.Cut(info, "cmdstat_xreadgroup:calls=")
	_, err = fmt.Sscanf(rest, "%d,", &n)
	must(t, err)
	return n
}

func TestC09_BlockedReadsSpareThePool(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	admin := server.Client(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 3})
	t.Cleanup(func() { _ = rdb.Close() })
	q := newQueue(t, rdb, "")

	var mu sync.Mutex
	var took []time.Duration
	var rs runs
	child := jobs.NewKind[jobs.None]("child", jobs.Policy{})
	q.start(jobs.Config{}, handle(child, record[jobs.None](&rs)), handle(once, func(ctx context.Context, _ jobs.Fields) error {
		start := time.Now()
		err := q.Enqueue(ctx, child.Job(jobs.None{}))
		mu.Lock()
		took = append(took, time.Since(start))
		mu.Unlock()
		rs.add(ctx)
		if n := blocked(t, admin); n > 1 {
			t.Errorf("%d blocked connections of one worker", n)
		}
		return err
	}))
	eventually(t, "the idle worker waits on one connection", func() bool { return blocked(t, admin) == 1 })
	for before := reads(t, admin); reads(t, admin) < before+5; { // and never on more
		if n := blocked(t, admin); n > 1 {
			t.Fatalf("%d blocked connections of one idle worker", n)
		}
	}
	q.enqueue(many(200)...)
	eventually(t, "400 runs", func() bool { return len(rs.all()) == 400 })
	q.idle()
	slices.Sort(took)
	if st, p99 := q.stats(), took[len(took)*99/100]; st.Dead != 0 || p99 > time.Second {
		t.Errorf("p99 of Enqueue %s, dead letters %v", p99, q.dead())
	}
}

func TestS02_NothingStartsAfterStopAndNothingIsHoarded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var first, second runs
		const work = 300 * time.Millisecond
		cfg := jobs.Config{Lease: time.Minute, Grace: time.Minute}
		q.enqueue(many(40)...)
		w := q.start(cfg, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			first.add(ctx)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(work):
				return nil
			}
		}))
		first.wait(t, 8)
		began := time.Now()
		must(t, w.stop())
		if took, n := time.Since(began), len(first.all()); n != 8 || took > work+prompt {
			t.Errorf("ran %d, and stopped after %s", n, took)
		}
		if st := q.stats(); st.Running != 0 || st.Ready != 32 {
			t.Errorf("at the end of Run: %+v", st)
		}
		q.start(cfg, handle(once, record[jobs.Fields](&second)))
		within(t, prompt, "the other 32 run at once", func() bool { return len(second.all()) == 32 })
		q.idle()
		if n := len(first.all()) + len(second.all()); n != 40 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestI02_FinishedJobsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t), "")
	var rs runs
	q.start(jobs.Config{Slots: 64}, handle(once, record[jobs.Fields](&rs)))
	q.enqueue(once.Job(nil))
	q.idle()
	before := usedMemory(t, q.rdb)
	const n = 3_000
	args := jobs.Fields{"text": strings.Repeat("x", 1024)}
	for range n / 1000 {
		js := make([]jobs.Job, 1000)
		for i := range js {
			js[i] = once.Job(args)
		}
		q.enqueue(js...)
		eventually(t, "the worker keeps up", func() bool { return q.stats().Ready < 1000 })
	}
	q.idle()
	grown := usedMemory(t, q.rdb) - before
	if length := q.rdb.XLen(t.Context(), "jobs").Val(); length != 0 || grown > 4<<20 || len(rs.all()) != n+1 {
		t.Errorf("XLEN %d, memory grown by %d bytes, %d runs", length, grown, len(rs.all()))
	}
}

func usedMemory(t testing.TB, rdb *redis.Client) int64 {
	t.Helper()
	info, err := rdb.Info(t.Context(), "memory").Result()
	must(t, err)
	var used int64
	_, rest, _ := strings.Cut(info, "used_memory:")
	_, err = fmt.Sscan(rest, &used)
	must(t, err)
	return used
}

func TestTwoRunnersWithTwoPrefixesInOneProcess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		other := newQueue(t, q.rdb, q.prefix+"other:")
		var here, there runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&here)))
		other.start(jobs.Config{}, handle(once, record[jobs.Fields](&there)))
		a, b := once.Job(nil), once.Job(nil)
		q.enqueue(a, a.In(time.Millisecond))
		other.enqueue(b)
		here.wait(t, 2)
		there.wait(t, 1)
		if here.of(a.ID) != 2 || there.of(b.ID) != 1 || len(here.all())+len(there.all()) != 3 {
			t.Errorf("here %v, there %v", here.all(), there.all())
		}
	})
}

// What waits for nothing costs Redis next to nothing, the sweep's script included.
func TestAnIdleWorkerAsksLittle(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		const seconds = 60
		q.start(jobs.Config{Lease: 12 * time.Second}, handle(once, func(context.Context, jobs.Fields) error { return nil }))
		time.Sleep(30 * time.Second) // it starts, and sweeps
		before := q.mini.CommandCount()
		time.Sleep(seconds * time.Second)
		if n := q.mini.CommandCount() - before; n < seconds || n > 5*seconds {
			t.Errorf("%d commands in %d s", n, seconds)
		} else {
			t.Logf("%d commands in %d s", n, seconds)
		}
	})
}
