package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// The tests wait more than they work: more of them at once than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("8")
	}
	os.Exit(servers.Main(m))
}

// queue is a queue of one test's own.
type queue struct {
	*jobs.Client
	t      testing.TB
	rdb    *redis.Client
	worker redis.UniversalClient // what the Client goes by: rdb, or a cluster's
	prefix string
	mini   *miniredis.Miniredis // nil on a real Redis
}

// each runs f as two parallel subtests, on a miniredis and on the real Redis that the tests
// share, where each has a prefix of its own; with JOBS_TEST_SERVER=cluster in the
// environment as one, on the cluster that they share, where the prefix is a hash tag.
func each(t *testing.T, f func(t *testing.T, q *queue)) {
	t.Helper()
	if clustered() {
		t.Run("cluster", func(t *testing.T) {
			t.Parallel()
			f(t, onCluster(t, servers.SharedCluster(t), strings.TrimSuffix(servers.Prefix(t), ":")))
		})
		return
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		m := servers.NewMiniredis(t)
		rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), ReadTimeout: patience})
		t.Cleanup(func() { _ = rdb.Close() })
		q := newQueue(t, rdb, "")
		q.mini = m
		f(t, q)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, newQueue(t, servers.SharedRedis(t).Client(t), servers.Prefix(t)))
	})
}

func clustered() bool { return os.Getenv("JOBS_TEST_SERVER") == "cluster" }

// aside leaves out a test that has a server of its own, where JOBS_TEST_SERVER asks for a cluster.
func aside(t *testing.T) {
	t.Helper()
	if clustered() {
		t.Skip("this test is the same on every server")
	}
}

func newQueue(t testing.TB, rdb *redis.Client, prefix string) *queue {
	return &queue{Client: jobs.NewClient(rdb, jobs.Options{Prefix: prefix}), t: t, rdb: rdb, worker: rdb, prefix: prefix}
}

// key is a key of the queue: jobs, delayed, jobs:dead, …
func (q *queue) key(name string) string { return q.prefix + name }

func (q *queue) enqueue(js ...jobs.Job) {
	q.t.Helper()
	must(q.t, q.Enqueue(q.t.Context(), js...))
}

// add is what another program does: names and values, as they are, into a stream.
func (q *queue) add(stream string, pairs ...string) string {
	q.t.Helper()
	id, err := q.rdb.XAdd(q.t.Context(), &redis.XAddArgs{Stream: q.key(stream), Values: pairs}).Result()
	must(q.t, err)
	return id
}

// entries are the fields of what lies in a stream, oldest first.
func (q *queue) entries(stream string) []jobs.Fields {
	q.t.Helper()
	messages, err := q.rdb.XRange(q.t.Context(), q.key(stream), "-", "+").Result()
	must(q.t, err)
	all := make([]jobs.Fields, len(messages))
	for i, m := range messages {
		all[i] = jobs.Fields{}
		for name, value := range m.Values {
			all[i][name] = value.(string)
		}
	}
	return all
}

func (q *queue) stats() jobs.Stats {
	q.t.Helper()
	st, err := q.Stats(q.t.Context())
	must(q.t, err)
	return st
}

// idle waits until nothing is ready nor running.
func (q *queue) idle() {
	q.t.Helper()
	eventually(q.t, "nothing is ready nor running", func() bool {
		st := q.stats()
		return st.Ready+st.Running == 0
	})
}

func (q *queue) delayed() []jobs.DelayedJob {
	q.t.Helper()
	return collect(q.t, q.Delayed().List(q.t.Context()))
}

func (q *queue) dead() []jobs.DeadLetter {
	q.t.Helper()
	return collect(q.t, q.DeadLetters().List(q.t.Context(), jobs.Filter{}))
}

// awaitDead waits for n dead letters.
func (q *queue) awaitDead(n int) []jobs.DeadLetter {
	q.t.Helper()
	eventually(q.t, fmt.Sprintf("%d dead letters", n), func() bool { return q.stats().Dead >= int64(n) })
	return q.dead()
}

func collect[T any](t testing.TB, list func(yield func(T, error) bool)) (all []T) {
	t.Helper()
	for item, err := range list {
		must(t, err)
		all = append(all, item)
	}
	return all
}

// worker is a Runner that runs until stop is called or the test ends.
type worker struct {
	*jobs.Runner
	stop func() error // what Run returns, the second time too
}

// start runs a worker with what register gives it. Its log is the test's, and its lease a
// second, unless cfg says otherwise.
func (q *queue) start(cfg jobs.Config, register ...func(*jobs.Runner)) *worker {
	q.t.Helper()
	if cfg.Lease == 0 {
		cfg.Lease = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(q.t.Output(), nil))
	}
	r := jobs.NewRunner(q.Client, cfg)
	for _, f := range register {
		f(r)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(q.t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	w := &worker{r, sync.OnceValue(func() error {
		cancel()
		return <-ran
	})}
	q.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			q.t.Errorf("Run: %v", err)
		}
	})
	return w
}

