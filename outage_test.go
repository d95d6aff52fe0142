package jobs_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// apart is a queue on a redis-server of its own, for what would disturb others.
func apart(t *testing.T, args ...string) (*queue, *servers.Redis) {
	t.Helper()
	server := servers.NewRedis(t, servers.RedisOptions{Args: args})
	return newQueue(t, server.Client(t), ""), server
}

// alone runs f on a miniredis and on a redis-server, neither shared with other tests.
func alone(t *testing.T, f func(t *testing.T, q *queue)) {
	aside(t)
	servers.Each(t, func(t *testing.T, rdb *redis.Client) { f(t, newQueue(t, rdb, "")) })
}

func TestC01_StreamVanishes(t *testing.T) {
	t.Parallel()
	alone(t, func(t *testing.T, q *queue) {
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(time.Second)))
		q.enqueue(once.Job(nil))
		rs.wait(t, 1)
		q.idle()
		must(t, q.rdb.FlushAll(t.Context()).Err())
		wiped := time.Now()
		for i := range 5 {
			q.add("jobs", "kind", "once", "outbox_id", strconv.Itoa(i))
		}
		ran := func(id string) func() bool { return func() bool { return rs.of(id) > 0 } }
		for i := range 5 {
			within(t, time.Until(wiped.Add(patience)), "it runs", ran(strconv.Itoa(i)))
		}
		later := once.Job(nil)
		q.enqueue(later.In(time.Second)) // promote is alive,
		eventually(t, "the delayed one runs", ran(later.ID))
		orphan := once.Job(nil)
		q.orphan("gone", time.Hour, 1, orphan) // the sweep is,
		eventually(t, "the orphan runs", ran(orphan.ID))
		ticks := len(rs.ticks()) // and the scheduler
		eventually(t, "ticks come", func() bool { return len(rs.ticks()) > ticks+1 })
		for _, job := range rs.all() {
			if rs.of(job.ID) != 1 {
				t.Errorf("job %s ran %d times", job.ID, rs.of(job.ID))
			}
		}
		eventually(t, "nothing pending", func() bool { return q.stats().Running == 0 })
	})
}

// What runs while its entry vanishes goes on, and is not started twice: neither where the
// group is made again from the beginning, nor where Redis has forgotten the delivery.
func TestWhatRunsGoesOnWhereTheGroupIsMadeAgain(t *testing.T) {
	t.Parallel()
	alone(t, func(t *testing.T, q *queue) {
		g := newGate()
		q.start(jobs.Config{}, handle(once, g.handle))
		q.enqueue(many(2)...)
		g.wait(t, 2)
		must(t, q.rdb.XGroupDestroy(t.Context(), q.key("jobs"), "workers").Err())
		eventually(t, "the two are delivered again", func() bool {
			groups := q.rdb.XInfoGroups(t.Context(), q.key("jobs")).Val()
			return len(groups) == 1 && groups[0].Pending == 2
		})
		g.end <- nil
		g.end <- errors.New("503")
		q.idle()
		if len(g.all()) != 2 || q.stats() != (jobs.Stats{Dead: 1}) {
			t.Errorf("%d runs, left %+v", len(g.all()), q.stats())
		}
	})
}

// calls are how often the server was asked for what names say.
func (q *queue) calls(names ...string) int {
	q.t.Helper()
	n := 0
	for line := range strings.Lines(q.rdb.Info(q.t.Context(), "commandstats").Val()) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		for _, want := range names {
			if name == want || strings.HasPrefix(name, want+"|") {
				count, _, _ := strings.Cut(rest, ",")
				calls, err := strconv.Atoi(count)
				must(q.t, err)
				n += calls
			}
		}
	}
	return n
}

func TestC05_ReadsThatFailAtOnceDoNotSpin(t *testing.T) {
	t.Parallel()
	q, _ := apart(t)
	var rs runs
	var log journal
	q.start(jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
	q.enqueue(once.Job(nil))
	rs.wait(t, 1)
	q.idle()
	_, err := q.rdb.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), "jobs")
		return tx.Set(t.Context(), "jobs", "x", 0).Err()
	})
	must(t, err)
	must(t, q.rdb.ConfigResetStat(t.Context()).Err())
	time.Sleep(5 * time.Second)
	if n := q.calls("xreadgroup", "xgroup"); n > 30 || n == 0 {
		t.Errorf("%d reads in 5 s", n)
	}
	if n := len(log.lines(t, "")); n > 15 {
		t.Errorf("%d lines of log in 5 s", n)
	}
	must(t, q.rdb.Del(t.Context(), "jobs").Err())
	j := once.Job(nil)
	q.enqueue(j)
	eventually(t, "it runs", func() bool { return rs.of(j.ID) == 1 })
}

