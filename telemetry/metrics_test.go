package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

func TestEnqueueingIsCountedByKindAndError(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		q.enqueue(mail.Job(none))
		must(t, q.tel.Enqueue(t.Context(), q.Client, mail.Job(none), pdf.Job(none)))
		must(t, q.rdb.Set(t.Context(), "delayed", "no sorted set", 0).Err())
		if err := q.tel.Enqueue(t.Context(), q.Client, mail.Job(none).In(time.Hour)); err == nil {
			t.Error("enqueued into a string")
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.tel.Enqueue(canceled, q.Client, pdf.Job(none)); err == nil {
			t.Error("enqueued under a cancelled context")
		}
		q.moved(map[string]float64{
			"messaging.client.sent.messages{jobs.kind=mail,messaging.operation.name=enqueue}":                           2,
			"messaging.client.sent.messages{jobs.kind=pdf,messaging.operation.name=enqueue}":                            1,
			"messaging.client.sent.messages{error.type=WRONGTYPE,jobs.kind=mail,messaging.operation.name=enqueue}":      1,
			"messaging.client.sent.messages{error.type=canceled,jobs.kind=pdf,messaging.operation.name=enqueue}":        1,
			"messaging.client.operation.duration{messaging.operation.name=enqueue}":                                     1,
			"messaging.client.operation.duration{error.type=WRONGTYPE,messaging.operation.name=enqueue}":                1,
			"messaging.client.operation.duration{error.type=canceled,messaging.operation.name=enqueue}":                 1,
			"messaging.client.sent.messages{error.type=uncertain,jobs.kind=mail,messaging.operation.name=enqueue}":      -1,
			"messaging.client.sent.messages{error.type=_OTHER,jobs.kind=mail,messaging.operation.name=enqueue}":         -1,
			"messaging.client.operation.duration{error.type=_OTHER,jobs.kind=mail,messaging.operation.name=enqueue}":    -1,
			"messaging.client.operation.duration{error.type=uncertain,jobs.kind=mail,messaging.operation.name=enqueue}": -1,
		})
	})
}

// A lost reply: nobody knows.
func TestUncertainJobsAreCountedAsSuch(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		rdb.AddHook(lost{})
		q := watched(t, rdb, jobs.Config{}, jobs.Options{})
		if err := q.tel.Enqueue(t.Context(), q.Client, mail.Job(none)); !errors.Is(err, jobs.ErrUncertain) {
			t.Fatal(err)
		}
		q.moved(map[string]float64{
			"messaging.client.sent.messages{error.type=uncertain,jobs.kind=mail,messaging.operation.name=enqueue}": 1,
			"messaging.client.sent.messages{jobs.kind=mail,messaging.operation.name=enqueue}":                      -1,
		})
	})
}

// lost is a connection that loses the reply of each XADD.
type lost struct{}

func (lost) DialHook(next redis.DialHook) redis.DialHook { return next }

func (lost) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.EqualFold(cmd.Name(), "xadd") {
			err = errReset
			cmd.SetErr(err)
		}
		return err
	}
}

func (lost) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return strings.EqualFold(c.Name(), "xadd") }) {
			for _, cmd := range cmds {
				cmd.SetErr(errReset)
			}
			err = errReset
		}
		return err
	}
}

var errReset = errors.New("connection reset")

