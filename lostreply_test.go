package jobs_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// deaf loses the first reply that brings entries.
type deaf struct {
	mu sync.Mutex
	at time.Time // it did
}

func (d *deaf) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return d.hear(next(ctx, cmd), cmd)
	}
}

func (d *deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return d.hear(next(ctx, cmds), cmds...)
	}
}

func (d *deaf) hear(err error, cmds ...redis.Cmder) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cmd := range cmds {
		if cmd.Name() != "xreadgroup" || !d.at.IsZero() || !strings.Contains(cmd.String(), "kind") {
			continue
		}
		d.at, err = time.Now(), io.ErrUnexpectedEOF
		if read, ok := cmd.(interface{ SetVal([]redis.XStream) }); ok {
			read.SetVal(nil)
		}
		cmd.SetErr(err)
	}
	return err
}

// In a bubble the clock is exact.
func TestFetchedAndNeverHeardOfRunsWithinALease(t *testing.T) {
	t.Parallel()
	for name, ready := range map[string]bool{"found ready": true, "waited for": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { fetchUnheard(t, ready) })
		})
	}
}

// fetchUnheard has a worker fetch jobs, that are ready when it begins or not, and lose the reply.
func fetchUnheard(t *testing.T, ready bool) {
	const lease = 10 * time.Second
	m := miniredis.NewMiniRedis()
	defer m.Close()
	rdb := new(wire).client(t, m)
	d := new(deaf)
	rdb.AddHook(d)
	q := newQueue(t, rdb, "")
	var rs runs
	if ready {
		q.enqueue(many(3)...)
	}
	w := q.start(jobs.Config{Lease: lease}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
		rs.add(ctx)
		q.counted(1)
		return nil
	}))
	time.Sleep(time.Minute)
	if !ready {
		q.enqueue(many(3)...)
		time.Sleep(time.Minute)
	}
	must(t, w.stop())
	if n := len(rs.all()); n != 3 {
		t.Fatalf("%d runs", n)
	}
	for _, at := range rs.times() {
		if late := at.Sub(d.at); d.at.IsZero() || late > lease+lease/4 {
			t.Errorf("it ran %s later", late)
		}
	}
}

// A claim whose reply was lost is the one way to own a last delivery without knowing of it.
func TestTakenUpAgainAtTheLastDeliveryItRunsAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var busy atomic.Int64
		finish := make(chan struct{})
		long := jobs.NewKind[jobs.None]("long", jobs.Policy{})
		q.start(jobs.Config{Lease: time.Second / 2}, handle(long, func(ctx context.Context, _ jobs.None) error {
			busy.Add(1)
			defer busy.Add(-1)
			rs.add(ctx)
			<-finish
			return nil
		}), handle(once, func(ctx context.Context, _ jobs.Fields) error {
			if n := busy.Load(); n > 0 {
				t.Errorf("it runs beside %d others", n)
			}
			q.counted(3)
			rs.add(ctx)
			return nil
		}))
		q.enqueue(long.Job(jobs.None{}))
		rs.wait(t, 1)
		for consumer := range q.pending() {
			q.own(consumer, 3)
		}
		eventually(t, "the worker empties itself", func() bool {
			return q.rdb.Exists(t.Context(), q.key("jobs:suspect")).Val() == 1
		})
		close(finish)
		rs.wait(t, 2)
		q.idle()
		if st := q.stats(); st.Dead != 0 || len(rs.all()) != 2 {
			t.Errorf("%d runs, and then %+v", len(rs.all()), st)
		}
	})
}

// own has an entry delivered to a worker behind its back: so often.
func (q *queue) own(consumer string, deliveries int) {
	q.t.Helper()
	id := fmt.Sprintf("%d-0", q.now().Add(time.Minute).UnixMilli())
	_, err := q.rdb.TxPipelined(q.t.Context(), func(tx redis.Pipeliner) error {
		tx.XAdd(q.t.Context(), &redis.XAddArgs{Stream: q.key("jobs"), ID: id, Values: []string{"kind", "once"}})
		tx.Do(q.t.Context(), "xreadgroup", "group", "workers", consumer, "count", 1, "streams", q.key("jobs"), ">")
		tx.Do(q.t.Context(), "xclaim", q.key("jobs"), "workers", consumer, 0, id, "retrycount", deliveries, "justid")
		return nil
	})
	must(q.t, err)
}

// counted fails the test where what is pending was not delivered so often.
func (q *queue) counted(want int64) {
	page, err := q.rdb.XPendingExt(q.t.Context(), &redis.XPendingExtArgs{
		Stream: q.key("jobs"), Group: "workers", Start: "-", End: "+", Count: 100,
	}).Result()
	if err != nil {
		q.t.Error(err)
	}
	for _, p := range page {
		if p.RetryCount != want {
			q.t.Errorf("%s is counted as delivered %d times, want %d", p.ID, p.RetryCount, want)
		}
	}
}