// warm opens all the connections that a client may have, so that later ones are for want
// of those.
func warm(t testing.TB, rdb *redis.Client) {
	var all sync.WaitGroup
	for range rdb.Options().PoolSize {
		all.Go(func() { rdb.BLPop(t.Context(), time.Second, "nothing") })
		all.Go(func() {
			p := rdb.Pipeline()
			p.BLPop(t.Context(), time.Second, "nothing")
			_, _ = p.Exec(t.Context()) // nothing comes
		})
	}
	all.Wait()
}

func TestC07_AnIdleReadIsNoError(t *testing.T) {
	t.Parallel()
	q, server := apart(t)
	var rs runs
	var log journal
	warm(t, q.rdb)
	for range 2 {
		q.start(jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
	}
	admin := server.Client(t)
	q.enqueue(many(20)...)
	rs.wait(t, 20)
	before := made(t, admin)
	for i := range 3 {
		time.Sleep(1300 * time.Millisecond) // more than two blocked reads
		q.enqueue(once.Job(nil))
		rs.wait(t, 21+i)
	}
	if n := made(t, admin) - before; n > 2 {
		t.Errorf("%d new connections", n)
	}
	for _, line := range log.lines(t, "") {
		if line["level"] != "DEBUG" {
			t.Errorf("said %v", line)
		}
	}
}

func TestC11_ServerNotReadyAtStart(t *testing.T) {
	t.Parallel()
	q, server := apart(t)
	must(t, server.Stop())
	var rs runs
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
	never := q.employ(jobs.NewClient(q.rdb, jobs.Options{}), jobs.Config{})
	time.Sleep(2 * time.Second)
	began := time.Now()
	if err := never.stop(); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("a start that is cancelled returns %v after %s", err, time.Since(began))
	}
	must(t, server.Start())
	up := time.Now()
	q.enqueue(once.Job(nil))
	rs.wait(t, 1)
	if took := time.Since(up); took > 20*time.Second {
		t.Errorf("it ran %s after the server was up", took)
	}
}

// isDone is true of the command that settles what ended well.
func isDone(cmd []string) bool {
	return strings.EqualFold(cmd[0], "eval") && strings.Contains(cmd[1], "running -> gone")
}

func TestB06_TheAcknowledgementFailedNotTheJob(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]servers.Action{
		"before it is sent": servers.CutBefore, "before the reply": servers.SwallowReply,
		"refused": servers.ReplyError("LOADING Redis is loading the dataset in memory"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
				var rs runs
				var failed atomic.Int32
				proxy.Hook(func(cmd []string) servers.Action {
					if isDone(cmd) && failed.Add(1) <= 2 {
						return action
					}
					return servers.Pass
				})
				q.start(jobs.Config{Lease: 3 * time.Second}, handle(once, record[jobs.Fields](&rs)))
				q.enqueue(once.Job(nil))
				rs.wait(t, 1)
				eventually(t, "it is acknowledged", func() bool { return q.stats() == (jobs.Stats{}) })
				eventually(t, "it is repeated", func() bool { return failed.Load() >= 3 })
				q.enqueue(once.Job(nil))
				rs.wait(t, 2)
				q.idle()
				if st := q.stats(); len(rs.all()) != 2 || st != (jobs.Stats{}) {
					t.Errorf("%d runs, left %+v", len(rs.all()), st)
				}
			})
		})
	}
}