func TestOutcomesMoveTheirMetrics(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		var mailed, snoozed atomic.Bool
		jobs.Handle(q.runner, mail, func(context.Context, jobs.None) error {
			if mailed.Swap(true) {
				return nil
			}
			return errOut
		})
		jobs.Handle(q.runner, pdf, func(context.Context, jobs.None) error { panic("a seat too many") })
		later := jobs.NewKind[jobs.None]("later", jobs.Policy{})
		jobs.Handle(q.runner, later, func(context.Context, jobs.None) error {
			if snoozed.Swap(true) {
				return nil
			}
			return jobs.Snooze(time.Millisecond)
		})
		q.run()
		q.enqueue(mail.Job(none))
		q.settled(jobs.OutcomeRetried)
		q.await(jobs.EventPromoted, nil)
		q.settled(jobs.OutcomeDone)
		q.enqueue(pdf.Job(none))
		q.settled(jobs.OutcomeDead)
		q.enqueue(later.Job(none))
		q.settled(jobs.OutcomeSnoozed)
		q.settled(jobs.OutcomeDone)
		must(t, q.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs", Values: []string{"kind", "mail", "attempts", "many"}}).Err())
		q.settled(jobs.OutcomeDead)
		must(t, q.rdb.ZAdd(t.Context(), "delayed", redis.Z{Score: 1, Member: "rubbish"}).Err())
		q.await(jobs.EventBuried, nil)
		q.add("strange-4471")
		q.settled(jobs.OutcomeParked)

		points := q.points()
		for name, least := range map[string]float64{
			"jobs.promote.lateness{}": 2,
			// A parked job comes back in a second.
			"messaging.client.consumed.messages{jobs.kind=_OTHER,messaging.operation.name=fetch}": 1,
			"jobs.lag{jobs.kind=_OTHER}": 1, "jobs.deliveries{jobs.kind=_OTHER}": 1,
			"jobs.outcomes{jobs.kind=_OTHER,jobs.outcome=parked}": 1,
		} {
			if points[name] < least {
				t.Errorf("%s is %v, want %v or more", name, points[name], least)
			}
		}
		q.moved(map[string]float64{
			"messaging.client.consumed.messages{jobs.kind=mail,messaging.operation.name=fetch}": 3,
			"jobs.lag{jobs.kind=mail}":                                                                                   3,
			"jobs.outcomes{jobs.kind=mail,jobs.outcome=retried}":                                                         1,
			"jobs.outcomes{jobs.kind=mail,jobs.outcome=done}":                                                            1,
			"jobs.outcomes{jobs.kind=mail,jobs.outcome=dead}":                                                            1,
			"jobs.outcomes{jobs.kind=pdf,jobs.outcome=dead}":                                                             1,
			"jobs.outcomes{jobs.kind=later,jobs.outcome=snoozed}":                                                        1,
			"jobs.outcomes{jobs.kind=_OTHER,jobs.outcome=dead}":                                                          1,
			"jobs.dead_letters{jobs.kind=pdf,jobs.reason=failed}":                                                        1,
			"jobs.dead_letters{jobs.kind=mail,jobs.reason=undecodable}":                                                  1,
			"jobs.dead_letters{jobs.kind=_OTHER,jobs.reason=undecodable}":                                                1,
			"jobs.dead_letters{jobs.kind=mail,jobs.reason=failed}":                                                       0,
			"jobs.attempts{jobs.kind=mail}":                                                                              2,
			"jobs.attempts.sum{jobs.kind=mail}":                                                                          2, // 2 and 0
			"jobs.deliveries{jobs.kind=mail}":                                                                            3,
			"messaging.process.duration{jobs.kind=mail,messaging.operation.name=process}":                                1,
			"messaging.process.duration{error.type=*errors.errorString,jobs.kind=mail,messaging.operation.name=process}": 1,
			"messaging.process.duration{error.type=panic,jobs.kind=pdf,messaging.operation.name=process}":                1,
			"messaging.process.duration{jobs.kind=later,messaging.operation.name=process}":                               2,
		})
		for name := range points {
			if strings.Contains(name, "4471") {
				t.Errorf("%s: a stranger's name", name)
			}
		}
	})
}

// add enqueues a job as another program would.
func (q *fleet) add(kind string) {
	q.t.Helper()
	must(q.t, q.rdb.XAdd(q.t.Context(), &redis.XAddArgs{Stream: "jobs", Values: []string{"kind", kind}}).Err())
}

// take delivers what is ready to a worker that never says a word again.
func (q *fleet) take(deliveries int) {
	q.t.Helper()
	ctx := q.t.Context()
	_ = q.rdb.XGroupCreateMkStream(ctx, "jobs", "workers", "0").Err() // there already, perhaps
	read, err := q.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: "ghost", Streams: []string{"jobs", ">"}}).Result()
	must(q.t, err)
	for _, m := range read[0].Messages {
		must(q.t, q.rdb.Do(ctx, "XCLAIM", "jobs", "workers", "ghost", 0, m.ID, "RETRYCOUNT", deliveries).Err())
	}
}

