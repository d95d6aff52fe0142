package outbox_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/outbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
	}
	os.Exit(servers.Main(m))
}

// act is the kind of most jobs here.
var act = jobs.NewKind[jobs.Fields]("act", jobs.Policy{})

// fixture is a database with an outbox, and a queue.
type fixture struct {
	*testing.T
	url    string
	pool   *pgxpool.Pool
	rdb    *redis.Client
	prefix string
	client *jobs.Client
	box    outbox.Outbox
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, servers.NewPostgres(t), servers.SharedRedis(t).Addr(), servers.Prefix(t))
}

func newFixtureOn(t *testing.T, url, redisAddr, prefix string) *fixture {
	t.Helper()
	f := &fixture{T: t, url: url, prefix: prefix, pool: newPool(t, url)}
	f.rdb = redis.NewClient(&redis.Options{Addr: redisAddr})
	t.Cleanup(func() { _ = f.rdb.Close() })
	f.client = jobs.NewClient(f.rdb, jobs.Options{Prefix: prefix})
	must(t, f.box.Migrate(t.Context(), f.pool))
	return f
}

func newPool(t *testing.T, url string, set ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	must(t, err)
	config.MaxConns = 16
	for _, s := range set {
		s(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// many are n jobs.
func many(n int) []jobs.Job {
	all := make([]jobs.Job, n)
	for i := range all {
		all[i] = act.Job(nil)
	}
	return all
}

func ids(js []jobs.Job) []string {
	all := make([]string, len(js))
	for i, j := range js {
		all[i] = j.ID
	}
	return all
}

// commit enqueues jobs in a transaction of their own.
func (f *fixture) commit(js ...jobs.Job) []jobs.Job {
	f.Helper()
	must(f, pgx.BeginFunc(f.Context(), f.pool, func(tx pgx.Tx) error { return f.box.Enqueue(f.Context(), tx, js...) }))
	return js
}

// begin begins a transaction, rolled back at the end of the test unless it has ended.
func (f *fixture) begin() pgx.Tx {
	f.Helper()
	tx, err := f.pool.Begin(f.Context())
	must(f, err)
	f.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // committed, as a rule
	return tx
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	_, err := f.pool.Exec(f.Context(), sql, args...)
	must(f, err)
}

// one is the single value that a query returns.
func one[T any](f *fixture, sql string, args ...any) T {
	f.Helper()
	var v T
	must(f, f.pool.QueryRow(f.Context(), sql, args...).Scan(&v))
	return v
}

func (f *fixture) lag() outbox.Lag {
	f.Helper()
	lag, err := f.box.Lag(f.Context(), f.pool)
	must(f, err)
	return lag
}

// relay runs a relay until the test ends or the returned function is called, which waits for it.
func (f *fixture) relay(cfg outbox.RelayConfig) (stop func()) {
	f.Helper()
	return f.run(outbox.NewRelay(f.pool, f.client, f.quiet(cfg)))
}

func (f *fixture) quiet(cfg outbox.RelayConfig) outbox.RelayConfig {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(f.Output(), nil))
	}
	return cfg
}

func (f *fixture) run(r *outbox.Relay) (stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Errorf("Run: %v", err)
		}
	})
	f.Cleanup(stop)
	return stop
}

// entries are what is in the stream.
func (f *fixture) entries() []redis.XMessage {
	f.Helper()
	all, err := f.rdb.XRange(context.Background(), f.prefix+"jobs", "-", "+").Result()
	must(f, err)
	return all
}

// published are the outbox_ids of what is in the stream.
func (f *fixture) published() []string {
	f.Helper()
	var all []string
	for _, e := range f.entries() {
		id, _ := e.Values["outbox_id"].(string)
		all = append(all, id)
	}
	return all
}

// await waits until n entries are in the stream, and no row waits.
func (f *fixture) await(n int) []string {
	f.Helper()
	f.eventually("the rows are carried", func() bool {
		return int(f.rdb.XLen(f.Context(), f.prefix+"jobs").Val()) >= n && f.lag().Rows == 0
	})
	return f.published()
}

func (f *fixture) eventually(what string, holds func() bool) {
	f.Helper()
	f.within(time.Minute, what, holds)
}

func (f *fixture) within(limit time.Duration, what string, holds func() bool) {
	f.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.MultiWriter(j, t.Output()), nil))
}

var discard = slog.New(slog.DiscardHandler)
