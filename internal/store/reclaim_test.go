package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// stale is a running entry whose owner, w1, has been silent for so long.
func (q queue) stale(idle time.Duration, deliveries int) store.Claim {
	q.Helper()
	e := q.running("w1")
	q.owner(e.ID, "w1", idle, deliveries)
	return store.Claim{
		Pending: store.Pending{ID: e.ID, Owner: "w1", Deliveries: deliveries, Kind: "render"},
		Least:   lease,
	}
}

// A claim is decided on the entry as it is, and not as a sweep saw it.
func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		by        string
		change    func(q queue, c *store.Claim)
		delivery  int    // 0: not to be had
		unclaimed string // then it is still this holder's
	}{
		"its lease ran out": {by: "w2", delivery: 2},
		"exactly one lease": {by: "w2", delivery: 2, change: func(q queue, c *store.Claim) {
			c.Least = q.pending()[c.ID].Idle
		}},
		"renewed since it was seen": {by: "w2", unclaimed: "w1 1", change: func(q queue, c *store.Claim) {
			q.owner(c.ID, "w1", 0, 1)
		}},
		"delivered since it was seen": {by: "w2", unclaimed: "w3 2", change: func(q queue, c *store.Claim) {
			q.owner(c.ID, "w3", time.Hour, 2)
		}},
		"settled since it was seen": {by: "w2", change: func(q queue, c *store.Claim) {
			_, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return done(t, c.ID) })
			q.must(err)
		}},
		"handed over, and counted anew": {by: "w2", unclaimed: "w1 0", change: func(q queue, c *store.Claim) {
			q.owner(c.ID, "w1", lease, 0)
		}},
		"our own, never arrived": {by: "w1", delivery: 1, change: func(q queue, c *store.Claim) {
			c.Own = true
			q.owner(c.ID, "w1", 0, 1)
		}},
		"our own, taken by another": {by: "w1", unclaimed: "w2 2", change: func(q queue, c *store.Claim) {
			c.Own = true
			q.owner(c.ID, "w2", time.Hour, 2)
		}},
		"alone, without the right": {by: "w2", unclaimed: "w1 1", change: func(q queue, c *store.Claim) {
			c.Alone = true
		}},
		"alone, the right is another's": {by: "w2", unclaimed: "w1 1", change: func(q queue, c *store.Claim) {
			c.Alone = true
			q.isolate("w3", *c, lease, true)
		}},
		"alone, with the right": {by: "w2", delivery: 2, change: func(q queue, c *store.Claim) {
			c.Alone = true
			q.isolate("w2", *c, lease, true)
		}},
		"our own, alone, without the right": {by: "w1", unclaimed: "w1 1", change: func(q queue, c *store.Claim) {
			c.Alone, c.Own = true, true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(q queue) {
				claim := q.stale(time.Hour, 1)
				if c.change != nil {
					c.change(q, &claim)
				}
				e, delivery, err := q.as(c.by).Claim(q.Context(), claim)
				if delivery != c.delivery || err != nil {
					q.Fatalf("delivery %d, %v; want %d", delivery, err, c.delivery)
				}
				want := map[string]string{}
				if c.unclaimed != "" {
					want[claim.ID] = c.unclaimed
				}
				if delivery != 0 {
					want[claim.ID] = fmt.Sprintf("%s %d", c.by, delivery)
					q.same(map[string]string{"kind": "render", "order_id": "4471"}, e.Fields)
					if idle := q.pending()[claim.ID].Idle; idle > 10*time.Second {
						q.Errorf("claimed, and idle for %s", idle)
					}
				}
				q.same(want, q.holders())
			})
		})
	}
}

// isolate takes, renews or gives back the right to run a suspect.
func (q queue) isolate(consumer string, c store.Claim, ttl time.Duration, want bool) {
	q.Helper()
	if ok, err := q.as(consumer).Isolate(q.Context(), c, ttl); ok != want || err != nil {
		q.Errorf("%s asks for the right for %s: %v, %v", consumer, ttl, ok, err)
	}
}

// suspect is an entry of which one delivery is left.
func (q queue) suspect() store.Claim {
	q.Helper()
	c := q.stale(time.Hour, 2)
	c.Alone = true
	return c
}