func TestWhatASilentWorkerLeavesIsReclaimedAndPoisonIsBuried(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, returns(nil))
		jobs.Handle(q.runner, pdf, returns(nil))
		q.add("pdf") // by another program: that the kinds are known here shows in their handlers only
		q.take(3)
		q.add("mail")
		q.take(1)
		unregister := q.tel.Register(q.Client)
		q.moved(map[string]float64{"jobs.workers{}": 0, "jobs.depth{jobs.state=running}": 2}) // a consumer, and no worker
		unregister()
		q.run()
		e := q.settled(jobs.OutcomeDone)
		if e.Deliveries != 2 {
			t.Errorf("delivered %d times", e.Deliveries)
		}
		q.await(jobs.EventBuried, nil)
		q.moved(map[string]float64{
			"jobs.reclaimed{jobs.kind=mail}": 1,
			"jobs.reclaimed{jobs.kind=pdf}":  0,
			"messaging.client.consumed.messages{jobs.kind=mail,messaging.operation.name=reclaim}": 1,
			"jobs.lag{jobs.kind=mail}":                             -1, // of a first delivery only
			"jobs.deliveries{jobs.kind=mail}":                      1,
			"jobs.deliveries.sum{jobs.kind=mail}":                  2,
			"jobs.dead_letters{jobs.kind=pdf,jobs.reason=poison}":  1,
			"jobs.dead_letters{jobs.kind=pdf,jobs.reason=failed}":  0,
			"jobs.dead_letters{jobs.kind=mail,jobs.reason=poison}": 0,
			"jobs.outcomes{jobs.kind=pdf,jobs.outcome=dead}":       1,
		})
	})
}

func TestAbandonedHandlersAreCountedUntilTheyReturn(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		slow := jobs.NewKind[jobs.None]("slow", jobs.Policy{Timeout: time.Millisecond})
		release := make(chan struct{})
		jobs.Handle(q.runner, slow, func(context.Context, jobs.None) error { <-release; return nil })
		q.run()
		q.moved(map[string]float64{"jobs.handlers.abandoned{}": 0})
		q.enqueue(slow.Job(none))
		q.await(jobs.EventAbandoned, nil)
		q.moved(map[string]float64{"jobs.handlers.abandoned{}": 1})
		close(release)
		q.await(jobs.EventReturned, nil)
		q.moved(map[string]float64{"jobs.handlers.abandoned{}": 0})
	})
}

func TestLostLeasesAreCounted(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		running := make(chan struct{})
		jobs.Handle(q.runner, mail, func(ctx context.Context, _ jobs.None) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		})
		q.run()
		q.enqueue(mail.Job(none))
		<-running
		p, err := q.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: "jobs", Group: "workers", Start: "-", End: "+", Count: 1}).Result()
		must(t, err)
		must(t, q.rdb.XClaim(t.Context(), &redis.XClaimArgs{Stream: "jobs", Group: "workers", Consumer: "another", Messages: []string{p[0].ID}}).Err())
		q.await(jobs.EventLeaseLost, nil)
		q.moved(map[string]float64{"jobs.leases.lost{jobs.kind=mail}": 1})
		q.until("messaging.process.duration{error.type=lease_lost,jobs.kind=mail,messaging.operation.name=process}", 1)
	})
}

// until collects until a point has a value.
func (q *fleet) until(name string, value float64) {
	q.t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		points := q.points()
		if got, ok := points[name]; ok && got == value {
			return
		}
		if time.Now().After(late) {
			q.t.Fatalf("%s is not %v: %v", name, value, points)
		}
	}
}

func TestTicksAndSchedules(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, returns(nil))
		q.runner.Schedule(jobs.Periodic{Name: "often", When: jobs.Every(time.Second), Job: mail.Job(none)})
		q.runner.Schedule(jobs.Periodic{Name: "rarely", When: jobs.Every(time.Hour), Job: mail.Job(none)})
		defer q.tel.Register(q.Client)()
		stop := q.run()
		q.await(jobs.EventTicked, nil)
		q.until("jobs.schedule.period{jobs.schedule=rarely}", 3600)
		q.moved(map[string]float64{"jobs.schedule.overdue{jobs.schedule=rarely}": 0})
		stop()
		points := q.points()
		if n := points["jobs.tick.lateness{jobs.schedule=often}"]; n < 1 {
			t.Errorf("jobs.tick.lateness has %v values", n)
		}
		q.moved(map[string]float64{"jobs.workers{}": 0, "jobs.schedule.period{jobs.schedule=rarely}": -1})
	})
}

