package store_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

func items(n int) []store.Item {
	all := make([]store.Item, n)
	for i := range all {
		all[i] = store.Item{Entry: []string{"kind", "render", "name", strconv.Itoa(i)}}
	}
	return all
}

func TestEnqueueKeepsTheOrder(t *testing.T) {
	each(t, func(q queue) {
		for _, n := range []int{1, 2, 2500} {
			q.sub(strconv.Itoa(n), func(q queue) {
				queued, uncertain, err := q.as("").Enqueue(q.Context(), items(n))
				if queued != n || uncertain != 0 || err != nil {
					q.Errorf("%d queued, %d uncertain, %v", queued, uncertain, err)
				}
				names := q.names()
				for i, name := range names {
					if name != strconv.Itoa(i) {
						q.Fatalf("%s came %d.", name, i)
					}
				}
				if len(names) != n {
					q.Errorf("%d are in", len(names))
				}
			})
		}
	})
}

// In counts from Redis's now, At is the score, and neither is rounded down.
func TestEnqueueForLater(t *testing.T) {
	each(t, func(q queue) {
		at := time.Unix(4_000_000_000, 123_456_001)
		wait := time.Hour + 1500*time.Nanosecond
		low := q.clock().Add(wait)
		queued, _, err := q.as("").Enqueue(q.Context(), []store.Item{
			{Entry: []string{"kind", "in"}, In: wait},
			{Entry: []string{"kind", "at"}, At: at},
			{Entry: []string{"kind", "before the epoch"}, At: time.Unix(-100, 5e8)},
		})
		high := q.clock().Add(wait + time.Microsecond)
		if queued != 3 || err != nil {
			q.Fatalf("%d queued, %v", queued, err)
		}
		score := func(kind string) float64 {
			return q.rdb.ZScore(q.Context(), q.keys.Delayed, fields.Member(map[string]string{"kind": kind})).Val()
		}
		if got := score("in"); got < seconds(low) || got > seconds(high) {
			q.Errorf("in %s is at %f, not in [%f, %f]", wait, got, seconds(low), seconds(high))
		}
		if got := score("at"); got != 4_000_000_000.123457 {
			q.Errorf("at %s is at %f", at, got)
		}
		if got := score("before the epoch"); got >= 0 {
			q.Errorf("before the epoch is at %f", got)
		}
	})
}

// The same job enqueued again stays where it is.
func TestEnqueueAgain(t *testing.T) {
	each(t, func(q queue) {
		item := store.Item{Entry: []string{"kind", "x"}, In: time.Hour}
		for range 2 {
			if queued, _, err := q.as("").Enqueue(q.Context(), []store.Item{item}); queued != 1 || err != nil {
				q.Errorf("%d queued, %v", queued, err)
			}
			item.In = 2 * time.Hour
		}
		all := q.rdb.ZRangeWithScores(q.Context(), q.keys.Delayed, 0, -1).Val()
		if len(all) != 1 || all[0].Score > seconds(q.clock().Add(time.Hour)) {
			q.Errorf("delayed: %v", all)
		}
	})
}

// A reply that never came leaves what was sent uncertain, and nothing is sent twice.
func TestEnqueueWhoseReplyIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		items             []store.Item
		lose              string // the reply to this command
		nth               int    // of its kind
		queued, uncertain int
		in                int // what is in Redis
	}{
		"one":               {items(1), "xadd", 1, 0, 1, 1},
		"one in a while":    {[]store.Item{{Entry: []string{"kind", "x"}, In: time.Hour}}, "eval", 1, 0, 1, 1},
		"one at a time":     {[]store.Item{{Entry: []string{"kind", "x"}, At: time.Unix(5e9, 0)}}, "zadd", 1, 0, 1, 1},
		"a hundred":         {items(100), "exec", 1, 0, 100, 100},
		"the second of two": {items(1500), "exec", 2, 1000, 500, 1500},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(q queue) {
				proxy := servers.NewProxy(q, q.rdb.Options().Addr)
				far := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // resends what it may
				defer far.Close()
				nth := 0
				proxy.Swallow(func(cmd []string) bool {
					if strings.EqualFold(cmd[0], c.lose) {
						nth++
					}
					return nth == c.nth
				})
				queued, uncertain, err := q.over(far, "").Enqueue(q.Context(), c.items)
				if queued != c.queued || uncertain != c.uncertain || err == nil {
					q.Errorf("%d queued, %d uncertain, %v", queued, uncertain, err)
				}
				in := q.rdb.XLen(q.Context(), q.keys.Stream).Val() + q.rdb.ZCard(q.Context(), q.keys.Delayed).Val()
				if in != int64(c.in) {
					q.Errorf("%d are in, not %d", in, c.in)
				}
			})
		})
	}
}