// The right to run a suspect is one worker's, lasts for as long as it was asked for, and
// ends with the claim.
func TestIsolate(t *testing.T) {
	each(t, func(q queue) {
		holder := func(want string, least, most time.Duration) {
			q.Helper()
			got, ttl := q.rdb.Get(q.Context(), q.keys.Suspect).Val(), q.rdb.PTTL(q.Context(), q.keys.Suspect).Val()
			if got != want || want != "" && (ttl <= least || ttl > most) {
				q.Errorf("it is %q's for %s; want %q's for %s to %s", got, ttl, want, least, most)
			}
		}
		c := q.suspect()
		q.isolate("w1", c, time.Minute, true)
		holder("w1", 0, time.Minute)
		q.isolate("w2", c, time.Minute, false)
		q.isolate("w2", c, 0, false)
		holder("w1", 0, time.Minute)
		q.isolate("w1", c, time.Hour, true)
		holder("w1", time.Minute, time.Hour)
		q.isolate("w1", store.Claim{}, 0, true)
		holder("", 0, 0)
		q.isolate("w2", c, time.Hour, true)
		_, delivery, err := q.as("w2").Claim(q.Context(), c)
		if delivery != 3 || err != nil {
			q.Errorf("delivery %d, %v", delivery, err)
		}
		holder("", 0, 0)
	})
}

// Nobody empties itself for what is not to be had (any more).
func TestIsolateForNothing(t *testing.T) {
	for name, change := range map[string]func(q queue, c store.Claim){
		"settled": func(q queue, c store.Claim) {
			_, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return done(t, c.ID) })
			q.must(err)
		},
		"claimed by another": func(q queue, c store.Claim) { q.owner(c.ID, "w3", 0, 3) },
		"renewed":            func(q queue, c store.Claim) { q.owner(c.ID, "w1", 0, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(q queue) {
				c := q.suspect()
				q.isolate("w2", c, time.Hour, true)
				change(q, c)
				q.isolate("w2", c, time.Hour, false)
				if n := q.rdb.Exists(q.Context(), q.keys.Suspect).Val(); n != 0 {
					q.Error("it has kept the right")
				}
				q.isolate("w2", c, time.Hour, false)
			})
		})
	}
}

// An own entry that never arrived is to be had at once.
func TestIsolateForAnOwnEntry(t *testing.T) {
	each(t, func(q queue) {
		c := q.suspect()
		q.owner(c.ID, "w2", 0, 3)
		c.Owner, c.Own, c.Deliveries = "w2", true, 3
		q.isolate("w2", c, time.Hour, true)
		if _, delivery, err := q.as("w2").Claim(q.Context(), c); delivery != 3 || err != nil {
			q.Errorf("delivery %d, %v", delivery, err)
		}
	})
}

func TestIsolateForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	c := q.suspect()
	q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	q.isolate("w2", c, time.Minute, true)
	q.isolate("w2", c, time.Hour, true)
	if _, delivery, err := q.as("w2").Claim(t.Context(), c); delivery != 3 || err != nil {
		t.Errorf("delivery %d, %v", delivery, err)
	}
	if n := q.rdb.Exists(t.Context(), q.keys.Suspect).Val(); n != 0 {
		t.Error("the right outlives the claim")
	}
}

// What holds something else is not touched.
func TestIsolateWhereTheKeyHasTheWrongType(t *testing.T) {
	each(t, func(q queue) {
		c := q.suspect()
		q.must(q.rdb.RPush(q.Context(), q.keys.Suspect, "x").Err())
		q.unchanged(func() {
			if ok, err := q.as("w2").Isolate(q.Context(), c, lease); ok || !store.Refused(err) {
				q.Errorf("it has the right: %v, %v", ok, err)
			}
		})
	})
}

// Nobody may go on because of a right that has run out.
func TestIsolateEnds(t *testing.T) {
	each(t, func(q queue) {
		c := q.suspect()
		q.isolate("w1", c, 50*time.Millisecond, true)
		for deadline := time.Now().Add(time.Minute); q.rdb.Exists(q.Context(), q.keys.Suspect).Val() != 0; {
			if time.Now().After(deadline) {
				q.Fatal("it never ends")
			}
		}
		if _, delivery, err := q.as("w1").Claim(q.Context(), c); delivery != 0 || err != nil {
			q.Errorf("claimed without the right: %d, %v", delivery, err)
		}
	})
}

