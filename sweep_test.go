package jobs_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// Delivered three times, the last holder silent for five leases: dead, unrun. Not sooner: a
// paused process may come back.
func TestPoisonAfterFiveSilentLeases(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		told := make(chan jobs.DeadLetter, 10)
		q.orphan("gone", 0, 3, sleep(0))
		q.hire(jobs.Config{OnDead: func(_ context.Context, d jobs.DeadLetter) { told <- d }}, sleeper(&rs))
		time.Sleep(5*lease - time.Second)
		if st := q.stats(); st.Running != 1 || st.Dead != 0 {
			t.Errorf("before five leases: %+v", st)
		}
		time.Sleep(lease/4 + 2*time.Second)
		if len(q.dead()) != 1 || len(told) != 1 || len(rs.all()) != 0 {
			t.Fatalf("after them: dead %v, told of %d, %d runs", q.dead(), len(told), len(rs.all()))
		}
		d := q.dead()[0]
		if d.Reason != jobs.ReasonPoison || d.Attempts != 3 || !strings.Contains(d.Error, "poison") ||
			!strings.Contains(d.Error, "3 deliveries") || !strings.Contains(d.Error, "gone") || d.Fields["for"] != "0s" {
			t.Errorf("died as %+v", d)
		}
	})
}

// A worker that was cut off while it had the last permitted delivery ends its job.
func TestAPausedHolderOfTheLastDeliveryComesBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs, other runs
		q.orphan("gone", time.Hour, 2, sleep(10*lease))
		w := q.hire(jobs.Config{}, sleeper(&rs))
		time.Sleep(2 * lease)
		q.hire(jobs.Config{}, sleeper(&other))
		time.Sleep(2 * lease)
		w.cut()
		time.Sleep(4*lease + lease/2)
		w.mend()
		time.Sleep(10 * lease)
		if st := q.stats(); st != (jobs.Stats{}) || len(rs.all()) != 1 || len(other.all()) != 0 {
			t.Errorf("left %+v, %d and %d runs", st, len(rs.all()), len(other.all()))
		}
	})
}

// XPENDING's count is read before the claim: two deliveries leave one, three leave none.
func TestP01_TheLastPermittedDelivery(t *testing.T) {
	t.Parallel()
	patient := jobs.NewKind[jobs.Fields]("patient", jobs.Policy{Deliveries: 5})
	for _, c := range []struct {
		kind       jobs.Kind[jobs.Fields]
		deliveries int
		runs       int
	}{{once, 1, 1}, {once, 2, 1}, {once, 3, 0}, {once, 7, 0}, {patient, 4, 1}, {patient, 5, 0}} {
		t.Run(fmt.Sprint(c.kind.Name(), c.deliveries), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				var rs runs
				q.orphan("gone", time.Hour, c.deliveries, c.kind.Job(nil))
				q.start(jobs.Config{Lease: 200 * time.Millisecond}, handle(once, record[jobs.Fields](&rs)), handle(patient, record[jobs.Fields](&rs)))
				q.idle()
				dead := q.dead()
				if len(rs.all()) != c.runs || len(dead) != 1-c.runs || len(dead) > 0 && dead[0].Reason != jobs.ReasonPoison {
					t.Errorf("%d runs, dead %+v", len(rs.all()), dead)
				}
			})
		})
	}
}

// An entry that was delivered and never arrived is taken up again within about a lease, and
// is no second delivery.
func TestADeliveryThatNeverArrived(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		var rs runs
		q.enqueue(once.Job(nil))
		lost := proxy.Swallow(func(cmd []string) bool {
			return strings.EqualFold(cmd[0], "xreadgroup") && cmd[len(cmd)-1] == ">"
		})
		q.start(jobs.Config{Lease: time.Second}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			if all := q.deliveries(); len(all) != 1 || all[0].n != 1 {
				t.Errorf("running as %+v", all)
			}
			return nil
		}))
		<-lost
		began := time.Now()
		if all := q.deliveries(); len(all) != 1 || all[0].n != 1 || len(rs.all()) != 0 {
			t.Fatalf("delivered as %+v, %d runs", all, len(rs.all()))
		}
		rs.wait(t, 1)
		t.Logf("taken up after %s", time.Since(began))
		q.idle()
		if st := q.stats(); len(rs.all()) != 1 || st != (jobs.Stats{}) {
			t.Errorf("%d runs, left %+v", len(rs.all()), st)
		}
	})
}