// Burying what nobody runs is one step: however often it is cut, each is dead once.
func TestP04_BuryingIsCut(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]servers.Action{"before it is sent": servers.CutBefore, "before the reply": servers.SwallowReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
				var rs runs
				var cuts atomic.Int32
				proxy.Hook(func(cmd []string) servers.Action {
					if strings.EqualFold(cmd[0], "eval") && strings.Contains(cmd[1], "running -> dead") && cuts.Add(1) <= 2 {
						return action
					}
					return servers.Pass
				})
				poison, healthy := many(2), once.Job(nil)
				q.orphan("gone", time.Hour, 3, poison...)
				q.orphan("gone", time.Hour, 1, healthy)
				q.start(jobs.Config{Lease: 300 * time.Millisecond}, handle(once, record[jobs.Fields](&rs)))
				rs.wait(t, 1)
				q.idle()
				dead := map[string]int{}
				for _, letter := range q.dead() {
					dead[letter.ID]++
				}
				if len(rs.all()) != 1 || rs.of(healthy.ID) != 1 || len(dead) != 2 || dead[poison[0].ID] != 1 || dead[poison[1].ID] != 1 {
					t.Errorf("%d runs, dead %v", len(rs.all()), dead)
				}
				if cuts.Load() < 2 {
					t.Errorf("it was cut %d times", cuts.Load())
				}
			})
		})
	}
}

// flushing empties the script cache ten times a second, until it is told to end.
func (q *queue) flushing() (end func()) {
	ctx, stop := context.WithCancel(q.t.Context())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for ctx.Err() == nil {
			if err := q.rdb.ScriptFlush(q.t.Context()).Err(); err != nil {
				q.t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	return func() {
		stop()
		flusher.Wait()
	}
}

// Nobody notices that the script cache is gone.
func TestI01_ScriptsAreGone(t *testing.T) {
	t.Parallel()
	q, _ := apart(t)
	var rs runs
	var log journal
	flaky := jobs.NewKind[jobs.Fields]("flaky", jobs.Policy{Retries: 1, Backoff: soon})
	fails := jobs.NewKind[jobs.Fields]("fails", jobs.Policy{})
	failing := func(ctx context.Context, _ jobs.Fields) error {
		if job := rs.add(ctx); job.Kind == "fails" || job.Attempts == 0 {
			return errors.New("503")
		}
		return nil
	}
	q.start(jobs.Config{Logger: log.logger(t), Lease: 500 * time.Millisecond}, handle(once, record[jobs.Fields](&rs)),
		handle(flaky, failing), handle(fails, failing), on("beat", jobs.Every(time.Second)))
	end := q.flushing()
	const n = 20
	replayed := 0
	for range n {
		q.enqueue(once.Job(nil), once.Job(nil).In(300*time.Millisecond), flaky.Job(nil), fails.Job(nil))
		time.Sleep(100 * time.Millisecond)
		some, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{Kind: "fails"}, jobs.ReplayOptions{})
		must(t, err)
		replayed += some
	}
	q.orphan("gone", time.Hour, 1, once.Job(nil))
	eventually(t, "all have run", func() bool { st := q.stats(); return st.Delayed+st.Ready+st.Running == 0 })
	end()
	kinds := map[string]int{}
	for _, job := range rs.all() {
		if job.Tick.IsZero() {
			kinds[job.Kind]++
		}
	}
	same(t, map[string]int{"once": 2*n + 1, "flaky": 2 * n, "fails": n + replayed}, kinds)
	if q.stats().Dead != n || len(rs.ticks()) < 2 {
		t.Errorf("left %+v, ticks %v", q.stats(), rs.ticks())
	}
	if text := log.String(); strings.Contains(text, "NOSCRIPT") || strings.Contains(text, "trouble") {
		t.Error("it was noticed")
	}
}

// A worker in a bubble lives through an outage without a goroutine more.
func TestAnOutageLeavesNoGoroutines(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		w := q.hire(jobs.Config{}, sleeper(&rs))
		time.Sleep(time.Minute)
		before := goroutines(t)
		w.cut()
		time.Sleep(5 * time.Minute)
		if n := goroutines(t); n > before+5 {
			t.Errorf("%d goroutines after five minutes without Redis, %d before", n, before)
		}
		w.mend()
		back := time.Now()
		q.enqueue(sleep(time.Second))
		for len(rs.all()) == 0 && time.Since(back) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(back); took > 5*time.Second {
			t.Errorf("the first job ran %s after Redis was back", took)
		}
		time.Sleep(time.Minute)
		if n := goroutines(t); n > before+5 {
			t.Errorf("%d goroutines afterwards, %d before", n, before)
		}
	})
}

// A network that swallows everything does not hold up the end of Run for ever.
func TestRunEndsInABlackHole(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ReadTimeout: time.Second, DialTimeout: time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	w := newQueue(t, rdb, "").employ(jobs.NewClient(rdb, jobs.Options{}), jobs.Config{})
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	if err := w.stop(); err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("Run returns %v after %s", err, time.Since(began))
	}
}
