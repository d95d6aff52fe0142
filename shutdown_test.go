package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/loops"
)

// gate is a handler that says when it has begun, and ends when and as it is told.
type gate struct {
	runs
	end chan error
}

func newGate() *gate { return &gate{end: make(chan error, 100)} }

func (g *gate) handle(ctx context.Context, _ jobs.Fields) error {
	g.add(ctx)
	return <-g.end
}

// stopping begins to stop a worker, and returns what Run will return.
func (w *worker) stopping() <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.stop() }()
	return done
}

func TestS01_WhatEndsDuringShutdownIsWritten(t *testing.T) {
	t.Parallel()
	retried := jobs.NewKind[jobs.Fields]("retried", jobs.Policy{Retries: 5, Backoff: jobs.FullJitter(time.Hour, time.Hour)})
	for name, result := range map[string]error{"success": nil, "failure": errors.New("503")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				g := newGate()
				w := q.start(jobs.Config{Grace: time.Minute}, handle(retried, g.handle))
				q.enqueue(retried.Job(nil))
				g.wait(t, 1)
				stopped := w.stopping()
				time.Sleep(20 * time.Millisecond) // Run is waiting; sooner, it would be so as well
				g.end <- result
				must(t, <-stopped)
				want := jobs.Stats{}
				if result != nil {
					want.Delayed = 1
					if d := q.delayed(); len(d) != 1 || d[0].Attempts != 1 {
						t.Errorf("waits as %+v", d)
					}
				}
				if st := q.stats(); st != want {
					t.Errorf("left %+v", st)
				}
				var second runs
				q.start(jobs.Config{Lease: 200 * time.Millisecond}, handle(retried, record[jobs.Fields](&second)))
				q.orphan("gone", time.Hour, 1, retried.Job(jobs.Fields{"marker": "x"}))
				second.wait(t, 1) // a sweep, after a lease
				if len(g.all()) != 1 || len(second.all()) != 1 {
					t.Errorf("%d runs, and later %d", len(g.all()), len(second.all()))
				}
			})
		})
	}
}

func TestS04_HandlerIgnoresCancellation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		g := newGate()
		client := jobs.NewClient(q.rdb, jobs.Options{Prefix: q.prefix})
		w := q.employ(client, jobs.Config{Grace: 200 * time.Millisecond, Lease: time.Minute}, handle(once, g.handle))
		q.enqueue(once.Job(nil))
		g.wait(t, 1)
		began := time.Now()
		err := w.stop()
		if took := time.Since(began); took < 1200*time.Millisecond || took > 20*time.Second {
			t.Errorf("Run returned after %s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "1 job") {
			t.Errorf("Run: %v", err)
		}
		d := q.deliveries()
		if len(d) != 1 || d[0].n != 0 || d[0].idle < time.Minute || q.stats() != (jobs.Stats{Running: 1}) {
			t.Fatalf("handed over as %+v, %+v", d, q.stats())
		}
		if body := q.entries("jobs")[0]; body["attempts"] != "0" {
			t.Errorf("with %s attempts", body["attempts"])
		}
		var second runs
		q.start(jobs.Config{Lease: 200 * time.Millisecond}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			second.add(ctx)
			if d := q.deliveries(); len(d) != 1 || d[0].n != 1 {
				t.Errorf("the next delivery is %+v", d)
			}
			return nil
		}))
		second.wait(t, 1)
		q.idle()
		g.end <- errors.New("late")               // it writes nothing,
		q.enqueue(once.Job(nil))                  // and what is enqueued after it
		if second.wait(t, 2); len(g.all()) != 1 { // is no retry
			t.Errorf("%d runs", len(g.all()))
		}
		q.idle()
		if st := q.stats(); st != (jobs.Stats{}) {
			t.Errorf("left %+v", st)
		}
	})
}

