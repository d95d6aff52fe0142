package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

var suspicious = jobs.NewKind[jobs.Fields]("suspicious", jobs.Policy{})

// suspects makes n entries of which only one delivery is left.
func (q *queue) suspects(n int, d time.Duration) {
	q.t.Helper()
	js := make([]jobs.Job, n)
	for i := range js {
		js[i] = suspicious.Job(jobs.Fields{"for": d.String()})
	}
	q.orphan("gone", time.Hour, 2, js...)
}

// stage is what a fleet runs, suspects apart.
type stage struct {
	suspects, others runs
	mu               sync.Mutex
	trouble          []string
}

func (s *stage) register(r *jobs.Runner) {
	var running sync.Map // of this worker: what runs, and whether it is a suspect
	work := func(rs *runs, suspect bool) func(context.Context, jobs.Fields) error {
		return func(ctx context.Context, f jobs.Fields) error {
			job := rs.add(ctx)
			running.Range(func(_, other any) bool {
				if suspect || other.(bool) {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.trouble = append(s.trouble, fmt.Sprintf("%s %s began beside another", job.Kind, job.ID))
				}
				return true
			})
			running.Store(job.ID, suspect)
			defer running.Delete(job.ID)
			d, err := time.ParseDuration(f["for"])
			time.Sleep(d)
			return err
		}
	}
	jobs.Handle(r, suspicious, work(&s.suspects, true))
	jobs.Handle(r, once, work(&s.others, false))
}

// holder is the worker that is emptying itself.
func (q *queue) holder() string {
	q.t.Helper()
	name, err := q.rdb.Get(q.t.Context(), q.key("jobs:suspect")).Result()
	if err != redis.Nil {
		must(q.t, err)
	}
	return name
}

// The last permitted delivery runs alone: the worker takes nothing new, waits until what it
// runs has ended, and fetches again when the suspect has.
func TestASuspectRunsAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		q.hire(jobs.Config{}, s.register)
		time.Sleep(2 * lease)
		for range 7 {
			q.enqueue(sleep(8 * time.Second))
		}
		time.Sleep(time.Second)
		q.suspects(1, 3*time.Second)
		time.Sleep(lease / 3)
		if q.holder() == "" || len(s.suspects.all()) != 0 {
			t.Fatalf("emptying is %q's; %d suspects ran", q.holder(), len(s.suspects.all()))
		}
		if ttl := q.rdb.PTTL(t.Context(), q.key("jobs:suspect")).Val(); ttl <= 0 || ttl > lease {
			t.Errorf("the right to empty itself lives for %s", ttl)
		}
		q.enqueue(sleep(0)) // it waits
		time.Sleep(lease)
		if len(s.suspects.all()) != 1 || len(s.others.all()) != 8 {
			t.Fatalf("%d suspects ran, %d others", len(s.suspects.all()), len(s.others.all()))
		}
		before, began, after := s.others.times()[6], s.suspects.times()[0], s.others.times()[7]
		if d := began.Sub(before); d < 8*time.Second || d > 9*time.Second {
			t.Errorf("the suspect began %s after the seven", d)
		}
		if d := after.Sub(began); d < 3*time.Second || d > 4*time.Second {
			t.Errorf("the next job began %s after the suspect", d)
		}
		if q.holder() != "" || q.stats() != (jobs.Stats{}) || len(s.trouble) != 0 {
			t.Errorf("emptying is still %q's; left %+v, trouble %v", q.holder(), q.stats(), s.trouble)
		}
	})
}

// Between two suspects a worker fetches for at least a lease, so that the jobs beside them
// are not held up for ever.
func TestSuspectsTakeTurnsWithOtherJobs(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		q.hire(jobs.Config{}, s.register)
		time.Sleep(2 * lease)
		q.suspects(3, 10*time.Second)
		for range 90 {
			q.enqueue(sleep(0))
			time.Sleep(time.Second)
		}
		if len(s.suspects.all()) != 3 || len(s.trouble) != 0 {
			t.Fatalf("%d suspects ran, trouble %v", len(s.suspects.all()), s.trouble)
		}
		at := s.suspects.times()
		for i, began := range at[:2] {
			ended := began.Add(10 * time.Second)
			if d := at[i+1].Sub(ended); d < lease {
				t.Errorf("the next suspect began %s after the last had ended", d)
			}
			between := 0
			for _, other := range s.others.times() {
				if other.After(ended) && other.Before(at[i+1]) {
					between++
				}
			}
			if between < 10 {
				t.Errorf("%d other jobs between two suspects", between)
			}
		}
	})
}