// handle is jobs.Handle as start takes it.
func handle[A any](k jobs.Kind[A], h func(context.Context, A) error, mw ...jobs.Middleware) func(*jobs.Runner) {
	return func(r *jobs.Runner) { jobs.Handle(r, k, h, mw...) }
}

// runs are the jobs whose handlers were entered, in that order, as the handlers saw them.
type runs struct {
	mu   sync.Mutex
	jobs []jobs.Job
	at   []time.Time
}

func (rs *runs) add(ctx context.Context) jobs.Job {
	job, _ := jobs.FromContext(ctx)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.jobs, rs.at = append(rs.jobs, job), append(rs.at, time.Now())
	return job
}

func (rs *runs) all() []jobs.Job {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Clone(rs.jobs)
}

func (rs *runs) times() []time.Time {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Clone(rs.at)
}

// of counts the runs of one job.
func (rs *runs) of(id string) int {
	n := 0
	for _, j := range rs.all() {
		if j.ID == id {
			n++
		}
	}
	return n
}

// wait waits until there were n runs.
func (rs *runs) wait(t testing.TB, n int) []jobs.Job {
	t.Helper()
	eventually(t, fmt.Sprintf("%d runs", n), func() bool { return len(rs.all()) >= n })
	return rs.all()
}

// record is a handler that notes its run and ends well, for any kind.
func record[A any](rs *runs) func(context.Context, A) error {
	return func(ctx context.Context, _ A) error {
		rs.add(ctx)
		return nil
	}
}

// journal is a log that can be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// logger writes to the journal as JSON, and to the test's output.
func (j *journal) logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewJSONHandler(io.MultiWriter(j, t.Output()), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines are the log lines whose message holds text.
func (j *journal) lines(t testing.TB, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(j.String()) {
		m := map[string]any{}
		must(t, json.Unmarshal([]byte(line), &m))
		if strings.Contains(m["msg"].(string), text) {
			all = append(all, m)
		}
	}
	return all
}

// prompt is for what happens at once: on an idle machine in a second, with slack for a busy
// one. What is broken comes later by far, or never.
const prompt = 20 * time.Second

// eventually is within, for what has no budget.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, patience, what, ok)
}

// patience is for what is only a matter of time, however busy the machine.
const patience = time.Minute

// within waits until ok says so, and ends the test where it does not in time.
func within(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// receive returns what comes next, and ends the test where nothing does.
func receive[T any](t testing.TB, from <-chan T) (next T) {
	t.Helper()
	select {
	case next = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return next
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// panics returns what f panics with.
func panics(t testing.TB, f func()) (text string) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	t.Error("no panic")
	return ""
}

// ticket is what most tests render.
type ticket struct {
	OrderID int64  `job:"order_id"`
	Seat    string `job:"seat,required"`
}

var (
	errSeat = errors.New("'14-C' is not a row letter and a seat number")
	soon    = jobs.FullJitter(time.Millisecond, time.Millisecond)

	render = jobs.NewKind[ticket]("render_tickets", jobs.Policy{Retries: 1, Backoff: soon})
	once   = jobs.NewKind[jobs.Fields]("once", jobs.Policy{})
)

func TestWholeLifeOfAJob(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.start(jobs.Config{}, handle(render, func(ctx context.Context, args ticket) error {
			rs.add(ctx)
			if args.Seat == "14-C" {
				return fmt.Errorf("render: %w", errSeat)
			}
			return nil
		}))
		good, bad := render.Job(ticket{4470, "14C"}), render.Job(ticket{4471, "14-C"})
		q.enqueue(good, bad)

		letter := q.awaitDead(1)[0]
		if letter.ID != bad.ID || letter.Attempts != 2 || letter.Error != "render: "+errSeat.Error() {
			t.Fatalf("%+v", letter)
		}
		if want := (jobs.Fields{"order_id": "4471", "seat": "14-C"}); !maps.Equal(letter.Fields, want) {
			t.Errorf("fields %v, want %v", letter.Fields, want)
		}

		must(t, q.DeadLetters().Replay(t.Context(), letter.Entry, jobs.ReplayOptions{Set: jobs.Fields{"seat": "14C"}}))
		last := rs.wait(t, 4)[3]
		if last.ID != bad.ID || last.Attempts != 0 || last.Fields["seat"] != "14C" || last.Fields["order_id"] != "4471" {
			t.Errorf("replayed as %+v", last)
		}
		q.idle()
		if st := q.stats(); st != (jobs.Stats{}) || rs.of(good.ID) != 1 || rs.of(bad.ID) != 3 {
			t.Errorf("left %+v, runs %v", st, rs.all())
		}
	})
}

// nowhere is a client of no server.
func nowhere(t testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// now is Redis's clock.
func (q *queue) now() time.Time {
	q.t.Helper()
	now, err := q.rdb.Time(q.t.Context()).Result()
	must(q.t, err)
	return now
}

// isMini says whether this is the subtest on miniredis.
func isMini(t testing.TB) bool { return strings.HasSuffix(t.Name(), "/miniredis") }