// Cut off by the end of the grace time: back at once, its attempts unchanged, and not as
// the same delivery.
func TestAJobThatIsCutOffIsReadyAtOnce(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.Fields]("kind", jobs.Policy{Retries: 5})
	each(t, func(t *testing.T, q *queue) {
		for name, end := range map[string]func(ctx context.Context) error{
			"error":     func(ctx context.Context) error { return errors.New("the provider hung up") },
			"its cause": func(ctx context.Context) error { return context.Cause(ctx) },
			"permanent": func(ctx context.Context) error { return jobs.Permanent(errors.New("x")) },
			"snooze":    func(ctx context.Context) error { return jobs.Snooze(time.Hour) },
			"panic":     func(ctx context.Context) error { panic("cut off") },
		} {
			var first, second runs
			w := q.start(jobs.Config{Grace: 10 * time.Millisecond}, handle(kind, func(ctx context.Context, _ jobs.Fields) error {
				first.add(ctx)
				<-ctx.Done()
				if cause := context.Cause(ctx); cause != jobs.ErrShutdown {
					t.Errorf("%s: cancelled with %v", name, cause)
				}
				return end(ctx)
			}))
			q.add("jobs", "kind", "kind", "outbox_id", name, "attempts", "2", "last_error", "503", "request_id", "r1")
			first.wait(t, 1)
			before := q.deliveries()
			if err := w.stop(); err != nil {
				t.Errorf("%s: Run: %v", name, err)
			}
			if st := q.stats(); st.Ready != 1 || st.Running+st.Delayed+st.Dead != 0 {
				t.Errorf("%s: left %+v", name, st)
			}
			w = q.start(jobs.Config{}, handle(kind, func(ctx context.Context, _ jobs.Fields) error {
				second.add(ctx)
				if d := q.deliveries(); d[0].n != 1 || d[0].entry == before[0].entry {
					t.Errorf("%s: delivered as %+v, and before as %+v", name, d, before)
				}
				return nil
			}))
			job := second.wait(t, 1)[0]
			if job.ID != name || job.Attempts != 2 || job.RequestID != "r1" || len(first.all()) != 1 {
				t.Errorf("%s: back as %+v", name, job)
			}
			must(t, w.stop())
		}
	})
}

// A handler that heeds its context and comes to its end is done.
func TestSuccessAfterTheGraceTimeIsSuccess(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		w := q.hire(jobs.Config{}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			<-ctx.Done()
			time.Sleep(900 * time.Millisecond)
			return nil
		}))
		q.enqueue(many(3)...)
		time.Sleep(time.Second)
		began := time.Now()
		if err := w.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("Run took %s", took)
		}
		if st := q.stats(); st != (jobs.Stats{}) {
			t.Errorf("left %+v", st)
		}
	})
}

// Leases are kept during the grace time: nobody takes a job that is about to end.
func TestLeasesAreKeptDuringShutdown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs, other runs
		w := q.hire(jobs.Config{Grace: 2 * time.Minute}, sleeper(&rs))
		q.enqueue(sleep(time.Minute))
		time.Sleep(time.Second)
		q.hire(jobs.Config{}, sleeper(&other))
		stopped := w.stopping()
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := <-stopped; err != nil || len(other.all()) != 0 || q.stats() != (jobs.Stats{}) {
			t.Errorf("Run: %v; %d runs elsewhere, left %+v", err, len(other.all()), q.stats())
		}
	})
}

// What the last blocked read brings goes back, unrun.
func TestWhatTheLastReadBringsGoesBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		w := q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		time.Sleep(100 * time.Millisecond)
		stopped := w.stopping()
		synctest.Wait()
		entry := q.add("jobs", "kind", "once", "outbox_id", "88210", "order_id", "4471")
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		after := q.rdb.XRange(t.Context(), "jobs", "-", "+").Val()
		if len(after) != 1 || after[0].ID == entry {
			t.Fatalf("the read did not bring it: %v", after)
		}
		if f := q.entries("jobs")[0]; f["outbox_id"] != "88210" || f["order_id"] != "4471" || f["kind"] != "once" || len(f) != 3 {
			t.Errorf("it is back as %v", f)
		}
		if st := q.stats(); st.Ready != 1 || st.Running != 0 || len(rs.all()) != 0 {
			t.Errorf("left %+v, %d runs", st, len(rs.all()))
		}
	})
}