func TestR04_PendingEntriesWhoseBodyWasDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var log journal
		ids := q.orphan("gone", time.Hour, 1, many(5)...)
		must(t, q.rdb.XDel(t.Context(), q.key("jobs"), ids[1], ids[3]).Err())
		q.start(jobs.Config{Lease: 500 * time.Millisecond, Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
		rs.wait(t, 3)
		eventually(t, "nothing pending", func() bool { return len(q.deliveries()) == 0 })
		got := map[string]bool{}
		for _, job := range rs.all() {
			got[job.Fields["n"]] = true
		}
		if len(rs.all()) != 3 || !got["0"] || !got["2"] || !got["4"] || q.stats() != (jobs.Stats{}) {
			t.Errorf("ran %v, left %+v", rs.all(), q.stats())
		}
		if lines := log.lines(t, "deleted"); len(lines) != 2 {
			t.Errorf("said %d times that an entry was deleted", len(lines))
		}
	})
}

// consumers are the names that the group knows.
func (q *queue) consumers() []string {
	q.t.Helper()
	all, err := q.rdb.XInfoConsumers(q.t.Context(), q.key("jobs"), "workers").Result()
	if err != nil && strings.Contains(err.Error(), "no such key") || redis.HasErrorPrefix(err, "NOGROUP") {
		return nil // no worker has come that far
	}
	must(q.t, err)
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	return names
}

func TestR05_RemovingConsumersKeepsTheirWork(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		release := make(chan struct{})
		q.orphan("old", time.Hour, 1, many(3)...)
		must(t, q.rdb.XGroupCreateConsumer(t.Context(), q.key("jobs"), "workers", "empty").Err())
		// One slot: while the first runs, old still owns the others.
		w := q.start(jobs.Config{Lease: 200 * time.Millisecond, Slots: 1}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			if rs.add(ctx); len(rs.all()) == 1 {
				<-release
			}
			return nil
		}))
		rs.wait(t, 1)
		if q.mini == nil { // which does not tell how long a consumer has been silent
			eventually(t, "empty is removed", func() bool { return len(q.consumers()) == 2 })
		}
		if left := strings.Join(q.consumers(), " "); !strings.Contains(left, "old") {
			t.Errorf("old is gone while it owns two jobs: %s", left)
		}
		close(release)
		rs.wait(t, 3)
		q.idle()
		if q.mini == nil {
			eventually(t, "old is removed", func() bool { return len(q.consumers()) == 1 })
		}
		must(t, w.stop())
		if len(rs.all()) != 3 || q.stats() != (jobs.Stats{}) {
			t.Errorf("%d runs, left %+v", len(rs.all()), q.stats())
		}
	})
}

// A worker whose record somebody removes goes on.
func TestAnIdleWorkerOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		g := newGate()
		for range 2 {
			q.start(jobs.Config{Lease: 100 * time.Millisecond, Slots: 4}, handle(once, g.handle))
		}
		q.enqueue(many(8)...)
		g.wait(t, 8)
		for range 16 {
			g.end <- nil
		}
		q.idle()
		for _, name := range q.consumers() {
			must(t, q.rdb.XGroupDelConsumer(t.Context(), q.key("jobs"), "workers", name).Err())
		}
		q.enqueue(many(8)...)
		g.wait(t, 16)
		q.idle()
		if st := q.stats(); st != (jobs.Stats{}) || len(g.all()) != 16 {
			t.Errorf("left %+v, %d runs", st, len(g.all()))
		}
	})
}

// A worker that stops takes its name along.
func TestR06_ConsumersDoNotPileUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		const rounds, atOnce = 5, 10
		var rs runs
		for range rounds {
			var deploy sync.WaitGroup
			for range atOnce {
				w := q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
				q.enqueue(once.Job(nil))
				deploy.Go(func() {
					rs.wait(t, 1)
					if err := w.stop(); err != nil {
						t.Error(err)
					}
				})
			}
			deploy.Wait()
		}
		if left := q.consumers(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestR09_HungHandlers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		hung := jobs.NewKind[jobs.Fields]("hung", jobs.Policy{Retries: 1, Timeout: 500 * time.Millisecond, Backoff: jobs.FullJitter(time.Hour, time.Hour)})
		var rs runs
		release := make(chan struct{})
		var returned sync.WaitGroup
		returned.Add(3)
		q.start(jobs.Config{Lease: 500 * time.Millisecond},
			handle(once, record[jobs.Fields](&rs)),
			handle(hung, func(context.Context, jobs.Fields) error {
				defer returned.Done()
				<-release
				return nil
			}))
		q.enqueue(hung.Job(nil), hung.Job(nil), hung.Job(nil))
		q.enqueue(many(50)...)
		eventually(t, "the hung ones are retried", func() bool { return q.stats().Delayed == 3 })
		rs.wait(t, 50)
		q.idle()
		check := func() {
			for _, d := range q.delayed() {
				if d.Attempts != 1 || !strings.Contains(d.LastError, "timeout") {
					t.Errorf("waits as %+v", d)
				}
			}
			if st := q.stats(); st != (jobs.Stats{Delayed: 3}) {
				t.Errorf("%+v", st)
			}
		}
		check()
		close(release)
		returned.Wait()
		q.enqueue(many(9)...) // later than anything that the three might write
		rs.wait(t, 59)
		q.idle()
		check()
	})
}

