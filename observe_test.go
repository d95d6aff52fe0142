package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// events are what an Observe was told.
type events struct {
	mu   sync.Mutex
	list []jobs.Event
}

func (es *events) observe(e jobs.Event) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.list = append(es.list, e)
}

// of are the events of a kind, about jobs of a kind; "": any.
func (es *events) of(what jobs.EventKind, kind string) (some []jobs.Event) {
	es.mu.Lock()
	defer es.mu.Unlock()
	for _, e := range es.list {
		if e.What == what && (kind == "" || e.Job.Kind == kind) {
			some = append(some, e)
		}
	}
	return some
}

// one waits for such an event and returns the first.
func (es *events) one(t testing.TB, what jobs.EventKind, kind string) jobs.Event {
	t.Helper()
	eventually(t, "the event comes", func() bool { return len(es.of(what, kind)) > 0 })
	return es.of(what, kind)[0]
}

func TestObserveDeliveriesAndOutcomes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var es events
		snoozing := jobs.NewKind[jobs.Fields]("snoozing", jobs.Policy{})
		dying := jobs.NewKind[jobs.Fields]("dying", jobs.Policy{})
		retried := jobs.NewKind[jobs.Fields]("retried", jobs.Policy{Retries: 1, Backoff: jobs.FullJitter(0, 0)})
		q.enqueue(once.Job(jobs.Fields{"secret": "x"}), snoozing.Job(nil), dying.Job(nil), retried.Job(nil))
		q.add("jobs", "kind", "once", "attempts", "many")
		q.add("jobs", "kind", "stranger")
		time.Sleep(10 * time.Second)
		h := q.hire(jobs.Config{Observe: es.observe},
			handle(once, func(context.Context, jobs.Fields) error { time.Sleep(2 * time.Second); return nil }),
			handle(snoozing, func(context.Context, jobs.Fields) error { return jobs.Snooze(time.Hour) }),
			handle(dying, func(context.Context, jobs.Fields) error { return errMail }),
			handle(retried, func(context.Context, jobs.Fields) error { return errMail }))
		time.Sleep(5 * time.Second)
		for kind, want := range map[string]string{
			"once": "dead undecodable, done", "snoozing": "snoozed", "dying": "dead failed",
			"retried": "retried, dead failed", "stranger": "parked",
		} {
			var got []string
			for _, e := range es.of(jobs.EventSettled, kind) {
				got = append(got, strings.TrimSpace(e.Outcome+" "+string(e.Reason)))
				if (e.Err == nil) != (e.Outcome == jobs.OutcomeDone || e.Outcome == jobs.OutcomeParked) || e.Deliveries != 1 || len(e.Job.Fields) > 0 {
					t.Errorf("%+v", e)
				}
				if long := e.Outcome == jobs.OutcomeDone; long != (e.Took >= 2*time.Second) || e.Took > 3*time.Second {
					t.Errorf("%s %s took %s", kind, e.Outcome, e.Took)
				}
			}
			if text := strings.Join(got[:min(len(got), strings.Count(want, ",")+1)], ", "); text != want {
				t.Errorf("%s: %s", kind, text)
			}
			first := es.of(jobs.EventDelivered, kind)[0]
			if first.Deliveries != 1 || first.Late < 10*time.Second || first.Late > 11*time.Second {
				t.Errorf("%s was delivered: %+v", kind, first)
			}
		}
		if again := es.of(jobs.EventDelivered, "retried")[1]; again.Job.Attempts != 1 || again.Late > time.Second {
			t.Errorf("delivered again: %+v", again)
		}
		must(t, h.stop())
	})
}