// Unless it cannot be read as a job: it may have more fields than can be written again.
func TestWhatTheLastReadBringsMayBeNoJob(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var told atomic.Int64
		w := q.hire(jobs.Config{OnDead: func(context.Context, jobs.DeadLetter) { told.Add(1) }}, handle(once, record[jobs.Fields](new(runs))))
		time.Sleep(100 * time.Millisecond)
		stopped := w.stopping()
		synctest.Wait()
		pairs := []string{"kind", "once", "outbox_id", "88210"}
		for i := range 4100 {
			pairs = append(pairs, fmt.Sprint(i), "x")
		}
		q.add("jobs", pairs...)
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		letters := q.dead()
		if len(letters) != 1 || !strings.Contains(letters[0].Raw, "88210") || letters[0].Reason != jobs.ReasonUndecodable || told.Load() != 1 || q.stats() != (jobs.Stats{Dead: 1}) {
			t.Errorf("left %+v, dead %d, told of %d", q.stats(), len(letters), told.Load())
		}
	})
}

func TestRunRemovesItsConsumer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		g := newGate()
		w := q.start(jobs.Config{Worker: "worker-01", Slots: 1}, handle(once, g.handle))
		other := q.start(jobs.Config{Worker: "worker-01", Slots: 1}, handle(once, g.handle))
		q.enqueue(many(2)...)
		g.wait(t, 2)
		names := q.consumers()
		if len(names) != 2 || !strings.HasPrefix(names[0], "worker-01-") || !strings.HasPrefix(names[1], "worker-01-") {
			t.Errorf("consumers %v", names)
		}
		g.end <- nil
		g.end <- nil
		must(t, w.stop())
		if left := q.consumers(); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
		must(t, other.stop())
		if left := q.consumers(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestARunnerRunsOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		w := q.start(jobs.Config{})
		must(t, w.stop())
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "once") {
			t.Errorf("the second Run: %v", err)
		}
	})
}

// Outcomes are written although Redis is away for a while; what cannot be is counted.
func TestOutcomesWaitForRedisAtShutdown(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{3 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(back), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				g := newGate()
				w := q.hire(jobs.Config{}, handle(once, g.handle))
				q.enqueue(many(2)...)
				time.Sleep(time.Second)
				w.cut()
				stopped := w.stopping()
				time.Sleep(time.Second)
				g.end <- nil
				g.end <- errors.New("503")
				began := time.Now()
				time.AfterFunc(back, w.mend)
				err := <-stopped
				took := time.Since(began)
				if back < 5*time.Second {
					if err != nil || q.stats() != (jobs.Stats{Dead: 1}) || took > 5*time.Second {
						t.Errorf("after %s: %v, left %+v", took, err, q.stats())
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), "2 outcomes") || took > 10*time.Second {
					t.Errorf("after %s: %v", took, err)
				}
				if st := q.stats(); st != (jobs.Stats{Running: 2}) {
					t.Errorf("left %+v", st)
				}
			})
		})
	}
}

// With nothing to do Run returns within a blocked read.
func TestAnIdleWorkerStopsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		w := q.hire(jobs.Config{})
		time.Sleep(time.Minute + 10*time.Millisecond)
		began := time.Now()
		if err := w.stop(); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// After the drain OnDead has a second in all, and one more to come back in.