// spell is a time during which a worker did, or did not, empty itself for a suspect.
type spell struct {
	emptying bool
	started  []int // other jobs in each second, in which one is enqueued
}

// watch enqueues a job each second and sees what becomes of it.
func (q *queue) watch(s *stage, seconds int) (spells []spell) {
	for range seconds {
		is := q.holder() != ""
		if len(spells) == 0 || spells[len(spells)-1].emptying != is {
			spells = append(spells, spell{emptying: is})
		}
		n := len(s.others.all())
		q.enqueue(sleep(0))
		time.Sleep(time.Second)
		last := &spells[len(spells)-1]
		last.started = append(last.started, len(s.others.all())-n)
	}
	return spells
}

// A worker that does not get empty gives up after a lease, works for as long as it had
// stopped, and is more patient the next time.
func TestEmptyingHasAnEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		q.hire(jobs.Config{}, s.register)
		time.Sleep(2 * lease)
		q.enqueue(sleep(5 * time.Minute))
		time.Sleep(time.Second)
		q.suspects(1, 0)
		spells := q.watch(&s, 4*60)
		want := 12 // seconds, a lease
		for i := 1; i <= 5; i += 2 {
			stop, work := spells[i], spells[i+1]
			stopped, worked := len(stop.started), len(work.started)
			if !stop.emptying || stopped < want-1 || stopped > want+4 || worked < stopped-1 {
				t.Errorf("stopped for %d s and worked for %d; want %d s of each, and a little", stopped, worked, want)
			}
			// At either end of a spell one second is of both.
			if slices.Max(stop.started[1:stopped-1]) > 0 || slices.Min(work.started[:worked-1]) == 0 {
				t.Errorf("started %v while it emptied itself, and %v when it did not", stop.started, work.started)
			}
			want *= 2
		}
		time.Sleep(3 * time.Minute)
		if len(s.suspects.all()) != 1 || len(s.trouble) != 0 {
			t.Errorf("%d suspects ran, trouble %v", len(s.suspects.all()), s.trouble)
		}
	})
}

// A fleet goes on: one worker at a time empties itself, and each suspect runs alone in its
// worker.
func TestOneWorkerEmptiesItselfAtATime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		for i := range 4 {
			q.hire(jobs.Config{Worker: fmt.Sprint("w", i), Slots: 20}, s.register)
		}
		time.Sleep(2 * lease)
		for range 12 {
			q.enqueue(sleep(10 * time.Second))
		}
		time.Sleep(time.Second)
		q.suspects(3, 5*time.Second)
		for range 60 * 10 { // somebody starts what is enqueued, at any time
			job := sleep(0)
			q.enqueue(job)
			time.Sleep(100 * time.Millisecond)
			if s.others.of(job.ID) == 0 {
				time.Sleep(600 * time.Millisecond) // for a blocked read of one that is emptying itself
				if s.others.of(job.ID) == 0 {
					t.Fatalf("the fleet stands still while %s empties itself", q.holder())
				}
			}
		}
		if len(s.suspects.all()) != 3 || len(s.trouble) != 0 {
			t.Errorf("%d suspects ran, trouble %v", len(s.suspects.all()), s.trouble)
		}
	})
}

// A lease may be shorter than a blocked read: the read comes back by itself.
func TestASuspectWithAShortLease(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		q.hire(jobs.Config{Lease: 100 * time.Millisecond}, s.register)
		time.Sleep(time.Second)
		q.suspects(4, 0)
		time.Sleep(5 * time.Second)
		if len(s.suspects.all()) != 4 || len(s.trouble) != 0 {
			t.Errorf("%d of 4 suspects ran, trouble %v", len(s.suspects.all()), s.trouble)
		}
	})
}