// What a Middleware is told beforehand is what an Event tells afterwards.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var es events
		var foretold sync.Map
		foretell := func(next jobs.Handler) jobs.Handler {
			return func(ctx context.Context, job jobs.Job) error {
				err := next(ctx, job)
				said, _ := foretold.LoadOrStore(job.Kind, new([]string))
				*said.(*[]string) = append(*said.(*[]string), jobs.OutcomeOf(ctx, err))
				return err
			}
		}
		retries := jobs.Policy{Retries: 1, Backoff: jobs.FullJitter(0, 0)}
		var register []func(*jobs.Runner)
		want := map[string]string{}
		for _, c := range []struct {
			kind, want string
			policy     jobs.Policy
			run        func(context.Context) error
		}{
			{"done", "done", retries, func(context.Context) error { return nil }},
			{"failing", "retried dead", retries, func(context.Context) error { return errMail }},
			{"permanent", "dead", retries, func(context.Context) error { return jobs.Permanent(errMail) }},
			{"snoozing", "snoozed", retries, func(context.Context) error { return jobs.Snooze(time.Hour) }},
			{"never_again", "dead", jobs.Policy{}, func(context.Context) error { return errMail }},
			{"released", "released", retries, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			{"abandoned", "", jobs.Policy{Timeout: time.Second}, func(context.Context) error { time.Sleep(time.Minute); return nil }},
		} {
			kind := jobs.NewKind[jobs.Fields](c.kind, c.policy)
			want[c.kind] = c.want
			q.enqueue(kind.Job(nil))
			register = append(register, handle(kind, func(ctx context.Context, _ jobs.Fields) error { return c.run(ctx) }))
		}
		h := q.hire(jobs.Config{Observe: es.observe, Middleware: []jobs.Middleware{foretell}}, register...)
		time.Sleep(2 * time.Minute)
		must(t, h.stop())
		for kind, want := range want {
			said, _ := foretold.Load(kind)
			if said == nil {
				t.Errorf("%s: nothing was foretold", kind)
				continue
			}
			var told []string
			for _, e := range es.of(jobs.EventSettled, kind) {
				told = append(told, e.Outcome)
			}
			if got := strings.Join(*said.(*[]string), " "); got != want {
				t.Errorf("%s: foretold %q, want %q", kind, got, want)
			}
			if kind != "abandoned" && strings.Join(told, " ") != want {
				t.Errorf("%s: told %q, want %q", kind, told, want)
			}
		}
	})
	if got := jobs.OutcomeOf(t.Context(), errMail); got != "" {
		t.Errorf("where nothing runs: %q", got)
	}
}

func TestObservePromotedAndTicked(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var es events
		q.enqueue(once.Job(nil).In(time.Minute), once.Job(nil).In(2*time.Minute))
		time.Sleep(5 * time.Minute)
		var rs runs
		q.hire(jobs.Config{Observe: es.observe}, handle(once, record[jobs.Fields](&rs)), func(r *jobs.Runner) {
			r.Schedule(jobs.Periodic{Name: "sweep", When: jobs.Every(time.Hour), Job: once.Job(nil)})
		})
		time.Sleep(2 * time.Second)
		if e := es.of(jobs.EventPromoted, ""); len(e) != 1 || e[0].Late < 4*time.Minute || e[0].Late > 5*time.Minute {
			t.Errorf("promoted: %+v", e)
		}
		if e := es.of(jobs.EventTicked, ""); len(e) != 0 {
			t.Errorf("at first sight: %+v", e)
		}
		time.Sleep(time.Hour)
		if e := es.of(jobs.EventTicked, ""); len(e) != 1 || e[0].Name != "sweep" || e[0].Job.Kind != "once" || e[0].Job.Tick.IsZero() || e[0].Late > 2*time.Second {
			t.Errorf("ticked: %+v", e)
		}
	})
}

func TestObserveWhatGoesWrong(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var es events
		hung := jobs.NewKind[jobs.Fields]("hung", jobs.Policy{Timeout: time.Millisecond})
		entry := q.add("jobs", "kind", "lost", "job_id", "l")
		lost := jobs.NewKind[jobs.Fields]("lost", jobs.Policy{})
		g, stole := newGate(), newGate()
		w := q.start(jobs.Config{Lease: 500 * time.Millisecond, Observe: es.observe}, handle(hung, g.handle),
			handle(lost, func(ctx context.Context, f jobs.Fields) error {
				stole.add(ctx)
				<-ctx.Done()
				return errMail
			}))
		q.enqueue(hung.Job(nil))
		stole.wait(t, 1)
		q.hold("thief", entry, 0, 1)
		if e := es.one(t, jobs.EventLeaseLost, ""); e.Job.ID != "l" {
			t.Errorf("%+v", e)
		}
		if e := es.one(t, jobs.EventDelivered, "lost"); e.Deliveries != 1 {
			t.Errorf("%+v", e)
		}
		eventually(t, "it is taken over", func() bool { d := es.of(jobs.EventDelivered, "lost"); return len(d) == 2 && d[1].Deliveries == 2 })
		if e := es.one(t, jobs.EventAbandoned, ""); e.Job.Kind != "hung" || e.Took < time.Second {
			t.Errorf("%+v", e)
		}
		if n := len(es.of(jobs.EventReturned, "")); n != 0 {
			t.Errorf("%d have returned", n)
		}
		g.end <- nil
		if e := es.one(t, jobs.EventReturned, ""); e.Job.Kind != "hung" || e.Took < time.Second {
			t.Errorf("%+v", e)
		}
		q.hold("thief", entry, 0, 3) // so that it is lost again
		must(t, w.stop())
	})
}