func TestIsolateIsOneWorkers(t *testing.T) {
	each(t, func(q queue) {
		c := q.suspect()
		for range 10 {
			wins := crowd(20, func(i int) bool {
				ok, err := q.as(fmt.Sprint("w", i+2)).Isolate(q.Context(), c, lease)
				if err != nil {
					q.Error(err)
				}
				return ok
			})
			if wins != 1 {
				q.Errorf("%d of 20 have the right", wins)
			}
			q.must(q.rdb.Del(q.Context(), q.keys.Suspect).Err())
		}
	})
}

// The same call after a lost reply finds what the first one did, also without the right
// that it gave back.
func TestClaimWhoseReplyIsLost(t *testing.T) {
	each(t, func(q queue) {
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		defer far.Close()
		for _, alone := range []bool{false, true} {
			claim := q.stale(time.Hour, 2)
			if claim.Alone = alone; alone {
				q.isolate("w2", claim, lease, true)
			}
			proxy.Swallow(servers.Command("eval"))
			if _, _, err := q.over(far, "w2").Claim(q.Context(), claim); err == nil || store.Refused(err) {
				q.Errorf("alone %v: the first call says %v", alone, err)
			}
			for range 2 {
				e, delivery, err := q.over(far, "w2").Claim(q.Context(), claim)
				if delivery != 3 || err != nil || e.Fields["order_id"] != "4471" {
					q.Errorf("alone %v: delivery %d, %v, %v", alone, delivery, e, err)
				}
			}
			if got := q.holders()[claim.ID]; got != "w2 3" {
				q.Errorf("alone %v: it is %s", alone, got)
			}
		}
	})
}

func TestClaimByTwenty(t *testing.T) {
	each(t, func(q queue) {
		for range 10 {
			claim := q.stale(time.Hour, 1)
			wins := crowd(20, func(i int) bool {
				_, delivery, err := q.as(fmt.Sprint("w", i+2)).Claim(q.Context(), claim)
				if err != nil || delivery != 0 && delivery != 2 {
					q.Errorf("delivery %d, %v", delivery, err)
				}
				return delivery != 0
			})
			if got := q.pending()[claim.ID]; wins != 1 || got.RetryCount != 2 || got.Consumer == "w1" {
				q.Errorf("%d of 20 have claimed it, it is %+v", wins, got)
			}
		}
	})
}

// deleted is a pending entry whose body is gone.
func (q queue) deleted() store.Claim {
	q.Helper()
	claim := q.stale(time.Hour, 1)
	q.must(q.rdb.XDel(q.Context(), q.keys.Stream, claim.ID).Err())
	return claim
}

func TestClaimOfABodyThatIsGone(t *testing.T) {
	each(t, func(q queue) {
		claim := q.deleted()
		if _, delivery, err := q.as("w2").Claim(q.Context(), claim); delivery != 0 || err != nil {
			q.Errorf("delivery %d, %v", delivery, err)
		}
		if left := q.holders(); len(left) != 0 {
			q.Errorf("still pending: %v", left)
		}
	})
}

func TestGone(t *testing.T) {
	each(t, func(q queue) {
		whole := q.stale(time.Hour, 1)
		if gone, err := q.as("w2").Gone(q.Context(), whole.ID); gone || err != nil {
			q.Errorf("a whole entry is gone: %v, %v", gone, err)
		}
		for range 10 {
			id := q.deleted().ID
			wins := crowd(20, func(i int) bool {
				gone, err := q.as(fmt.Sprint("w", i)).Gone(q.Context(), id)
				if err != nil {
					q.Error(err)
				}
				return gone
			})
			if wins != 1 {
				q.Errorf("%d of 20 have acknowledged it", wins)
			}
		}
		q.same(map[string]string{whole.ID: "w1 1"}, q.holders())
	})
}