// A worker with an abandoned handler is never empty, and leaves suspects to others.
func TestAnAbandonedHandlerKeepsSuspectsAway(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"before": time.Second, "meanwhile": lease / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var s stage
				release := make(chan struct{})
				hung := jobs.NewKind[jobs.Fields]("hung", jobs.Policy{Timeout: timeout})
				q.hire(jobs.Config{}, s.register, handle(hung, func(context.Context, jobs.Fields) error {
					<-release
					return nil
				}))
				time.Sleep(2 * lease)
				q.enqueue(hung.Job(nil))
				time.Sleep(3 * time.Second)
				q.suspects(1, 0)
				time.Sleep(lease / 3)
				if held := q.holder() != ""; held != (name == "meanwhile") {
					t.Errorf("it empties itself: %v", held)
				}
				time.Sleep(10 * lease)
				if len(s.suspects.all()) != 0 || q.holder() != "" {
					t.Fatal("it has run a suspect, or still empties itself")
				}
				close(release)
				time.Sleep(lease)
				if len(s.suspects.all()) != 1 {
					t.Errorf("%d suspects ran when the handler had returned", len(s.suspects.all()))
				}
			})
		})
	}
}

// A worker that is told to stop while it empties itself gives the right back.
func TestStoppingGivesUpEmptying(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		w := q.hire(jobs.Config{}, s.register)
		time.Sleep(2 * lease)
		q.enqueue(sleep(10 * time.Second))
		time.Sleep(time.Second)
		q.suspects(1, 0)
		time.Sleep(lease / 3)
		if q.holder() == "" {
			t.Fatal("it does not empty itself")
		}
		if err := w.stop(); err != nil || q.holder() != "" {
			t.Errorf("%v, emptying is still %q's", err, q.holder())
		}
		if all := q.deliveries(); len(all) != 1 || all[0].n != 2 {
			t.Errorf("the suspect is %+v", all)
		}
	})
}

// Where Redis refuses a step towards a suspect, the suspect waits, and all else goes on, the work of
// the dead too.
func TestASuspectThatIsRefusedHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "meanwhile"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var s stage
				var log journal
				q.hire(jobs.Config{Logger: log.logger(t)}, s.register)
				time.Sleep(2 * lease)
				if when == "meanwhile" {
					q.enqueue(sleep(lease))
					time.Sleep(time.Second)
					q.suspects(1, 0)
					time.Sleep(lease / 3)
				}
				if held := q.holder() != ""; held != (when == "meanwhile") {
					t.Errorf("it empties itself: %v", held)
				}
				must(t, q.rdb.Del(t.Context(), q.key("jobs:suspect")).Err())
				must(t, q.rdb.RPush(t.Context(), q.key("jobs:suspect"), "x").Err())
				q.suspects(1, 0)
				q.orphan("gone", time.Hour, 1, sleep(0), sleep(0))
				time.Sleep(lease)
				before := len(s.others.all())
				for range 60 {
					q.enqueue(sleep(0))
					time.Sleep(time.Second)
				}
				if all := q.deliveries(); len(s.others.all()) != before+60 || slices.ContainsFunc(all, func(d delivery) bool { return d.n < 2 }) {
					t.Errorf("%d of 60 ran, left %+v", len(s.others.all())-before, all)
				}
				if n := len(log.lines(t, "trouble")); n < 1 || n > 2 || len(s.suspects.all()) != 0 {
					t.Errorf("said %d times: %s", n, log.String())
				}
				must(t, q.rdb.Del(t.Context(), q.key("jobs:suspect")).Err())
				time.Sleep(5 * lease)
				if st := q.stats(); st != (jobs.Stats{}) || len(s.trouble) != 0 {
					t.Errorf("left %+v, trouble %v", st, s.trouble)
				}
			})
		})
	}
}

