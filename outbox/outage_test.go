package outbox_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/outbox"
)

// ours is a fixture whose servers are its own, each behind a proxy.
type ours struct {
	*fixture
	postgres *servers.Postgres
	redis    *servers.Redis
	database *servers.Proxy
	queue    *servers.Proxy
}

func newOurs(t *testing.T) *ours {
	t.Helper()
	_ = servers.NewPostgres(t) // which skips the test where there is none
	pg, err := servers.StartPostgres()
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	o := &ours{postgres: pg, redis: servers.NewRedis(t, servers.RedisOptions{Args: []string{"--appendonly", "yes"}})}
	o.database, o.queue = servers.NewProxy(t, pg.Addr()), servers.NewProxy(t, o.redis.Addr())
	url := strings.Replace(pg.URL("postgres"), pg.Addr(), o.database.Addr(), 1)
	o.fixture = newFixtureOn(t, url, o.queue.Addr(), "")
	t.Cleanup(o.pool.Close)
	return o
}

// direct is the same without the proxies, to look at what a relay behind them does.
func (o *ours) direct() *fixture {
	o.Helper()
	return newFixtureOn(o.T, o.postgres.URL("postgres"), o.redis.Addr(), "")
}

// Within five seconds of its servers' return a relay goes on by itself, and has said little.
func TestOutages(t *testing.T) {
	t.Parallel()
	o := newOurs(t)
	f := o.direct()
	var log journal
	o.relay(outbox.RelayConfig{Logger: log.logger(t)})
	f.commit(act.Job(nil))
	f.await(1)
	const away = 1500 * time.Millisecond // so long that it is not merely overlooked
	for name, c := range map[string]struct{ down, up func() error }{
		"PostgreSQL restarts": {o.postgres.Stop, o.postgres.Start},
		"PostgreSQL crashes":  {o.postgres.Kill, o.postgres.Start},
		"Redis restarts":      {o.redis.Stop, o.redis.Start},
		"Redis is suspended":  {o.redis.Pause, o.redis.Resume},
		"PostgreSQL is cut off": {
			func() error { o.database.Refuse(true); o.database.Cut(); return nil },
			func() error { o.database.Refuse(false); return nil },
		},
		"the way to PostgreSQL stands still": {
			func() error { o.database.Stall(true); return nil },
			func() error { o.database.Stall(false); return nil },
		},
		"Redis is read-only": {
			func() error { return f.rdb.ReplicaOf(t.Context(), "127.0.0.1", "1").Err() },
			func() error { return f.rdb.ReplicaOf(t.Context(), "NO", "ONE").Err() },
		},
		"Redis is full": {
			func() error { return f.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err() },
			func() error { return f.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err() },
		},
	} {
		job := act.Job(nil)
		queue := strings.HasPrefix(name, "Redis")
		if !queue {
			f.commit(job)
		}
		must(t, c.down())
		if queue {
			f.commit(job)
		}
		time.Sleep(away)
		if queue {
			if n := one[int](f, `SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'
				AND now() - xact_start > interval '1 second'`); n > 0 && name != "Redis is suspended" {
				t.Errorf("%s: %d transactions are open", name, n)
			}
		}
		must(t, c.up())
		back := time.Now()
		f.within(5*time.Second, name+": the row is carried", func() bool {
			ids, err := published(f)
			return err == nil && slices.Contains(ids, job.ID)
		})
		t.Logf("%s: carried %s after its return", name, time.Since(back).Round(time.Millisecond))
	}
	f.eventually("nothing waits", func() bool { return f.lag().Rows == 0 })
	f.eventually("it listens again", func() bool {
		return one[int](f, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`) == 1
	})
	if n := strings.Count(log.String(), "\n"); n > 40 {
		t.Errorf("%d lines in the log", n)
	}
}

// published is what the fixture's is, while Redis may be loading.
func published(f *fixture) (all []string, err error) {
	entries, err := f.rdb.XRange(f.Context(), f.prefix+"jobs", "-", "+").Result()
	for _, e := range entries {
		id, _ := e.Values["outbox_id"].(string)
		all = append(all, id)
	}
	return all, err
}

// A relay that is paused in its transaction has the right to publish, and its rows, until PostgreSQL takes both away.
func TestAPausedRelayIsNotInTheWayForLong(t *testing.T) {
	t.Parallel()
	o := newOurs(t)
	f := o.direct()
	held := make(chan struct{})
	o.queue.Hook(func(cmd []string) servers.Action {
		if strings.EqualFold(cmd[0], "xadd") && !slices.Contains(cmd, "NOMKSTREAM") && !slices.Contains(cmd, "nomkstream") {
			close(held)
			o.queue.Hook(nil)
			o.queue.Stall(true)
		}
		return servers.Pass
	})
	paused := f.spawn(o.queue.Addr())
	job := f.commit(act.Job(nil))[0]
	<-held
	must(t, paused.Process.Signal(syscall.SIGSTOP))
	start := time.Now()
	f.relay(outbox.RelayConfig{})
	f.within(10*time.Second, "another carries the row", func() bool { return slices.Contains(f.published(), job.ID) })
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
	must(t, paused.Process.Signal(syscall.SIGCONT))
	o.queue.Stall(false)
	later := f.commit(many(10)...)
	f.eventually("both go on", func() bool { return f.lag().Rows == 0 })
	for _, j := range later {
		if n := count(f.published(), j.ID); n != 1 {
			t.Errorf("a later row was carried %d times", n)
		}
	}
}

func count(all []string, id string) (n int) {
	for _, got := range all {
		if got == id {
			n++
		}
	}
	return n
}

// A standby takes over from a relay that was killed, again and again; what was carried twice is explained by a kill.
func TestKilledRelays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const kills = 8
	made := make(chan []string)
	go func() {
		var all []string
		for range 100 * kills {
			batch := many(5)
			err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error { return f.box.Enqueue(t.Context(), tx, batch...) })
			if err != nil {
				t.Error(err)
			}
			all = append(all, ids(batch)...)
		}
		made <- all
	}()
	first, second := f.spawn(f.rdb.Options().Addr), f.spawn(f.rdb.Options().Addr)
	for range kills {
		n := f.rdb.XLen(t.Context(), f.prefix+"jobs").Val()
		f.eventually("it goes on", func() bool {
			return f.rdb.XLen(t.Context(), f.prefix+"jobs").Val() > n || f.lag().Rows == 0
		})
		kill(t, first)
		first, second = second, f.spawn(f.rdb.Options().Addr)
	}
	all := <-made
	got := f.await(len(all))
	twice := 0
	for id, n := range counts(got) {
		twice += n - 1
		if !slices.Contains(all, id) {
			t.Errorf("%s was never committed", id)
		}
	}
	if lost := len(all) + twice - len(got); lost != 0 || twice > kills*1000 {
		t.Errorf("%d of %d rows lost, %d carried twice after %d kills", lost, len(all), twice, kills)
	}
	t.Logf("%d rows, %d kills, lost 0, carried twice %d", len(all), kills, twice)
	kill(t, second)
}

func counts(all []string) map[string]int {
	m := map[string]int{}
	for _, id := range all {
		m[id]++
	}
	return m
}

// go-redis sends a command again whose reply was lost, unless it is told not to: the relay's are not, and a row that may
// be in is carried once more, no more.
func TestLostRepliesOfRedis(t *testing.T) {
	t.Parallel()
	o := newOurs(t)
	for _, n := range []int{1, 3} {
		for _, command := range []string{"xadd", "exec", "zadd"} {
			if (n == 1) == (command == "exec") {
				continue
			}
			batch := many(n)
			if command == "zadd" {
				for i := range batch {
					batch[i] = batch[i].In(time.Hour)
				}
			}
			f := newFixtureOn(t, o.postgres.URL("postgres"), o.redis.Addr(), servers.Prefix(t))
			f.commit(batch...)
			g := *f
			g.rdb = redis.NewClient(&redis.Options{Addr: o.queue.Addr()}) // with its default retries
			g.client = jobs.NewClient(g.rdb, jobs.Options{Prefix: f.prefix})
			sent := false
			swallowed := o.queue.Swallow(func(cmd []string) bool {
				sent = sent || slices.ContainsFunc(cmd, func(w string) bool { return strings.Contains(w, batch[0].ID) })
				return sent && strings.EqualFold(cmd[0], command)
			})
			stop := g.relay(outbox.RelayConfig{})
			<-swallowed
			f.eventually("the rows are carried", func() bool { return f.lag().Rows == 0 })
			stop()
			_ = g.rdb.Close()
			want := 2 * n
			if command == "zadd" { // the same member
				want = n
			}
			in := f.rdb.XLen(t.Context(), f.prefix+"jobs").Val() + f.rdb.ZCard(t.Context(), f.prefix+"delayed").Val()
			if int(in) != want {
				t.Errorf("%s of %d: %d entries, want %d", command, n, in, want)
			}
		}
	}
}

// A batch of which a part is refused, since one key has the wrong type, does not put the rest into the queue again and
// again.
func TestARefusalInPartIsNotRepeated(t *testing.T) {
	t.Parallel()
	for key, refused := range map[string]string{
		"delayed":   `INSERT INTO jobs.outbox (kind, due) VALUES ('act', now() + interval '1 hour')`,
		"jobs:dead": `INSERT INTO jobs.outbox (kind) VALUES ('no job')`,
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			g := *f
			var sent sendCounter
			g.rdb = redis.NewClient(f.rdb.Options())
			defer g.rdb.Close()
			g.rdb.AddHook(&sent)
			g.client = jobs.NewClient(g.rdb, jobs.Options{Prefix: f.prefix})
			stop := g.relay(outbox.RelayConfig{Logger: discard})
			defer stop()
			f.commit(act.Job(nil))
			f.await(1)
			must(t, f.rdb.Set(t.Context(), f.prefix+key, "x", 0).Err())
			tx := f.begin()
			_, err := tx.Exec(t.Context(), refused) // in front, since a batch that has failed is halved
			must(t, err)
			job := act.Job(nil)
			must(t, f.box.Enqueue(t.Context(), tx, job))
			must(t, tx.Commit(t.Context()))
			f.eventually("it is tried", func() bool { return count(f.published(), job.ID) > 0 })
			before := sent.n.Load()
			f.eventually("it is tried again and again", func() bool { return sent.n.Load() > before+12 })
			must(t, f.rdb.Del(t.Context(), f.prefix+key).Err())
			if n := count(f.await(2), job.ID); n > 2 {
				t.Errorf("the job that was not refused is in the queue %d times", n)
			}
		})
	}
}

// What PostgreSQL will not mark is not published: it would be in the queue once more with each try.
func TestWhatCannotBeMarkedIsNotPublished(t *testing.T) {
	t.Parallel()
	f := newFixtureOn(t, servers.NewPostgres(t), servers.NewRedis(t).Addr(), "") // the trigger is in no other's way
	var log journal
	f.relay(outbox.RelayConfig{Logger: log.logger(t)})
	f.commit(act.Job(nil))
	f.await(1)
	sql := func(text string) {
		_, err := f.pool.Exec(t.Context(), text)
		must(t, err)
	}
	sql(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$`)
	sql(`CREATE TRIGGER full_disk BEFORE UPDATE ON jobs.outbox FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	f.commit(many(8)...)
	f.eventually("it is refused", func() bool { return strings.Contains(log.String(), "53100") })
	if n := len(f.entries()); n != 1 {
		t.Errorf("%d entries of one row that could be marked", n)
	}
	sql(`DROP TRIGGER full_disk ON jobs.outbox`)
	f.await(9)
	f.eventually("all is marked", func() bool { return f.lag().Rows == 0 })
	if n := len(f.entries()); n != 9 {
		t.Errorf("%d entries of 9 rows", n)
	}
}

// sendCounter counts what is sent to Redis, a pipeline as one.
type sendCounter struct{ n atomic.Int64 }

func (*sendCounter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *sendCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}
func (c *sendCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// A relay that is stopped while Redis has its batch waits for the answer, and marks what is carried.
func TestARelayThatIsStoppedEndsItsBatch(t *testing.T) {
	t.Parallel()
	o := newOurs(t)
	f := o.direct()
	held := make(chan struct{})
	o.queue.Hook(func(cmd []string) servers.Action {
		if strings.EqualFold(cmd[0], "xadd") && !slices.Contains(cmd, "nomkstream") {
			o.queue.Hook(nil)
			o.queue.Stall(true)
			close(held)
		}
		return servers.Pass
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	r := outbox.NewRelay(o.pool, o.client, f.quiet(outbox.RelayConfig{}))
	go func() { ended <- r.Run(ctx) }()
	f.commit(many(3)...)
	<-held
	cancel()
	time.AfterFunc(100*time.Millisecond, func() { o.queue.Stall(false) }) // when the end has been heard of
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if n, lag := len(f.published()), f.lag(); n != 3 || lag.Rows != 0 {
		t.Errorf("%d entries, %+v, want 3 and none that waits", n, lag)
	}
}

// A server that takes a connection and never answers it is left for another connection, as one that is away is.
func TestARelayBeginsThoughTheFirstConnectionIsSilent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	var dialled atomic.Int64
	g := *f
	g.pool = newPool(t, f.url, func(c *pgxpool.Config) {
		c.ConnConfig.ConnectTimeout = 30 * time.Second // so that the test ends; there is none as a rule
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dialled.Add(1) == 1 {
				network, addr = "tcp", l.Addr().String()
			}
			return dial(ctx, network, addr)
		}
	})
	f.commit(act.Job(nil))
	start := time.Now()
	g.relay(outbox.RelayConfig{})
	f.await(1)
	if took := time.Since(start); took >= 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// What a batch had read is read again when it failed, by whatever way the relay reads.
func TestABatchThatFailedIsReadAgain(t *testing.T) {
	t.Parallel()
	o := newOurs(t)
	f := o.direct()
	batch := f.commit(many(1500)...) // more than a batch
	o.queue.Hook(func(cmd []string) servers.Action {
		if strings.EqualFold(cmd[0], "xadd") && slices.Contains(cmd, batch[0].ID) {
			o.queue.Hook(nil)
			return servers.CutBefore
		}
		return servers.Pass
	})
	o.relay(outbox.RelayConfig{Poll: time.Hour})
	if diff := cmp.Diff(ids(batch), f.await(1500)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A relay that has nothing to do, or stands by, gives its connection back as it was.
func TestRelaysAtRestKeepTheirConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 2 { // one may publish, the other stands by
		g := *f
		g.pool = newPool(t, f.url)
		g.relay(outbox.RelayConfig{Poll: 5 * time.Millisecond})
		f.eventually("it has looked again and again", func() bool { return g.pool.Stat().AcquireCount() > 50 })
		if n := g.pool.Stat().NewConnsCount(); n > 5 {
			t.Errorf("%d connections were made", n)
		}
	}
}