// What cannot be dead-lettered holds up nothing behind it, and is dead-lettered once it can be.
func TestASweepGoesOnPastWhatItCannotBury(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var log journal
		q.start(jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
		q.enqueue(once.Job(nil))
		rs.wait(t, 1) // Run returns at once where it finds a key of the wrong type
		must(t, q.rdb.Set(t.Context(), q.key("jobs:dead"), "in the way", time.Minute).Err())
		poisonous, ordinary, suspect := once.Job(nil), once.Job(nil), once.Job(nil)
		q.orphan("gone", time.Hour, 3, poisonous)
		q.orphan("gone", 2*time.Hour, 1, jobs.NewKind[jobs.Fields]("stranger", jobs.Policy{}).Job(nil))
		q.orphan("gone", time.Hour, 1, ordinary)
		q.orphan("gone", time.Hour, 2, suspect)
		eventually(t, "what is behind it runs", func() bool { return rs.of(ordinary.ID) == 1 && rs.of(suspect.ID) == 1 })
		eventually(t, "that is said", func() bool { return len(log.lines(t, "trouble with Redis")) > 0 })
		line := log.lines(t, "trouble with Redis")[0]
		if err := line["err"].(string); line["loop"] != "sweep" || !strings.Contains(err, "WRONGTYPE") || strings.Contains(err, "\n") {
			t.Errorf("said: %v", line)
		}
		must(t, q.rdb.Del(t.Context(), q.key("jobs:dead")).Err())
		q.awaitDead(2)
		q.idle()
		if n := rs.of(poisonous.ID); n != 0 || len(rs.all()) != 3 {
			t.Errorf("the poison ran %d times, of %d", n, len(rs.all()))
		}
	})
}

// Where the connection is lost, or Redis refuses it once, a sweep asks for nothing more to be buried.
func TestASweepThatCannotBuryAsksOnce(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]*brittle{
		"the connection is lost": {name: "xrange", err: io.EOF},
		"Redis refuses":          {name: "xrange", err: readOnly{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var es events
				q.orphan("gone", time.Hour, 3, many(50)...)
				w := q.hire(jobs.Config{Observe: es.observe}, handle(once, record[jobs.Fields](new(runs))))
				w.rdb.AddHook(broken)
				time.Sleep(2 * time.Minute)
				must(t, w.stop())
				sweeps := 0
				for _, e := range es.of(jobs.EventTrouble, "") {
					if e.Name == "sweep" {
						sweeps++
					}
				}
				if asked := int(broken.asked.Load()); sweeps == 0 || asked != sweeps {
					t.Errorf("%d sweeps asked %d times", sweeps, asked)
				}
			})
		})
	}
}

// readOnly is what a replica answers.
type readOnly struct{}

func (readOnly) Error() string { return "READONLY You can't write against a read only replica." }
func (readOnly) RedisError()   {}

// brittle is a client that has an error for each command of a name.
type brittle struct {
	name  string
	err   error
	asked atomic.Int32
}

func (d *brittle) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d *brittle) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != d.name {
			return next(ctx, cmd)
		}
		d.asked.Add(1)
		cmd.SetErr(d.err)
		return d.err
	}
}
func (d *brittle) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// between lets something happen just before the first script that begins so.
type between struct {
	script string
	do     func()
	done   atomic.Bool
}

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" && strings.HasPrefix(cmd.Args()[1].(string), b.script) && b.done.CompareAndSwap(false, true) {
			b.do()
		}
		return next(ctx, cmd)
	}
}

// The holder of an entry is back, and renews its lease, when the sweep that has found it silent comes to act.
func TestTheSweepDecidesOnThePresentIdleTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script     string
		deliveries int
		wait       time.Duration
	}{{"-- running -> running, here", 1, lease + lease/2}, {"-- running -> dead", 3, 6 * lease}} {
		t.Run(c.script, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var rs runs
				entry := q.orphan("paused", 0, c.deliveries, sleep(0))[0]
				w := q.hire(jobs.Config{}, sleeper(&rs))
				back := &between{script: c.script, do: func() { q.hold("paused", entry, 0, c.deliveries) }}
				w.rdb.AddHook(back)
				time.Sleep(c.wait)
				if !back.done.Load() {
					t.Fatal("the sweep never acted")
				}
				if st := q.stats(); st.Dead != 0 || st.Running != 1 || len(rs.all()) != 0 {
					t.Errorf("%d runs, and then %+v", len(rs.all()), st)
				}
			})
		})
	}
}
