package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// dead puts a dead letter down from outside.
func (q queue) dead(name string) store.Entry {
	q.Helper()
	id, err := q.rdb.XAdd(q.Context(), &redis.XAddArgs{Stream: q.keys.Dead, Values: []string{"kind", "render", "name", name, "error", "14-C"}}).Result()
	q.must(err)
	return store.Entry{ID: id, Fields: map[string]string{"kind": "render", "name": name}}
}

// goingBack are dead letters with the record of somebody who replays them.
func goingBack(letters ...store.Entry) (all []store.Replayed) {
	for _, e := range letters {
		all = append(all, store.Replayed{Entry: e, Record: store.Record{Who: "marek", What: "replay", Entry: e.ID, Set: []string{"seat"}}})
	}
	return all
}

func TestReplay(t *testing.T) {
	each(t, func(q queue) {
		letters := goingBack(q.dead("a"), q.dead("b"), q.dead("c"), store.Entry{ID: "1-1", Fields: map[string]string{"kind": "x"}})
		stays := q.dead("d")
		ok, err := q.as("").Replay(q.Context(), letters)
		q.must(err)
		q.same([]bool{true, true, true, false}, ok)
		q.same([]string{"a", "b", "c"}, q.names())
		left := q.rdb.XRange(q.Context(), q.keys.Dead, "-", "+").Val()
		if len(left) != 1 || left[0].ID != stays.ID {
			q.Errorf("left: %v", left)
		}
	})
}

// Two people replay once; one who discards meanwhile has discarded, or has not.
func TestReplayByTwenty(t *testing.T) {
	each(t, func(q queue) {
		for range 10 {
			letter := q.dead("x")
			wins := crowd(20, func(i int) bool {
				if i%4 == 0 {
					gone, err := q.as("").Discard(q.Context(), letter.ID, store.Record{What: "discard"})
					return gone && err == nil
				}
				ok, err := q.as("").Replay(q.Context(), goingBack(letter))
				if err != nil {
					q.Error(err)
				}
				return ok[0]
			})
			if wins != 1 || q.rdb.XLen(q.Context(), q.keys.Dead).Val() != 0 || len(q.names()) > 1 {
				q.Errorf("%d of 20 have had it, it is ready %d times", wins, len(q.names()))
			}
			q.must(q.rdb.XTrimMaxLen(q.Context(), q.keys.Stream, 0).Err())
		}
	})
}

// It looks, adds, and only then deletes.
func TestReplayThatIsRefused(t *testing.T) {
	each(t, func(q queue) {
		letter := q.dead("x")
		q.must(q.rdb.Set(q.Context(), q.keys.Stream, "x", 0).Err())
		q.unchanged(func() {
			if ok, err := q.as("").Replay(q.Context(), goingBack(letter)); ok[0] || err == nil {
				q.Errorf("replayed %v, %v", ok, err)
			}
		})
	})
}

// Old is what is older than the time to the millisecond, and not what is just as old.
func TestTrimDeadAtTheEdge(t *testing.T) {
	t.Parallel()
	mini := servers.NewMiniredis(t)
	clock := time.UnixMilli(1_800_000_000_123)
	mini.SetTime(clock)
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	for _, at := range []string{"1799996400122-5", "1799996400123-0", "1799996400124-0"} {
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs:dead", ID: at, Values: []string{"kind", "k"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := store.New(rdb, "")
	n, err := s.TrimDead(t.Context(), time.Hour)
	left, ok, _ := s.DeadLetter(t.Context(), "1799996400123-0")
	if n != 1 || err != nil || !ok {
		t.Errorf("%d dropped, %v; the edge: %+v", n, err, left)
	}
	if n, err := s.TrimDead(t.Context(), time.Hour-time.Millisecond); n != 1 || err != nil {
		t.Errorf("a millisecond less: %d dropped, %v", n, err)
	}
}

func TestReplayForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	letter := q.dead("x")
	q.unchanged(func() {
		q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		ok, err := q.as("").Replay(t.Context(), goingBack(letter))
		q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		if ok[0] || err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("replayed %v, %v", ok, err)
		}
	})
}

// Ranges include their start: a page must not begin with the last one's end.
func TestDeadGoesThroughAllPages(t *testing.T) {
	each(t, func(q queue) {
		const n = 250
		var ids []string
		for i := range n {
			ids = append(ids, q.dead(strconv.Itoa(i)).ID)
		}
		list := func(from, to string, most int) (names []string) {
			q.must(q.as("").Dead(q.Context(), from, to, func(page []store.Entry) bool {
				for _, e := range page {
					names = append(names, e.Fields["name"])
				}
				return len(names) < most
			}))
			return names
		}
		for i, name := range list("-", "+", n+1) {
			if name != strconv.Itoa(i) {
				q.Fatalf("%s came %d.", name, i)
			}
		}
		q.same(n, len(list("-", "+", n+1)))
		q.same(121, len(list(ids[10], ids[130], n)))
		q.same(100, len(list("-", "+", 50)))
		newest, err := q.as("").NewestDead(q.Context())
		q.must(err)
		q.same(ids[n-1], newest)
	})
}

func TestOlder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{{"1-0", "2-0", true}, {"2-0", "1-0", false}, {"1-1", "1-2", true}, {"1-2", "1-2", false}, {"9-0", "10-0", true}, {"", "1-0", true}} {
		if store.Older(c.a, c.b) != c.want {
			t.Errorf("%q, %q", c.a, c.b)
		}
	}
}

func TestDeadLetter(t *testing.T) {
	each(t, func(q queue) {
		if newest, err := q.as("").NewestDead(q.Context()); newest != "" || err != nil {
			q.Errorf("the newest of none is %s, %v", newest, err)
		}
		id := q.dead("x").ID
		e, ok, err := q.as("").DeadLetter(q.Context(), id)
		if !ok || err != nil || fmt.Sprint(e.Fields) != "map[error:14-C kind:render name:x]" {
			q.Errorf("%v, %v, %v", e, ok, err)
		}
		if _, ok, err := q.as("").DeadLetter(q.Context(), "1-1"); ok || err != nil {
			q.Errorf("one that is not there: %v, %v", ok, err)
		}
		body := q.add("kind", "render")
		if e, ok, err := q.as("").Body(q.Context(), body); !ok || err != nil || e.Fields["kind"] != "render" {
			q.Errorf("%v, %v, %v", e, ok, err)
		}
		if _, ok, err := q.as("").Body(q.Context(), "1-1"); ok || err != nil {
			q.Errorf("a body that is not there: %v, %v", ok, err)
		}
	})
}
