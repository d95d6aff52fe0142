package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// minute is a tick of a schedule that is due each minute, so many minutes ago, as a worker
// sees it that has looked at the schedule for the last ten minutes.
func (q queue) minute(ago int) store.Tick {
	q.Helper()
	now := q.clock().UTC().Truncate(time.Minute)
	return store.Tick{
		Name: "expire_holds", At: now.Add(-time.Duration(ago) * time.Minute), Expression: "* * * * *",
		Since: now.Add(-10 * time.Minute), Lock: time.Hour, Bookmark: 30 * 24 * time.Hour,
		Entry: []string{"kind", "expire_holds", "name", strconv.Itoa(ago)},
	}
}

// tick tries one, and says whether this call enqueued it.
func (q queue) tick(worker string, t store.Tick) bool {
	q.Helper()
	reply := q.as(worker).Tick(q.Context(), []store.Tick{t})[0]
	q.must(reply.Err)
	return reply.Enqueued
}

func (q queue) bookmark() string {
	return q.rdb.Get(q.Context(), q.keys.Bookmark("expire_holds")).Val()
}

func TestTick(t *testing.T) {
	for name, c := range map[string]struct {
		steps func(q queue) []store.Tick
		want  []string // the ticks that become jobs
	}{
		"a name that is new enqueues nothing of the past": {func(q queue) []store.Tick {
			first := q.minute(3)
			first.Since = q.clock()
			return []store.Tick{first}
		}, []string{}},
		"and from then on everything": {func(q queue) []store.Tick {
			first := q.minute(3)
			first.Since = q.clock()
			return []store.Tick{first, q.minute(2), q.minute(1), q.minute(0)}
		}, []string{"2", "1", "0"}},
		"a new name is enqueued where the tick is later than the first look": {func(q queue) []store.Tick {
			return []store.Tick{q.minute(3)}
		}, []string{"3"}},
		"not twice, and nothing before it": {func(q queue) []store.Tick {
			return []store.Tick{q.minute(2), q.minute(2), q.minute(3), q.minute(2)}
		}, []string{"2"}},
		"the latest of those that were missed": {func(q queue) []store.Tick {
			return []store.Tick{q.minute(9), q.minute(1), q.minute(5)}
		}, []string{"9", "1"}},
		"one that is too late is marked and skipped": {func(q queue) []store.Tick {
			stale := q.minute(5)
			stale.Stale = true
			return []store.Tick{q.minute(9), stale, q.minute(5), q.minute(4)}
		}, []string{"9", "4"}},
		"another expression governs until a tick that is later than the first look": {func(q queue) []store.Tick {
			before, after := q.minute(5), q.minute(2)
			for _, t := range []*store.Tick{&before, &after} {
				t.Expression, t.Since = "*/3 * * * *", q.minute(4).At
			}
			restarted := q.minute(5)
			restarted.Since = q.clock()
			return []store.Tick{q.minute(6), before, restarted, after, q.minute(1)}
		}, []string{"6", "5", "2", "1"}},
		"two expressions share an instant": {func(q queue) []store.Tick {
			other := q.minute(2)
			other.Expression = "*/2 * * * *"
			return []store.Tick{q.minute(3), q.minute(2), other, q.minute(2), q.minute(1)}
		}, []string{"3", "2", "1"}},
		"a bookmark that cannot be read is none": {func(q queue) []store.Tick {
			q.must(q.rdb.Set(q.Context(), q.keys.Bookmark("expire_holds"), "rubbish", time.Hour).Err())
			early := q.minute(3)
			early.Since = q.minute(2).At
			return []store.Tick{early, q.minute(1)}
		}, []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(q queue) {
				steps, n := c.steps(q), 0
				for i, step := range steps {
					if q.tick(fmt.Sprint("w", i), step) {
						n++
					}
				}
				q.same(c.want, q.names())
				q.same(len(c.want), n)
			})
		})
	}
}

// What is not due by Redis's clock is no tick, whoever thinks so; it is not taken for done.
func TestTickThatIsNotDue(t *testing.T) {
	each(t, func(q queue) {
		q.tick("w1", q.minute(1))
		q.unchanged(func() {
			if reply := q.as("w1").Tick(q.Context(), []store.Tick{q.minute(-2)})[0]; reply.Enqueued || reply.Err == nil {
				q.Errorf("%+v", reply)
			}
		})
	})
}