// Leases are renewed without counting a delivery, and only those that are still ours.
func TestRenew(t *testing.T) {
	each(t, func(q queue) {
		mine, taken, ended := q.stale(time.Hour, 2).ID, q.stale(time.Hour, 1).ID, q.stale(time.Hour, 1).ID
		q.owner(taken, "w2", time.Hour, 2)
		_, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return done(t, ended) })
		q.must(err)
		lost, err := q.as("w1").Renew(q.Context(), []string{mine, taken, ended, "1-1"})
		q.must(err)
		q.same([]string{taken, ended, "1-1"}, lost)
		q.same(map[string]string{mine: "w1 2", taken: "w2 2"}, q.holders())
		got := q.pending()
		if got[mine].Idle > 10*time.Second || got[taken].Idle < time.Hour {
			q.Errorf("idle: ours %s, the other's %s", got[mine].Idle, got[taken].Idle)
		}
	})
}

// What waits in the stream and is nobody's will be delivered again, since the group was made anew or Redis has lost a write:
// who runs it has not lost it to anybody.
func TestRenewWhereTheDeliveryIsForgotten(t *testing.T) {
	each(t, func(q queue) {
		mine, gone := q.stale(time.Hour, 2).ID, q.deleted().ID
		q.must(q.rdb.XGroupDestroy(q.Context(), q.keys.Stream, store.Group).Err())
		q.must(q.rdb.XGroupCreate(q.Context(), q.keys.Stream, store.Group, "0").Err())
		lost, err := q.as("w1").Renew(q.Context(), []string{mine, gone})
		q.must(err)
		q.same([]string{gone}, lost)
		q.same(map[string]string{}, q.holders())
		q.fetch("w2", 1)
		lost, err = q.as("w1").Renew(q.Context(), []string{mine})
		q.must(err)
		q.same([]string{mine}, lost)
	})
}

func TestRenewManyAtOnce(t *testing.T) {
	each(t, func(q queue) {
		n := q.most(2500, 1200)
		pipe := q.rdb.Pipeline()
		for range n {
			pipe.XAdd(q.Context(), &redis.XAddArgs{Stream: q.keys.Stream, Values: []string{"kind", "noop"}})
		}
		_, err := pipe.Exec(q.Context())
		q.must(err)
		var ids []string
		for _, e := range q.fetch("w1", n) {
			ids = append(ids, e.ID)
		}
		q.owner(ids[n-1], "w2", 0, 2)
		lost, err := q.as("w1").Renew(q.Context(), ids)
		q.must(err)
		q.same(ids[n-1:], lost)
		lost, err = q.as("w1").Renew(q.Context(), nil)
		if len(lost) != 0 || err != nil {
			q.Errorf("nothing to renew: %v, %v", lost, err)
		}
	})
}

// A sweep sees every page of what has been idle for long enough, and whose it is.
func TestIdle(t *testing.T) {
	each(t, func(q queue) {
		want := map[string]store.Pending{}
		for i := range 230 {
			kind := fmt.Sprint("kind", i%3)
			id := q.running("w1", "order_id", "1", "kind", "overwritten", "kind", kind).ID
			q.owner(id, "w1", time.Duration(i)*time.Minute, i)
			if i >= 10 {
				want[id] = store.Pending{ID: id, Owner: "w1", Deliveries: i, Kind: kind}
			}
		}
		gone, nameless := q.deleted().ID, q.running("w2", "order_id", "2").ID
		q.owner(nameless, "w2", time.Hour, 1)
		want[gone] = store.Pending{ID: gone, Owner: "w1", Deliveries: 1, Gone: true}
		want[nameless] = store.Pending{ID: nameless, Owner: "w2", Deliveries: 1}
		got := map[string]store.Pending{}
		err := q.as("w3").Idle(q.Context(), 10*time.Minute, func(page []store.Pending) error {
			for _, p := range page {
				if p.Idle < 10*time.Minute || got[p.ID].ID != "" {
					q.Errorf("seen twice, or too early: %+v", p)
				}
				p.Idle = 0
				got[p.ID] = p
			}
			return nil
		})
		q.must(err)
		q.same(want, got)
		q.must(q.rdb.XGroupDestroy(q.Context(), q.keys.Stream, store.Group).Err())
		if err := q.as("w3").Idle(q.Context(), 0, nil); !store.NoGroup(err) {
			q.Errorf("without a group: %v", err)
		}
	})
}