func TestASlowOnDeadDoesNotHoldRunOpen(t *testing.T) {
	t.Parallel()
	const letters = 100
	for name, c := range map[string]struct {
		onDead      func(ctx context.Context)
		least, most time.Duration
		told        int
	}{
		"quick":        {func(context.Context) { time.Sleep(5 * time.Millisecond) }, 0, time.Second, letters},
		"heeds ctx":    {func(ctx context.Context) { loops.Sleep(ctx, 30*time.Second) }, time.Second, 1600 * time.Millisecond, 1},
		"does not":     {func(context.Context) { time.Sleep(30 * time.Second) }, 2 * time.Second, 2600 * time.Millisecond, 1},
		"comes late":   {func(context.Context) { time.Sleep(1700 * time.Millisecond) }, 1600 * time.Millisecond, 1800 * time.Millisecond, 1},
		"panics":       {func(context.Context) { panic("the pager is off") }, 0, 600 * time.Millisecond, letters},
		"some of them": {func(ctx context.Context) { loops.Sleep(ctx, 400*time.Millisecond) }, time.Second, 1600 * time.Millisecond, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var log journal
				var told, cutOff counter
				end := newGate()
				w := q.hire(jobs.Config{Grace: time.Second, Slots: letters, Logger: log.logger(t), OnDead: func(ctx context.Context, _ jobs.DeadLetter) {
					if told.add(1); ctx.Err() != nil {
						cutOff.add(1)
					}
					c.onDead(ctx)
				}}, handle(once, end.handle))
				q.enqueue(many(letters)...)
				time.Sleep(2 * time.Second)
				for range letters {
					end.end <- errMail
				}
				q.awaitDead(letters)
				began := time.Now()
				err := w.stop()
				if took := time.Since(began); err != nil || took < c.least || took > c.most {
					t.Errorf("Run returned after %s: %v", took, err)
				}
				synctest.Wait()
				if stuck := left(t) > 0; stuck != (name == "does not") {
					t.Errorf("OnDead goes on: %t", stuck)
				}
				n := told.value()
				if time.Sleep(time.Minute); n != c.told || told.value() != n || cutOff.value() != 0 {
					t.Errorf("told of %d, of %d after Run, of %d although its time was over", n, told.value()-n, cutOff.value())
				}
				lines := log.lines(t, "OnDead is not waited for")
				if c.told == letters && len(lines) != 0 || c.told < letters && (len(lines) != 1 || lines[0]["level"] != "WARN" || lines[0]["untold"] != float64(letters-n)) {
					t.Errorf("logged: %v", lines)
				}
				if n := left(t); n != 0 {
					t.Errorf("%d goroutines are left", n)
				}
			})
		})
	}
}

// left are the goroutines of a Run that has returned, those it started included.
func left(t testing.TB) (n int) {
	t.Helper()
	for _, stack := range stacks(t) {
		if bytes.Contains(stack, []byte("stagedoor/jobs.(*")) {
			n++
		}
	}
	return n
}

// ice is a connection that takes everything and passes nothing on, once frozen says so.
type ice struct {
	net.Conn
	frozen func(p []byte) bool
}

