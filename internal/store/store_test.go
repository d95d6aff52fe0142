package store_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

const lease = 12 * time.Second

// queue is a queue with its group made, and a server's client to look at it from outside.
type queue struct {
	*testing.T
	rdb  *redis.Client
	keys store.Keys
}

// each runs f on a queue of miniredis and on one of Redis.
func each(t *testing.T, f func(q queue)) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) { f(newQueue(t, rdb)) })
}

// newQueue is a queue beside all others of the same server.
func newQueue(t *testing.T, rdb *redis.Client) queue {
	t.Helper()
	q := queue{t, rdb, store.NewKeys(servers.Prefix(t))}
	q.must(q.as("nobody").MakeGroup(t.Context()))
	return q
}

// most is the number on a real server, and few on miniredis, which is slower.
func (q queue) most(n, few int) int {
	if strings.Contains(q.Name(), "/miniredis") {
		return few
	}
	return n
}

// sub runs f as a subtest on a queue of its own.
func (q queue) sub(name string, f func(q queue)) {
	q.T.Run(name, func(t *testing.T) { f(newQueue(t, q.rdb)) })
}

// as is the queue as a consumer sees it.
func (q queue) as(consumer string) *store.Store { return q.over(q.rdb, consumer) }

func (q queue) over(rdb *redis.Client, consumer string) *store.Store {
	return store.New(rdb, strings.TrimSuffix(q.keys.Stream, "jobs")).As(consumer)
}

func (q queue) must(err error) {
	q.Helper()
	if err != nil {
		q.Fatal(err)
	}
}

// add puts a job on the stream from outside.
func (q queue) add(pairs ...string) string {
	q.Helper()
	id, err := q.rdb.XAdd(q.Context(), &redis.XAddArgs{Stream: q.keys.Stream, Values: pairs}).Result()
	q.must(err)
	return id
}

// running adds a job and has a consumer fetch it.
func (q queue) running(consumer string, pairs ...string) store.Entry {
	q.Helper()
	if len(pairs) == 0 {
		pairs = []string{"kind", "render", "order_id", "4471"}
	}
	id := q.add(pairs...)
	got := q.fetch(consumer, 1000)
	if len(got) != 1 || got[0].ID != id {
		q.Fatalf("fetched %v, not %s alone", got, id)
	}
	return got[0]
}

func (q queue) fetch(consumer string, n int) []store.Entry {
	q.Helper()
	trip := q.as(consumer).Trip(q.Context())
	trip.Fetch(n)
	got, err := trip.Go()
	q.must(err)
	return got
}

// owner hands an entry to a consumer, as if it had been idle for so long and delivered so
// often.
func (q queue) owner(id, consumer string, idle time.Duration, deliveries int) {
	q.Helper()
	q.must(q.rdb.Do(q.Context(), "xclaim", q.keys.Stream, store.Group, consumer, 0, id,
		"IDLE", idle.Milliseconds(), "RETRYCOUNT", deliveries, "JUSTID").Err())
}

// pending is what the group knows of an entry that was delivered.
func (q queue) pending() map[string]redis.XPendingExt {
	q.Helper()
	all, err := q.rdb.XPendingExt(q.Context(), &redis.XPendingExtArgs{
		Stream: q.keys.Stream, Group: store.Group, Start: "-", End: "+", Count: 10_000,
	}).Result()
	q.must(err)
	m := map[string]redis.XPendingExt{}
	for _, p := range all {
		m[p.ID] = p
	}
	return m
}

// holders are who holds which entry, and the number of the delivery: "w1 2".
func (q queue) holders() map[string]string {
	q.Helper()
	m := map[string]string{}
	for id, p := range q.pending() {
		m[id] = fmt.Sprintf("%s %d", p.Consumer, p.RetryCount)
	}
	return m
}

// state is everything that the queue's keys hold, but for idle times.
func (q queue) state() map[string]any {
	q.Helper()
	ctx, s := q.Context(), map[string]any{}
	prefix := strings.TrimSuffix(q.keys.Stream, "jobs")
	names, err := q.rdb.Keys(ctx, prefix+"*").Result()
	q.must(err)
	for _, name := range names {
		short := strings.TrimPrefix(name, prefix)
		switch kind := q.rdb.Type(ctx, name).Val(); kind {
		case "stream":
			s[short] = q.rdb.XRange(ctx, name, "-", "+").Val()
		case "zset":
			s[short] = q.rdb.ZRangeWithScores(ctx, name, 0, -1).Val()
		case "string":
			s[short] = q.rdb.Get(ctx, name).Val()
		default:
			s[short] = kind
		}
	}
	if _, ok := s["jobs"].([]redis.XMessage); ok {
		s["holders"] = q.holders()
	}
	return s
}

// unchanged fails the test if f changes anything in Redis.
func (q queue) unchanged(f func()) {
	q.Helper()
	before := q.state()
	f()
	if diff := cmp.Diff(before, q.state()); diff != "" {
		q.Errorf("changed:\n%s", diff)
	}
}

func (q queue) same(want, got any) {
	q.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		q.Error(diff)
	}
}

// entries are the jobs on a stream, oldest first.
func (q queue) entries(key string) []map[string]string {
	q.Helper()
	messages, err := q.rdb.XRange(q.Context(), key, "-", "+").Result()
	q.must(err)
	var all []map[string]string
	for _, m := range messages {
		fields := map[string]string{}
		for name, value := range m.Values {
			fields[name] = value.(string)
		}
		all = append(all, fields)
	}
	return all
}

// clock is Redis's.
func (q queue) clock() time.Time {
	q.Helper()
	now, err := q.as("nobody").Now(q.Context())
	q.must(err)
	return now
}

// crowd calls f from n goroutines at once and returns how many of them won.
func crowd(n int, f func(i int) bool) int {
	start := make(chan struct{})
	won := make([]bool, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			won[i] = f(i)
		})
	}
	close(start)
	all.Wait()
	wins := 0
	for _, w := range won {
		if w {
			wins++
		}
	}
	return wins
}

// write makes one trip with one outcome.
func write(ctx context.Context, s *store.Store, outcome func(*store.Trip) store.Reply) (bool, error) {
	trip := s.Trip(ctx)
	reply := outcome(trip)
	if _, err := trip.Go(); err != nil {
		return false, err
	}
	return reply.Written()
}

// countingTrips has a client whose trips with a script are counted.
func (q queue) countingTrips() (*redis.Client, *tripCounter) {
	trips := &tripCounter{}
	rdb := redis.NewClient(q.rdb.Options())
	q.Cleanup(func() { rdb.Close() })
	rdb.AddHook(trips)
	return rdb, trips
}

// tripCounter counts the trips that carry a script, alone or in a pipeline.
type tripCounter struct{ n int }

func (*tripCounter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}
func (c *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds[0])
		return next(ctx, cmds)
	}
}

func (c *tripCounter) count(first redis.Cmder) {
	if first.Name() == "eval" {
		c.n++
	}
}