// DELCONSUMER would drop what the consumer owns.
func TestForget(t *testing.T) {
	each(t, func(q queue) {
		q.running("w1")
		_, err := write(q.Context(), q.as("w2"), func(t *store.Trip) store.Reply { return done(t, q.running("w2").ID) })
		q.must(err)
		q.must(q.as("w1").Forget(q.Context(), "w1"))
		q.must(q.as("w1").Forget(q.Context(), "w2"))
		q.same([]string{"w1"}, q.consumers())
		q.must(q.as("w1").Forget(q.Context(), "w2"))
	})
}

func (q queue) consumers() []string {
	q.Helper()
	all, err := q.rdb.XInfoConsumers(q.Context(), q.keys.Stream, store.Group).Result()
	q.must(err)
	names := map[string]bool{}
	for _, c := range all {
		names[c.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Silent is about time, which only a real server keeps for consumers.
func TestSilent(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	q.running("busy")
	for _, consumer := range []string{"idle", "me"} {
		q.must(q.rdb.XGroupCreateConsumer(q.Context(), q.keys.Stream, store.Group, consumer).Err())
	}
	for deadline := time.Now().Add(time.Minute); ; {
		silent, err := q.as("me").Silent(q.Context(), 20*time.Millisecond)
		q.must(err)
		if len(silent) > 0 {
			q.same([]string{"idle"}, silent)
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody is silent")
		}
	}
	if silent, err := q.as("me").Silent(q.Context(), time.Hour); len(silent) != 0 || err != nil {
		t.Errorf("silent for an hour: %v, %v", silent, err)
	}
	q.must(q.rdb.Del(q.Context(), q.keys.Stream).Err())
	if silent, err := q.as("me").Silent(q.Context(), 0); len(silent) != 0 || err != nil {
		t.Errorf("without a group: %v, %v", silent, err)
	}
}

// An entry that nobody runs is buried as it was seen, or not at all.
func TestBuryAs(t *testing.T) {
	letter := map[string]string{"kind": "render", "error": "poison"}
	for name, change := range map[string]func(q queue, p *store.Pending){
		"as it was seen":              nil,
		"renewed since it was seen":   func(q queue, p *store.Pending) { q.owner(p.ID, "w1", 0, 3) },
		"delivered since it was seen": func(q queue, p *store.Pending) { q.owner(p.ID, "w1", time.Hour, 4) },
		"another owner":               func(q queue, p *store.Pending) { q.owner(p.ID, "w3", time.Hour, 3) },
		"settled": func(q queue, p *store.Pending) {
			_, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return done(t, p.ID) })
			q.must(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(q queue) {
				p := q.stale(time.Hour, 3).Pending
				if change != nil {
					change(q, &p)
				}
				bury := func() string {
					entry, _, err := q.as("w2").BuryAs(q.Context(), p, lease, 10, letter)
					if err != nil {
						q.Error(err)
					}
					return entry
				}
				if change != nil {
					q.unchanged(func() { q.same("", bury()) })
					return
				}
				if wins := crowd(20, func(int) bool { return bury() != "" }); wins != 1 {
					q.Errorf("%d of 20 have buried it", wins)
				}
				q.same([]map[string]string{letter}, q.entries(q.keys.Dead))
				q.same(map[string]string{}, q.holders())
			})
		})
	}
}

// A late outcome of the old owner and the burial: one of them.
func TestBuryAsAgainstALateOutcome(t *testing.T) {
	each(t, func(q queue) {
		for range 20 {
			p := q.stale(time.Hour, 3).Pending
			wins := crowd(2, func(i int) bool {
				if i == 0 {
					entry, _, err := q.as("w2").BuryAs(q.Context(), p, lease, 10, map[string]string{"kind": "render"})
					return err == nil && entry != ""
				}
				ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcomes["retry"](t, p.ID) })
				return err == nil && ours
			})
			left := q.rdb.XLen(q.Context(), q.keys.Dead).Val() + q.rdb.ZCard(q.Context(), q.keys.Delayed).Val()
			if wins != 1 || left != 1 {
				q.Errorf("%d have written, the job is there %d times", wins, left)
			}
			q.must(q.rdb.Del(q.Context(), q.keys.Delayed, q.keys.Dead).Err())
		}
	})
}
