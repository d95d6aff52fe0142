package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/pipe"
)

// bubble runs f with a queue on a miniredis in a synctest bubble: its clock, the workers'
// and the test's are one, and go on when everybody waits. An hour takes no time.
func bubble(t *testing.T, f func(t *testing.T, q *queue)) {
	t.Helper()
	aside(t)
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // closed clients notice when they next dial
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		t.Cleanup(m.Close)
		rdb := new(wire).client(t, m)
		q := newQueue(t, rdb, "")
		q.mini = m
		f(t, q)
	})
}

// wire is what leads from one worker to Redis.
type wire struct {
	frozen func(p []byte) bool // swallows what is written; nil: nothing

	mu   sync.Mutex
	down bool
	ends []net.Conn
}

func (w *wire) client(t testing.TB, m *miniredis.Miniredis) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", // never dialled: no name is to be resolved
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.down {
				return nil, &net.OpError{Op: "dial", Err: errors.New("cut off")}
			}
			c, err := m.Dial()
			if err != nil {
				return nil, err
			}
			c = pipe.Buffered(c)
			if w.frozen != nil {
				c = ice{c, w.frozen}
			}
			w.ends = append(w.ends, c)
			return c, nil
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// cut leaves the worker alone, until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.ends {
		_ = c.Close() // it may be closed already
	}
	w.ends = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// far has each round trip take longer, by d.
func (h *hand) far(d time.Duration) { h.rdb.AddHook(distance(d)) }

type distance time.Duration

func (distance) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d distance) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

func (d distance) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmds)
	}
}

// hand is a worker with a wire of its own, in a bubble.
type hand struct {
	*worker
	wire
	rdb *redis.Client
}

// hire starts a worker. What its Run returns is for the test to look at. Its lease is the
// default, unless cfg says otherwise.
func (q *queue) hire(cfg jobs.Config, register ...func(*jobs.Runner)) *hand {
	q.t.Helper()
	return q.takeOn(&hand{}, cfg, register...)
}

func (q *queue) takeOn(h *hand, cfg jobs.Config, register ...func(*jobs.Runner)) *hand {
	q.t.Helper()
	h.rdb = h.client(q.t, q.mini)
	h.worker = q.employ(jobs.NewClient(h.rdb, jobs.Options{Prefix: q.prefix}), cfg, register...)
	synctest.Wait()
	return h
}

// employ is start for a worker whose Run may return an error, and whose lease is the
// default unless cfg says otherwise.
func (q *queue) employ(client *jobs.Client, cfg jobs.Config, register ...func(*jobs.Runner)) *worker {
	q.t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(q.t.Output(), nil))
	}
	r := jobs.NewRunner(client, cfg)
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
	q.t.Cleanup(func() { _ = w.stop() })
	return w
}

// die cuts the worker off for good: to everybody else it looks like one that was killed.
// What it runs must have been told to end by the end of the test.
func (h *hand) die() { h.cut() }

// delivery is what the group knows of a running entry.
type delivery struct {
	entry, owner string
	n            int64
	idle         time.Duration
}

// deliveries are the entries that are running, in their order.
func (q *queue) deliveries() []delivery {
	q.t.Helper()
	pending, err := q.rdb.XPendingExt(q.t.Context(), &redis.XPendingExtArgs{
		Stream: q.key("jobs"), Group: "workers", Start: "-", End: "+", Count: 1000,
	}).Result()
	must(q.t, err)
	all := make([]delivery, len(pending))
	for i, p := range pending {
		all[i] = delivery{p.ID, p.Consumer, p.RetryCount, p.Idle}
	}
	return all
}

// orphan adds jobs that a worker fetches in the same moment and then falls silent: it has
// been silent for idle, and had each of them n times. It returns their entries.
func (q *queue) orphan(name string, idle time.Duration, n int, js ...jobs.Job) []string {
	q.t.Helper()
	ctx := q.t.Context()
	err := q.rdb.XGroupCreateMkStream(ctx, q.key("jobs"), "workers", "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		q.t.Fatal(err)
	}
	tx := q.rdb.TxPipeline()
	for _, job := range js {
		pairs := []string{"kind", job.Kind, "job_id", job.ID}
		for name, value := range job.Fields {
			pairs = append(pairs, name, value)
		}
		tx.XAdd(ctx, &redis.XAddArgs{Stream: q.key("jobs"), Values: pairs})
	}
	read := tx.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "workers", Consumer: name, Streams: []string{q.key("jobs"), ">"}, Count: int64(len(js)), Block: -1,
	})
	_, err = tx.Exec(ctx)
	must(q.t, err)
	var entries []string
	for _, m := range read.Val()[0].Messages {
		entries = append(entries, m.ID)
		q.hold(name, m.ID, idle, n)
	}
	return entries
}

// hold makes an entry look as if a worker held it.
func (q *queue) hold(name, entry string, idle time.Duration, n int) {
	q.t.Helper()
	must(q.t, q.rdb.Do(q.t.Context(), "xclaim", q.key("jobs"), "workers", name, 0, entry,
		"IDLE", idle.Milliseconds(), "RETRYCOUNT", n, "JUSTID").Err())
}

// crew counts who runs at once.
type crew struct {
	mu        sync.Mutex
	now, most int
}

// enter says that a handler begins, and returns what says that it has ended.
func (c *crew) enter() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

func (c *crew) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// goroutines are how many there are in this bubble.
func goroutines(t testing.TB) int {
	t.Helper()
	return len(stacks(t))
}

// stacks are those of this bubble's goroutines.
func stacks(t testing.TB) (mine [][]byte) {
	t.Helper()
	all := make([]byte, 1<<24)
	all = all[:runtime.Stack(all, true)]
	head, _, ok := bytes.Cut(all, []byte(":\n"))
	at := bytes.Index(head, []byte("synctest bubble"))
	if !ok || at < 0 {
		t.Skip("the runtime does not say which bubble a goroutine is in")
	}
	bubble := slices.Concat(bytes.TrimSuffix(head[at:], []byte("]")), []byte("]:\n"))
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.Contains(stack, bubble) {
			mine = append(mine, stack)
		}
	}
	return mine
}