// What is dead without a run is told of and counted too.
func TestObserveBuried(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var es events
		q.orphan("ghost", 2*time.Hour, 3, once.Job(nil), jobs.NewKind[jobs.Fields]("stranger", jobs.Policy{}).Job(nil))
		q.addDelayed(1, "rubbish")
		h := q.hire(jobs.Config{Observe: es.observe}, handle(once, record[jobs.Fields](new(runs))))
		time.Sleep(time.Minute)
		must(t, h.stop())
		for kind, want := range map[string]jobs.Reason{"once": jobs.ReasonPoison, "stranger": jobs.ReasonUnknownKind} {
			if e := es.of(jobs.EventBuried, kind); len(e) != 1 || e[0].Reason != want || e[0].Deliveries != 3 {
				t.Errorf("%s: %+v", kind, e)
			}
		}
		if n := len(es.of(jobs.EventBuried, "")); n != 3 {
			t.Errorf("%d were buried", n)
		}
		if got := q.history(); got["once"].Dead != 1 || got[""].Dead != 2 || len(got) != 2 {
			t.Errorf("counted: %+v", got)
		}
	})
}

func TestObserveTrouble(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		var es events
		q.start(jobs.Config{Observe: es.observe}, handle(once, record[jobs.Fields](new(runs))))
		proxy.Hook(func([]string) servers.Action {
			return servers.ReplyError("LOADING Redis is loading the dataset in memory")
		})
		e := es.one(t, jobs.EventTrouble, "")
		proxy.Hook(nil)
		if e.Name == "" || e.Err == nil || !strings.Contains(e.Err.Error(), "LOADING") {
			t.Errorf("%+v", e)
		}
	})
}

// An Observe that panics is no worker's end, and is said once.
func TestObserveThatPanics(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var log journal
		var rs runs
		w := q.start(jobs.Config{Logger: log.logger(t), Observe: func(jobs.Event) { panic(errors.New("no")) }}, handle(once, record[jobs.Fields](&rs)))
		q.enqueue(many(5)...)
		rs.wait(t, 5)
		q.idle()
		must(t, w.stop())
		if n := len(log.lines(t, "Observe panicked")); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

// Where an Observe ends the goroutine that it is called on, as t.FailNow does, the worker goes
// on. At the two events that every job has it is the consumer loop's: then Run says so.
func TestAnObserveThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	for what, ends := range map[jobs.EventKind]bool{
		jobs.EventDelivered: true, jobs.EventSettled: true,
		jobs.EventBuried: false, jobs.EventAbandoned: false, jobs.EventReturned: false, jobs.EventLeaseLost: false,
		jobs.EventPromoted: false, jobs.EventTicked: false, jobs.EventTrouble: false,
	} {
		t.Run(fmt.Sprint(what), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				var log journal
				var happened counter
				w := q.misfortune(jobs.Config{Logger: log.logger(t), Observe: func(e jobs.Event) {
					if e.What == what {
						happened.add(1)
						runtime.Goexit()
					}
				}})
				job := once.Job(nil)
				q.enqueue(job)
				time.Sleep(time.Minute)
				if happened.value() == 0 {
					t.Fatal("it was never told")
				}
				healthy := w.Healthy()
				began := time.Now()
				err := w.stop()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("Run returned after %s", took)
				}
				if ends {
					if err == nil || !strings.Contains(err.Error(), "Observe") || !strings.Contains(err.Error(), "Goexit") {
						t.Errorf("Run returned %v", err)
					}
					return
				}
				if err != nil || healthy != nil {
					t.Errorf("Run returned %v; healthy: %v", err, healthy)
				}
				if st := q.stats(); st.Ready+st.Running+st.Delayed != 0 {
					t.Errorf("left %+v", st)
				}
				if lines := log.lines(t, "Observe panicked"); len(lines) != 1 || !strings.Contains(lines[0]["err"].(string), "Goexit") {
					t.Errorf("logged: %v", lines)
				}
			})
		})
	}
}

// misfortune hires a worker, and lets everything happen to it that an Event tells of.
func (q *queue) misfortune(cfg jobs.Config) *hand {
	q.t.Helper()
	hangs := jobs.NewKind[jobs.Fields]("hangs", jobs.Policy{Timeout: time.Second})
	waits := jobs.NewKind[jobs.Fields]("waits", jobs.Policy{})
	q.orphan("gone", time.Hour, 3, once.Job(nil))
	q.enqueue(hangs.Job(nil), waits.Job(nil), once.Job(nil).In(10*time.Second))
	var first atomic.Bool
	w := q.hire(cfg, handle(once, record[jobs.Fields](new(runs))), on("x", jobs.Every(30*time.Second)),
		handle(hangs, func(context.Context, jobs.Fields) error { time.Sleep(5 * time.Second); return nil }),
		handle(waits, func(ctx context.Context, _ jobs.Fields) error {
			if first.CompareAndSwap(false, true) {
				<-ctx.Done()
			}
			return nil
		}))
	time.Sleep(20 * time.Second)
	for _, d := range q.deliveries() {
		q.hold("thief", d.entry, time.Hour, 1)
	}
	time.Sleep(20 * time.Second)
	w.cut()
	time.Sleep(2 * time.Second)
	w.mend()
	time.Sleep(20 * time.Second)
	return w
}