// What was never sent is certain.
func TestEnqueueWithoutARedis(t *testing.T) {
	t.Parallel()
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	rdb := redis.NewClient(&redis.Options{Dialer: refused, MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	for _, n := range []int{1, 3} {
		queued, uncertain, err := store.New(rdb, "").Enqueue(t.Context(), items(n))
		if queued != 0 || uncertain != 0 || err == nil {
			t.Errorf("%d items: %d queued, %d uncertain, %v", n, queued, uncertain, err)
		}
	}
}

// All or none, and the reason is the refused command's own.
func TestEnqueueForWantOfMemory(t *testing.T) {
	t.Parallel()
	rdb := servers.NewRedis(t).Client(t)
	for name, all := range map[string][]store.Item{
		"one":     items(1),
		"many":    items(10),
		"in time": {{Entry: []string{"kind", "x"}, In: time.Hour}},
		"at":      {{Entry: []string{"kind", "x"}, At: time.Unix(5e9, 0)}},
	} {
		q := newQueue(t, rdb)
		q.must(rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		queued, uncertain, err := q.as("").Enqueue(t.Context(), all)
		if queued != 0 || uncertain != 0 || err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %d queued, %d uncertain, %v", name, queued, uncertain, err)
		}
		q.must(rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		if in := q.rdb.XLen(t.Context(), q.keys.Stream).Val() + q.rdb.ZCard(t.Context(), q.keys.Delayed).Val(); in != 0 {
			t.Errorf("%s: %d are in", name, in)
		}
	}
}

// Redis refuses MULTI itself to who lacks the right, and then carries out what follows it one by one.
func TestEnqueueWithoutTheRightToTransactions(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t))
	err := q.with(server, []string{"~*", "+@all", "-multi"}, func(rdb *redis.Client) error {
		queued, uncertain, err := q.over(rdb, "").Enqueue(t.Context(), items(3))
		if in := q.rdb.XLen(t.Context(), q.keys.Stream).Val(); queued != 0 || uncertain != 3 || in != 3 {
			t.Errorf("%d queued, %d uncertain, %d are in", queued, uncertain, in)
		}
		return err
	})
	if !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("error %v", err)
	}
}

// A transaction over two keys of which one has the wrong type says how many of the first are in, and up to where others
// may be.
func TestEnqueueIntoAKeyOfTheWrongType(t *testing.T) {
	now, later := items(1)[0], store.Item{Entry: []string{"kind", "x"}, At: time.Unix(5e9, 0)}
	each(t, func(q queue) {
		q.must(q.rdb.Set(q.Context(), q.keys.Delayed, "x", 0).Err())
		for _, c := range []struct {
			items                 []store.Item
			queued, uncertain, in int
		}{
			{[]store.Item{now, now, now, later}, 3, 0, 3},
			{[]store.Item{later, now}, 0, 2, 1},
			{[]store.Item{now, later, now, now, later, later}, 1, 3, 3},
			{[]store.Item{later, later}, 0, 0, 0},
		} {
			before := q.rdb.XLen(q.Context(), q.keys.Stream).Val()
			queued, uncertain, err := q.as("").Enqueue(q.Context(), c.items)
			in := q.rdb.XLen(q.Context(), q.keys.Stream).Val() - before
			if queued != c.queued || uncertain != c.uncertain || in != int64(c.in) || !redis.HasErrorPrefix(err, "WRONGTYPE") {
				q.Errorf("%d queued, %d uncertain, %d are in, %v; want %+v", queued, uncertain, in, err, c)
			}
		}
	})
}

// Nor is all refused where a script may not do what it does: that is found when the script runs.
func TestEnqueueWithoutTheRightOfAScript(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t))
	err := q.with(server, []string{"~*", "+@all", "-zadd"}, func(rdb *redis.Client) error {
		later := store.Item{Entry: []string{"kind", "x"}, In: time.Hour}
		queued, uncertain, err := q.over(rdb, "").Enqueue(t.Context(), append([]store.Item{later}, items(2)...))
		if in := q.rdb.XLen(t.Context(), q.keys.Stream).Val(); queued != 0 || uncertain != 3 || in != 2 {
			t.Errorf("%d queued, %d uncertain, %d are in", queued, uncertain, in)
		}
		return err
	})
	if !store.Forbidden(err) {
		t.Errorf("error %v", err)
	}
}

func TestStats(t *testing.T) {
	each(t, func(q queue) {
		s := q.as("")
		check := func(want store.Stats) {
			q.Helper()
			got, err := s.Stats(q.Context())
			q.must(err)
			if got.Ready > 0 && (got.OldestReady < 0 || got.OldestReady > time.Minute) || got.Ready == 0 && got.OldestReady != 0 {
				q.Errorf("the oldest is %s old", got.OldestReady)
			}
			got.OldestReady = 0
			q.same(want, got)
		}
		check(store.Stats{})
		_, _, err := s.Enqueue(q.Context(), items(5))
		q.must(err)
		check(store.Stats{Ready: 5})
		q.delay(5e9, "later")
		e := q.fetch("w1", 2)[0]
		check(store.Stats{Ready: 3, Running: 2, Delayed: 1})
		_, err = write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcomes["bury"](t, e.ID) })
		q.must(err)
		check(store.Stats{Ready: 3, Running: 1, Delayed: 1, Dead: 1})
		ready, err := s.Ready(q.Context())
		q.must(err)
		names := []string{}
		for _, e := range ready {
			names = append(names, e.Fields["name"])
		}
		q.same([]string{"2", "3", "4"}, names)
		q.must(q.rdb.Del(q.Context(), q.keys.Stream).Err())
		check(store.Stats{Delayed: 1, Dead: 1})
		if ready, err := s.Ready(q.Context()); len(ready) != 0 || err != nil {
			q.Errorf("ready without a stream: %v, %v", ready, err)
		}
	})
}

// The names are the wire contract.
func TestKeys(t *testing.T) {
	t.Parallel()
	k := store.NewKeys("{stagedoor}:")
	got := fmt.Sprint(k.Stream, " ", k.Delayed, " ", k.Dead, " ", k.Suspect, " ", k.Bookmark("expire_holds"), " ", k.Tick("expire_holds", time.Unix(1758286400, 0)))
	want := "{stagedoor}:jobs {stagedoor}:delayed {stagedoor}:jobs:dead {stagedoor}:jobs:suspect {stagedoor}:sched:expire_holds {stagedoor}:sched:expire_holds:1758286400"
	if got != want {
		t.Errorf("%s\n%s", got, want)
	}
}