// Ticks cannot be written, while all else goes on: the schedule is overdue, by more and more.
func TestAScheduleThatStandsStillIsOverdue(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		jobs.Handle(q.runner, mail, returns(nil))
		q.runner.Schedule(jobs.Periodic{Name: "often", When: jobs.Every(2 * time.Second), Job: mail.Job(none)})
		defer q.tel.Register(q.Client)()
		q.run()
		q.await(jobs.EventTicked, nil)
		q.rdb.AddHook(&noTicks{})
		trouble := q.await(jobs.EventTrouble, nil)
		if trouble.Name != "tick" {
			t.Fatalf("trouble in %s: %v", trouble.Name, trouble.Err)
		}
		for late := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			points := q.points()
			overdue, period := points["jobs.schedule.overdue{jobs.schedule=often}"], points["jobs.schedule.period{jobs.schedule=often}"]
			if period == 2 && overdue > period {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("overdue for %v s of a period of %v s", overdue, period)
			}
		}
		must(t, q.rdb.Del(t.Context(), "sched:often").Err())
		points := q.points()
		if overdue := points["jobs.schedule.overdue{jobs.schedule=often}"]; overdue < 2 {
			t.Errorf("without a last tick it is overdue for %v s", overdue)
		}
		q.moved(map[string]float64{"jobs.schedule.period{jobs.schedule=often}": 0})
	})
}

// tells has a worker describe itself, at an hour past the epoch, with a schedule whose next tick is in epoch seconds.
func (q *fleet) tells(worker string, started, next int) {
	q.t.Helper()
	ctx := q.t.Context()
	_ = q.rdb.XGroupCreateMkStream(ctx, "jobs", "workers", "0").Err() // there already, perhaps
	must(q.t, q.rdb.XGroupCreateConsumer(ctx, "jobs", "workers", worker).Err())
	must(q.t, q.rdb.HSet(ctx, "jobs:worker:"+worker, "started", started, "seen", 3600, "lease", 12_000,
		"schedules", fmt.Sprintf(`[{"name":"minutely","kind":"mail","expression":"@every 1m","next":%d}]`, next)).Err())
}

// What a killed worker has said of its schedules stays where it was, for a few leases: no schedule stands still for that.
func TestAScheduleThatAKilledWorkerFollowedIsNotOverdue(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		defer q.tel.Register(q.Client)()
		q.tells("lives", 1, 3600)
		q.tells("killed", 2, 3480)
		must(t, q.rdb.Set(t.Context(), "sched:minutely", "3540 @every 1m", 0).Err())
		q.moved(map[string]float64{
			"jobs.schedule.overdue{jobs.schedule=minutely}": 0, "jobs.schedule.period{jobs.schedule=minutely}": 60,
		})
		must(t, q.rdb.Del(t.Context(), "jobs:worker:lives").Err())
		q.moved(map[string]float64{
			"jobs.schedule.overdue{jobs.schedule=minutely}": -1, "jobs.schedule.period{jobs.schedule=minutely}": -1,
		})
		must(t, q.rdb.Set(t.Context(), "sched:minutely", "3420 @every 1m", 0).Err())
		q.moved(map[string]float64{
			"jobs.schedule.overdue{jobs.schedule=minutely}": 120, "jobs.schedule.period{jobs.schedule=minutely}": 60,
		})
	})
}

// noTicks refuses what the tick loop writes.
type noTicks struct{}

func (*noTicks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*noTicks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isTick(cmd) {
			cmd.SetErr(errReset)
			return errReset
		}
		return next(ctx, cmd)
	}
}
func (*noTicks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, isTick) {
			for _, cmd := range cmds {
				cmd.SetErr(errReset)
			}
			return errReset
		}
		return next(ctx, cmds)
	}
}

func isTick(cmd redis.Cmder) bool {
	return strings.HasPrefix(cmd.Name(), "eval") && slices.ContainsFunc(cmd.Args(), func(a any) bool { return strings.HasPrefix(fmt.Sprint(a), "sched:often:") })
}