// For want of memory suspects run, and do not hold up the rest.
func TestSuspectsForWantOfMemory(t *testing.T) {
	t.Parallel()
	q, _ := apart(t)
	var s stage
	var log journal
	q.suspects(1, 0)
	q.orphan("gone", time.Hour, 1, sleep(0), sleep(0), sleep(0))
	q.enqueue(sleep(0), sleep(0))
	must(t, q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	q.start(jobs.Config{Logger: log.logger(t), Lease: time.Second}, s.register)
	s.suspects.wait(t, 1)
	s.others.wait(t, 5)
	q.idle()
	if st := q.stats(); st != (jobs.Stats{}) || len(s.trouble)+len(log.lines(t, "trouble")) != 0 {
		t.Errorf("left %+v: %s", st, log.String())
	}
}

// Redis's clock is put on again and again while a suspect runs, and every entry looks idle at once.
func TestRedisClockIsPutOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		long := jobs.NewKind[jobs.Fields]("long", jobs.Policy{Timeout: jobs.NoTimeout})
		run := handle(long, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(4 * time.Minute):
				return nil
			}
		})
		put, stop := q.clock()
		defer stop()
		q.hire(jobs.Config{Worker: "a"}, run)
		q.hire(jobs.Config{Worker: "b"}, run)
		q.enqueue(long.Job(nil))
		q.orphan("gone", 20*time.Second, 2, long.Job(nil))
		time.Sleep(time.Minute)
		for i := range 10 {
			put(time.Duration(i+1) * 61 * time.Second)
			time.Sleep(14*time.Second + time.Duration(i)*137*time.Millisecond)
		}
		time.Sleep(4 * time.Minute)
		if st := q.stats(); len(rs.all()) != 2 || st != (jobs.Stats{}) {
			t.Errorf("%d runs of two jobs, left %+v, dead %v", len(rs.all()), st, q.dead())
		}
	})
}

// The claim was sent and not answered: whether the worker has the suspect, it does not
// know, and starts nothing until it does.
func TestAClaimWhoseReplyIsLostKeepsTheWorkerEmpty(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		var s stage
		q.suspects(1, 0)
		claimed := make(chan struct{})
		var again, answered int
		proxy.Hook(func(cmd []string) servers.Action {
			if !strings.EqualFold(cmd[0], "eval") || !strings.Contains(cmd[1], "running -> running, here") {
				return servers.Pass
			}
			switch again++; {
			case again == 1:
				return servers.SwallowReply.Then(func() { close(claimed) })
			case again < 6:
				return servers.CutBefore
			}
			answered++
			return servers.Pass
		})
		q.start(jobs.Config{Lease: 3 * time.Second}, s.register) // an answer that is half a lease late is not trusted
		<-claimed
		q.enqueue(sleep(0), sleep(0))
		s.others.wait(t, 2)
		q.idle()
		if len(s.suspects.all()) != 1 || answered != 1 || len(s.trouble) != 0 {
			t.Fatalf("%d suspects ran, %d claims were answered, trouble %v", len(s.suspects.all()), answered, s.trouble)
		}
		for i, at := range s.others.times() {
			if at.Before(s.suspects.times()[0]) {
				t.Errorf("job %d began before the suspect", i)
			}
		}
		if dead := q.dead(); len(dead) != 0 {
			t.Errorf("dead: %+v", dead)
		}
	})
}

// A worker that has an outcome to write is not empty: a suspect that kills it would take that along.
func TestAnUnwrittenOutcomeKeepsSuspectsAway(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var s stage
		later := jobs.NewKind[jobs.None]("later", jobs.Policy{})
		q.hire(jobs.Config{}, s.register, handle(later, func(context.Context, jobs.None) error { return jobs.Snooze(24 * time.Hour) }))
		time.Sleep(2 * lease)
		must(t, q.rdb.Set(t.Context(), q.key("delayed"), "x", time.Hour).Err())
		q.enqueue(later.Job(jobs.None{}))
		time.Sleep(time.Second)
		q.suspects(1, 0)
		time.Sleep(10 * lease)
		if n := len(s.suspects.all()); n != 0 {
			t.Errorf("%d suspects ran beside an outcome that is not written", n)
		}
		must(t, q.rdb.Del(t.Context(), q.key("delayed")).Err())
		time.Sleep(20 * lease)
		if n := len(s.suspects.all()); n != 1 || q.stats() != (jobs.Stats{Delayed: 1}) {
			t.Errorf("%d suspects ran when it was, left %+v", n, q.stats())
		}
	})
}
