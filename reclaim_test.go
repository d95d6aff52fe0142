package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

const lease = 12 * time.Second // the default

// sleeper sleeps as long as its job's field "for" says, and ends early with its context.
func sleeper(rs *runs) func(*jobs.Runner) {
	return handle(once, func(ctx context.Context, f jobs.Fields) error {
		rs.add(ctx)
		d, err := time.ParseDuration(f["for"])
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	})
}

func sleep(d time.Duration) jobs.Job { return once.Job(jobs.Fields{"for": d.String()}) }

func TestR01_LongJobIsNotTakenFromAHealthyWorker(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				var rs runs
				for range workers {
					q.start(jobs.Config{Lease: 500 * time.Millisecond}, sleeper(&rs))
				}
				q.enqueue(sleep(2500 * time.Millisecond))
				rs.wait(t, 1)
				q.idle()
				if st := q.stats(); len(rs.all()) != 1 || st != (jobs.Stats{}) {
					t.Errorf("ran %d times, left %+v", len(rs.all()), st)
				}
			})
		})
	}
}

// A job of five minutes runs once, with a lease of 12 s, and renewing counts no delivery.
func TestALongJobKeepsItsLease(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		for range 3 {
			q.hire(jobs.Config{}, sleeper(&rs))
		}
		q.enqueue(sleep(5 * time.Minute))
		time.Sleep(time.Second)
		first := q.deliveries()[0]
		for range 5*60 - 2 {
			time.Sleep(time.Second)
			now := q.deliveries()
			if len(now) != 1 || now[0].owner != first.owner || now[0].n != 1 || now[0].idle > lease/3 {
				t.Fatalf("held as %+v", now)
			}
		}
		time.Sleep(2 * time.Second)
		if st := q.stats(); len(rs.all()) != 1 || st != (jobs.Stats{}) {
			t.Errorf("ran %d times, left %+v", len(rs.all()), st)
		}
	})
}

// What a worker ran that was killed runs elsewhere within 15 s, whenever that was between
// two renewals, and no attempt is counted.
func TestACrashCostsSeconds(t *testing.T) {
	t.Parallel()
	for phase := time.Duration(0); phase < lease/4; phase += 700 * time.Millisecond {
		t.Run(phase.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) { crash(t, q, phase) })
		})
	}
}

// crash loses a worker with eight jobs, at a phase of its renewals.
func crash(t *testing.T, q *queue, phase time.Duration) {
	g := newGate()
	defer close(g.end)
	doomed := q.hire(jobs.Config{}, handle(once, g.handle))
	for range 8 {
		q.enqueue(sleep(time.Minute))
	}
	time.Sleep(time.Second)
	var rs runs
	q.hire(jobs.Config{}, sleeper(&rs))
	time.Sleep(20*time.Second + phase)
	died := time.Now()
	doomed.die()
	time.Sleep(15 * time.Second)
	if len(g.all()) != 8 || len(rs.all()) != 8 {
		t.Fatalf("%d runs, and %d within 15 s of the crash", len(g.all()), len(rs.all()))
	}
	t.Logf("the last began %s after the crash", rs.times()[7].Sub(died))
	for _, d := range q.deliveries() {
		if d.n != 2 {
			t.Errorf("delivery %d", d.n)
		}
	}
	for _, job := range rs.all() {
		if job.Attempts != 0 {
			t.Errorf("%d attempts", job.Attempts)
		}
	}
	time.Sleep(2 * time.Minute)
	if st := q.stats(); st != (jobs.Stats{}) || len(rs.all()) != 8 {
		t.Errorf("left %+v, %d runs", st, len(rs.all()))
	}
}

// A lease that looks out of date says nothing to a worker that has only just heard of Redis.
func TestReclaimBeginsAfterALeaseOfContact(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		q.orphan("gone", time.Hour, 1, sleep(0))
		began := time.Now()
		w := q.hire(jobs.Config{}, sleeper(&rs))
		time.Sleep(lease - time.Second)
		w.cut() // for longer than half a lease
		time.Sleep(lease/2 + 2*time.Second)
		w.mend()
		mended := time.Now()
		time.Sleep(2 * lease)
		at := rs.times()
		if len(at) != 1 || at[0].Sub(mended) < lease || at[0].Sub(mended) > lease+lease/4+time.Second {
			t.Errorf("ran at %v; began at %v, mended at %v", at, began, mended)
		}
	})
}

// While Redis was away nobody could renew. The jobs go on, and nobody takes them.
func TestAnOutageStartsNoDoubleRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		var fleet []*hand
		for range 2 {
			fleet = append(fleet, q.hire(jobs.Config{}, sleeper(&rs)))
		}
		time.Sleep(2 * lease)
		for range 10 {
			q.enqueue(sleep(5 * lease))
		}
		time.Sleep(time.Second)
		for _, w := range fleet {
			w.cut()
		}
		time.Sleep(2 * lease)
		for _, w := range fleet {
			w.mend()
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(4 * lease)
		if st := q.stats(); len(rs.all()) != 10 || st != (jobs.Stats{}) {
			t.Errorf("%d runs, left %+v", len(rs.all()), st)
		}
	})
}

// What a worker found before it lost its contact says nothing afterwards: the holder may
// be back, and gone again with everybody's contact.
func TestWhatWasFoundBeforeAnOutageIsForgotten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs, other runs
		a := q.hire(jobs.Config{Slots: 1}, sleeper(&rs))
		q.enqueue(sleep(3 * time.Minute))
		time.Sleep(time.Second)
		b := q.hire(jobs.Config{Slots: 1}, sleeper(&other))
		q.enqueue(sleep(time.Minute))
		time.Sleep(30 * time.Second)
		a.cut()
		time.Sleep(lease + lease/2) // b has found the job of a, and has no free slot
		b.cut()
		a.mend()
		time.Sleep(lease / 2)
		a.cut()
		time.Sleep(lease + lease/2) // the job of b has ended meanwhile
		b.mend()
		time.Sleep(lease / 2)
		a.mend()
		time.Sleep(2 * time.Minute)
		if len(rs.all()) != 1 || len(other.all()) != 1 || q.stats() != (jobs.Stats{}) {
			t.Errorf("%d and %d runs, left %+v", len(rs.all()), len(other.all()), q.stats())
		}
	})
}