func (c ice) Write(p []byte) (int, error) {
	if c.frozen(p) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// hireOn is hire on a wire that may freeze.
func (q *queue) hireOn(frozen func(p []byte) bool, cfg jobs.Config, register ...func(*jobs.Runner)) *hand {
	q.t.Helper()
	return q.takeOn(&hand{wire: wire{frozen: frozen}}, cfg, register...)
}

// Redis holds its connections and answers nothing: it has five seconds and no more, and
// all that is still asked then ends by itself.
func TestShutdownWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const grace, redisHas, readTimeout, slack = 2 * time.Second, 5 * time.Second, 5 * time.Second, 200 * time.Millisecond
	for name, c := range map[string]struct {
		jobs int           // that run when it freezes
		ends time.Duration // after the stop
		most time.Duration
		left string
	}{
		"idle":          {0, 0, redisHas, ""},
		"one has ended": {1, -time.Second, 2*readTimeout + redisHas, "1 outcomes"}, // a trip is under way, and may have to dial
		"one ends":      {1, time.Second, grace + time.Second + redisHas, "1 outcomes"},
		"two end":       {2, time.Second, grace + time.Second + redisHas, "2 outcomes"},
		"one goes on":   {1, time.Minute, grace + time.Second + redisHas, "1 jobs still ran, 1 outcomes"},
		"one is heeded": {1, 0, grace + time.Second + redisHas, "1 outcomes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var cold atomic.Bool
				var rs runs
				w := q.hireOn(func([]byte) bool { return cold.Load() }, jobs.Config{Grace: grace}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
					rs.add(ctx)
					if c.ends == 0 {
						<-ctx.Done()
						return context.Cause(ctx)
					}
					time.Sleep(3*time.Second + c.ends)
					return nil
				}))
				q.enqueue(many(c.jobs)...)
				time.Sleep(time.Second)
				cold.Store(true)
				time.Sleep(2 * time.Second)
				began := time.Now()
				err := w.stop()
				took := time.Since(began)
				if took > c.most+slack {
					t.Errorf("Run returned after %s", took)
				}
				if (err == nil) != (c.left == "") || err != nil && !strings.Contains(err.Error(), c.left) {
					t.Errorf("Run: %v", err)
				}
				time.Sleep(2 * time.Minute) // what goes on ends, too
				if n := left(t); n != 0 {
					t.Errorf("%d goroutines are left", n)
				}
				var second runs
				q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&second)))
				time.Sleep(time.Minute)
				if st := q.stats(); st != (jobs.Stats{}) || len(second.all()) != c.jobs || len(rs.all()) != c.jobs {
					t.Errorf("left %+v after %d runs, and %d elsewhere", st, len(rs.all()), len(second.all()))
				}
			})
		})
	}
}

// Where it is the blocked read alone that gets no answer, all else is brought to an end.
func TestShutdownWhileTheBlockedReadIsNotAnswered(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var cold atomic.Bool
		g := newGate()
		w := q.hireOn(func(p []byte) bool { return cold.Load() && bytes.Contains(p, []byte("block")) }, jobs.Config{}, handle(once, g.handle))
		q.enqueue(many(2)...)
		time.Sleep(time.Second)
		cold.Store(true)
		time.Sleep(time.Second)
		began := time.Now()
		stopped := w.stopping()
		g.end <- nil
		g.end <- errMail
		time.Sleep(time.Second)
		if st := q.stats(); st != (jobs.Stats{Dead: 1}) {
			t.Errorf("after a second there are %+v", st)
		}
		if err := <-stopped; err != nil || time.Since(began) > 5200*time.Millisecond {
			t.Errorf("Run returned after %s: %v", time.Since(began), err)
		}
		time.Sleep(time.Minute)
	})
}

func TestTheGraceTimeMayBeEndless(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		ended := false
		w := q.hire(jobs.Config{Grace: jobs.NoTimeout}, handle(once, func(context.Context, jobs.Fields) error {
			time.Sleep(10 * time.Minute)
			ended = true
			return nil
		}))
		q.enqueue(once.Job(nil))
		time.Sleep(time.Second)
		if must(t, w.stop()); !ended {
			t.Error("the job was not waited for")
		}
	})
}

// What is handed over at a shutdown is to be had at once, not after an eighth of a lease.
func TestHandedOverRunsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		g := newGate()
		w := q.hire(jobs.Config{Grace: time.Second}, handle(once, g.handle))
		q.enqueue(once.Job(jobs.Fields{"for": "0s"}))
		time.Sleep(time.Second)
		q.hire(jobs.Config{}, sleeper(&rs))
		time.Sleep(2*lease + lease/40) // not in the moment of a renewal, which would win
		_ = w.stop()
		if d := q.deliveries(); len(d) != 1 || d[0].idle < lease+lease/8 {
			t.Errorf("handed over as %+v", d)
		}
		time.Sleep(lease)
		if n := len(rs.all()); n != 1 {
			t.Errorf("%d runs", n)
		}
		g.end <- nil
	})
}