// mute loses the first answer to a script that begins so.
type mute struct {
	deaf
	script string
}

func (m *mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, cmd := range cmds {
			if text, ok := cmd.Args()[1].(string); !ok || !strings.HasPrefix(text, m.script) || !m.at.IsZero() {
				continue
			}
			m.at, err = time.Now(), io.ErrUnexpectedEOF
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// illiterate may not read streams backwards, as dead letters are read.
type illiterate struct{ mute }

func (*illiterate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "xrevrange" {
			cmd.SetErr(noPermission{})
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

type noPermission struct{}

func (noPermission) Error() string {
	return "NOPERM this user has no permissions to run the 'xrevrange' command"
}
func (noPermission) RedisError() {}

// Where it cannot be found out what became of a job, its slot is free all the same.
func TestALostAnswerKeepsNoSlot(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		var log journal
		fails := jobs.NewKind[jobs.Fields]("fails", jobs.Policy{})
		w := q.hire(jobs.Config{Slots: 1, Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)),
			handle(fails, func(context.Context, jobs.Fields) error { return errSeat }))
		w.rdb.AddHook(&illiterate{mute{script: "-- running -> dead"}})
		q.enqueue(fails.Job(nil), once.Job(nil))
		time.Sleep(30 * time.Second) // the answer that was lost has brought the other one
		if len(rs.all()) != 1 || len(q.dead()) != 1 {
			t.Errorf("%d runs behind it, dead: %+v", len(rs.all()), q.dead())
		}
		if lines := log.lines(t, "is not written"); len(lines) != 1 {
			t.Errorf("logged: %v", lines)
		}
		must(t, w.stop())
	})
}

// severed has no pipeline come to a connection, as long as it is so.
type severed struct {
	mute
	now atomic.Bool
}

func (s *severed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !s.now.Load() {
			return next(ctx, cmds)
		}
		err := &net.OpError{Op: "dial", Err: io.ErrClosedPipe}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// What never left this process is not taken for written: here another worker has had the job meanwhile.
func TestWhatWasNeverSentIsNotWritten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var settled counter
		var log journal
		var line severed
		kind := jobs.NewKind[jobs.Fields]("falters", jobs.Policy{Retries: 1})
		w := q.hire(jobs.Config{Logger: log.logger(t), Observe: func(e jobs.Event) {
			if e.What == jobs.EventSettled {
				settled.add(1)
			}
		}}, handle(kind, func(context.Context, jobs.Fields) error {
			line.now.Store(true)
			return errSeat
		}))
		w.rdb.AddHook(&line)
		q.enqueue(kind.Job(nil))
		time.Sleep(time.Second)
		for _, d := range q.deliveries() {
			q.hold("thief", d.entry, 0, 2)
		}
		line.now.Store(false)
		time.Sleep(10 * time.Second)
		if lines := log.lines(t, "is not written"); settled.value() != 0 || len(lines) != 1 {
			t.Errorf("settled %d times, logged: %v", settled.value(), lines)
		}
	})
}

// What was written when the answer was lost is told all the same, once, and is nobody else's.
func TestAnOutcomeWhoseAnswerIsLostIsTold(t *testing.T) {
	t.Parallel()
	for script, retries := range map[string]int{"-- running -> gone": -1, "-- running -> delayed": 1, "-- running -> dead": 0} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *queue) {
				kind := jobs.NewKind[jobs.Fields]("falters", jobs.Policy{Retries: max(0, retries), Backoff: func(int) time.Duration { return time.Hour }})
				var log journal
				var settled counter
				var told []jobs.DeadLetter
				m := &mute{script: script}
				w := q.hire(jobs.Config{
					Logger: log.logger(t), OnDead: func(_ context.Context, l jobs.DeadLetter) { told = append(told, l) },
					Observe: func(e jobs.Event) {
						if e.What == jobs.EventSettled {
							settled.add(1)
						}
					},
				}, handle(kind, func(context.Context, jobs.Fields) error {
					if retries < 0 {
						return nil
					}
					return errSeat
				}))
				w.rdb.AddHook(m)
				q.enqueue(kind.Job(nil))
				time.Sleep(10 * time.Second)
				must(t, w.stop())
				if m.at.IsZero() || settled.value() != 1 {
					t.Errorf("lost at %s, settled %d times", m.at, settled.value())
				}
				if lines := log.lines(t, "is not written"); len(lines) > 0 {
					t.Errorf("logged: %v", lines)
				}
				dead := q.dead()
				if len(told) != len(dead) || len(dead) != 1-min(1, max(retries, -retries)) || len(dead) == 1 && told[0].Entry != dead[0].Entry {
					t.Errorf("dead: %+v; told: %+v", dead, told)
				}
			})
		})
	}
}