func TestTickKeysExpire(t *testing.T) {
	each(t, func(q queue) {
		tick := q.minute(1)
		if !q.tick("w1", tick) {
			q.Fatal("not enqueued")
		}
		key := q.keys.Tick("expire_holds", tick.At)
		if got := q.rdb.Get(q.Context(), key).Val(); got != "w1" {
			q.Errorf("%s is %q", key, got)
		}
		if got, want := q.bookmark(), fmt.Sprintf("%d * * * * *", tick.At.Unix()); got != want {
			q.Errorf("the bookmark is %q, not %q", got, want)
		}
		for key, want := range map[string]time.Duration{key: tick.Lock, q.keys.Bookmark("expire_holds"): tick.Bookmark} {
			if ttl := q.rdb.TTL(q.Context(), key).Val(); ttl > want || ttl < want-time.Minute {
				q.Errorf("%s lives for %s, not %s", key, ttl, want)
			}
		}
		first := q.minute(0)
		first.Name, first.Since = "new", q.clock()
		q.tick("w1", first)
		if ttl := q.rdb.TTL(q.Context(), q.keys.Bookmark("new")).Val(); ttl < tick.Bookmark-time.Minute {
			q.Errorf("the bookmark of a new name lives for %s", ttl)
		}
	})
}

func TestTickOfTwentyWorkers(t *testing.T) {
	each(t, func(q queue) {
		for ago := 9; ago >= 0; ago-- {
			tick := q.minute(ago)
			if wins := crowd(20, func(i int) bool { return q.tick(fmt.Sprint("w", i), tick) }); wins != 1 {
				q.Errorf("%d of 20 have enqueued it", wins)
			}
		}
		q.same(10, len(q.names()))
	})
}

// More than one script's worth, and each answers for itself.
func TestTickManySchedules(t *testing.T) {
	each(t, func(q queue) {
		const n = 250
		ticks := make([]store.Tick, n)
		for i := range ticks {
			ticks[i] = q.minute(1)
			ticks[i].Name = fmt.Sprint("s", i)
			ticks[i].Entry = []string{"kind", "k", "name", strconv.Itoa(i)}
		}
		ticks[7].At = ticks[7].At.Add(time.Hour)
		for i, reply := range q.as("w1").Tick(q.Context(), ticks) {
			if reply.Enqueued == (i == 7) || (reply.Err != nil) != (i == 7) {
				q.Errorf("tick %d: %+v", i, reply)
			}
		}
		q.same(n-1, len(q.names()))
	})
}

// A tick that cannot become a job leaves no mark.
func TestTickThatIsRefused(t *testing.T) {
	each(t, func(q queue) {
		q.must(q.rdb.Set(q.Context(), q.keys.Stream, "x", 0).Err())
		q.unchanged(func() {
			reply := q.as("w1").Tick(q.Context(), []store.Tick{q.minute(1)})[0]
			if reply.Enqueued || !redis.HasErrorPrefix(reply.Err, "WRONGTYPE") {
				q.Errorf("%+v", reply)
			}
		})
	})
}

func TestTickForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	q.tick("w1", q.minute(3))
	q.unchanged(func() {
		q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		reply := q.as("w1").Tick(t.Context(), []store.Tick{q.minute(1)})[0]
		q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		if reply.Enqueued || reply.Err == nil {
			t.Errorf("%+v", reply)
		}
	})
	if !q.tick("w1", q.minute(1)) {
		t.Error("it is not enqueued when there is memory again")
	}
}

// A tick whose reply is lost is enqueued once.
func TestTickWhoseReplyIsLost(t *testing.T) {
	each(t, func(q queue) {
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		defer far.Close()
		proxy.Swallow(servers.Command("eval"))
		tick := q.minute(1)
		if reply := q.over(far, "w1").Tick(q.Context(), []store.Tick{tick})[0]; reply.Err == nil {
			q.Errorf("%+v", reply)
		}
		if q.tick("w1", tick) || q.tick("w2", tick) {
			q.Error("enqueued again")
		}
		q.same([]string{"1"}, q.names())
	})
}