// Whoever lost the lease is told, and from then on nothing of the run is written: neither
// failure nor success.
func TestALostLeaseIsCancelledAndWritesNothing(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"failure": errors.New("cancelled"), "success": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var rs, other runs
				cause := make(chan error, 1)
				w := q.hire(jobs.Config{}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
					rs.add(ctx)
					<-ctx.Done()
					cause <- context.Cause(ctx)
					return result
				}))
				q.enqueue(sleep(5 * time.Minute))
				time.Sleep(time.Second)
				q.hire(jobs.Config{}, sleeper(&other))
				time.Sleep(2 * lease)
				w.cut()
				time.Sleep(2 * lease)
				if len(other.all()) != 1 || len(cause) != 0 {
					t.Fatalf("%d runs elsewhere; it is cancelled: %v", len(other.all()), len(cause) != 0)
				}
				w.mend()
				if err := <-cause; err != jobs.ErrLeaseLost {
					t.Errorf("cancelled with %v", err)
				}
				time.Sleep(lease / 4)
				if st := q.stats(); st != (jobs.Stats{Running: 1}) || len(other.all()) != 1 {
					t.Errorf("after it has ended: %+v", st)
				}
				time.Sleep(5 * time.Minute)
				if st := q.stats(); st != (jobs.Stats{}) || len(rs.all()) != 1 || len(other.all()) != 1 {
					t.Errorf("left %+v, %d and %d runs", st, len(rs.all()), len(other.all()))
				}
			})
		})
	}
}

// The work is done, although the worker did not know yet that it was another's by then.
func TestALateSuccessCounts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs, other runs
		w := q.hire(jobs.Config{}, sleeper(&rs))
		q.enqueue(sleep(5 * lease))
		time.Sleep(time.Second)
		q.hire(jobs.Config{}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			other.add(ctx)
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		time.Sleep(2 * lease)
		w.cut() // until it has ended
		time.Sleep(4 * lease)
		w.mend()
		time.Sleep(2 * lease)
		if st := q.stats(); st != (jobs.Stats{}) || len(rs.all()) != 1 || len(other.all()) != 1 {
			t.Errorf("left %+v, %d and %d runs", st, len(rs.all()), len(other.all()))
		}
	})
}

// A reply that comes so late that another worker has the job by then starts nothing.
func TestAReplyThatIsOverdueStartsNothingOfOthers(t *testing.T) {
	t.Parallel()
	const lease, late = 500 * time.Millisecond, 2500 * time.Millisecond // go-redis gives a trip 3 s
	for name, slots := range map[string]int{"of the blocked read": 2, "of a trip": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
				g := newGate()
				w := q.start(jobs.Config{Lease: lease, Slots: slots}, handle(once, g.handle))
				q.enqueue(once.Job(nil))
				g.wait(t, 1)
				proxy.Delay(late)
				job := once.Job(nil)
				direct := newQueue(t, q.rdb, q.prefix)
				direct.enqueue(job)
				for range 3 {
					g.end <- nil
				}
				eventually(t, "it is delivered", func() bool { st := direct.stats(); return st.Ready == 0 && st.Running > 0 })
				other := direct.start(jobs.Config{Lease: lease}, handle(once, record[jobs.Fields](&g.runs)))
				eventually(t, "it runs", func() bool { return g.of(job.ID) > 0 })
				proxy.Delay(0)
				must(t, other.stop())
				last := once.Job(nil) // which the first worker fetches when it has read what was late
				direct.enqueue(last)
				eventually(t, "the next one runs", func() bool { return g.of(last.ID) > 0 })
				must(t, w.stop())
				if n := g.of(job.ID); n != 1 {
					t.Errorf("it ran %d times", n)
				}
			})
		})
	}
}

// tardy has each answer come later, by so much.
type tardy struct{ by atomic.Int64 }

func (d *tardy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *tardy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		time.Sleep(time.Duration(d.by.Load()))
		return err
	}
}

func (d *tardy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		time.Sleep(time.Duration(d.by.Load()))
		return err
	}
}

// Where the answer to "is it still ours" is overdue too, it says nothing.
func TestAnOverdueAnswerToWhetherItIsOurs(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs, other runs
		q.enqueue(sleep(3 * lease)) // for the other, which has one slot
		q.hire(jobs.Config{Slots: 1}, sleeper(&other))
		time.Sleep(2*lease + lease/2)
		var late tardy
		a := q.hire(jobs.Config{}, sleeper(&rs))
		a.rdb.AddHook(&late)
		time.Sleep(time.Second)
		late.by.Store(int64(lease - time.Second))
		job := sleep(time.Minute)
		q.enqueue(job)
		time.Sleep(lease - 2*time.Second)
		late.by.Store(int64(lease + lease/4)) // the read's answer is on its way; the next one takes longer
		time.Sleep(4 * lease)
		late.by.Store(0)
		time.Sleep(2 * time.Minute)
		if n := rs.of(job.ID) + other.of(job.ID); n != 1 || q.stats() != (jobs.Stats{}) {
			t.Errorf("it ran %d times (%d and %d), left %+v", n, rs.of(job.ID), other.of(job.ID), q.stats())
		}
	})
}