func TestGaugesAreAsked(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		running, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		jobs.Handle(q.runner, mail, func(context.Context, jobs.None) error { close(running); <-release; return nil })
		jobs.Handle(q.runner, pdf, returns(errOut))
		defer q.tel.Register(q.Client)()
		q.moved(map[string]float64{
			"jobs.workers{}": 0, "jobs.slots{}": 0, "jobs.depth{jobs.state=ready}": 0, "jobs.ready.oldest.age{}": 0,
			"jobs.dead_letters{jobs.kind=_OTHER,jobs.reason=poison}": 0, "jobs.redis.errors{error.type=_OTHER,jobs.loop=tick}": 0,
		})
		q.enqueue(pdf.Job(none).In(time.Hour), pdf.Job(none), pdf.Job(none))
		for {
			points := q.points()
			if points["jobs.depth{jobs.state=ready}"] != 2 {
				t.Fatalf("points: %v", points)
			}
			if points["jobs.ready.oldest.age{}"] > 0 {
				break
			}
		}
		q.run()
		q.settled(jobs.OutcomeDead)
		q.settled(jobs.OutcomeDead)
		q.enqueue(mail.Job(none))
		<-running
		q.until("jobs.workers{}", 1)
		q.moved(map[string]float64{
			"jobs.slots{}":                          8,
			"jobs.depth{jobs.state=ready}":          0,
			"jobs.depth{jobs.state=running}":        1,
			"jobs.depth{jobs.state=delayed}":        1,
			"jobs.depth{jobs.state=dead}":           2,
			"jobs.ready.oldest.age{}":               0,
			"jobs.collect.errors{jobs.query=stats}": 0,
		})
	})
}

// slow is a connection that answers nothing until the caller gives up.
type slow struct{ is atomic.Bool }

func (s *slow) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.is.Load() {
			<-ctx.Done()
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}
func (s *slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.is.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, cmds)
	}
}

func TestARedisThatDoesNotAnswerLeavesGaugesAbsentAndIsCounted(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		var connection slow
		rdb.AddHook(&connection)
		q := watched(t, rdb, jobs.Config{}, jobs.Options{})
		defer q.tel.Register(q.Client)()
		q.moved(map[string]float64{"jobs.depth{jobs.state=dead}": 0, "jobs.workers{}": 0})
		connection.is.Store(true)
		start := time.Now()
		q.points()
		if took := time.Since(start); took > patience/2 {
			t.Errorf("a collection waited for %s", took)
		}
		connection.is.Store(false)
		must(t, rdb.Set(t.Context(), "jobs:dead", "no stream", 0).Err())
		q.moved(map[string]float64{"jobs.depth{jobs.state=dead}": -1, "jobs.workers{}": 0})
		q.moved(map[string]float64{"jobs.collect.errors{jobs.query=stats}": 3, "jobs.collect.errors{jobs.query=workers}": 1})
	})
}

func TestTroubleWithRedisIsCountedByLoop(t *testing.T) {
	t.Parallel()
	rdb := servers.NewRedis(t)
	q := watched(t, rdb.Client(t), jobs.Config{}, jobs.Options{})
	jobs.Handle(q.runner, mail, returns(nil))
	q.run()
	q.enqueue(mail.Job(none))
	q.settled(jobs.OutcomeDone)
	q.came = nil
	must(t, rdb.Kill())
	q.await(jobs.EventTrouble, func(e jobs.Event) bool { return e.Name == "renew" })
	q.await(jobs.EventTrouble, func(e jobs.Event) bool { return e.Name == "fetch" })
	points := q.points()
	must(t, rdb.Start())
	for _, loop := range []string{"renew", "fetch"} {
		if points["jobs.redis.errors{error.type=connection,jobs.loop="+loop+"}"] == 0 {
			t.Errorf("of the %s loop nothing is counted: %v", loop, points)
		}
	}
}

func TestKindsAreBounded(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		for i := range 150 {
			q.enqueue(jobs.Job{Kind: fmt.Sprint("made-up-", i)})
		}
		if kinds := kindsOf(q.points(), "messaging.client.sent.messages"); len(kinds) != 101 || !slices.Contains(kinds, "_OTHER") {
			t.Errorf("%d kinds: %v", len(kinds), kinds)
		}
		jobs.Handle(q.runner, mail, returns(nil)) // has a name all the same
		q.run()
		q.enqueue(mail.Job(none))
		q.settled(jobs.OutcomeDone)
		if kinds := kindsOf(q.points(), "jobs.outcomes"); !slices.Contains(kinds, "mail") || len(kinds) > 102 {
			t.Errorf("%d kinds: %v", len(kinds), kinds)
		}
	})
}

func TestTwoQueuesAreToldApart(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		other := watched(t, q.rdb, jobs.Config{}, jobs.Options{Prefix: "other:"})
		defer other.tel.Register(other.Client)()
		other.enqueue(mail.Job(none))
		name := ""
		for _, attr := range other.attributes("jobs.depth") {
			if attr.Key == "messaging.destination.name" {
				name = attr.Value.AsString()
			}
		}
		if name != "other:jobs" {
			t.Errorf("the queue is %q", name)
		}
	})
}
