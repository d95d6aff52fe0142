package store_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// outcomes are the arrows out of running that only the owner may take.
var outcomes = map[string]func(t *store.Trip, id string) store.Reply{
	"retry": func(t *store.Trip, id string) store.Reply {
		return t.Retry(id, map[string]string{"kind": "render", "attempts": "1"}, time.Second)
	},
	"bury": func(t *store.Trip, id string) store.Reply {
		return t.Bury(id, map[string]string{"kind": "render", "error": "14-C"}, 10)
	},
	"release": func(t *store.Trip, id string) store.Reply {
		return t.Release(id, map[string]string{"kind": "render"})
	},
	"handover": func(t *store.Trip, id string) store.Reply { return t.HandOver(id, 1, lease) },
}

func done(t *store.Trip, id string) store.Reply { return t.Done(id) }

func TestDone(t *testing.T) {
	each(t, func(q queue) {
		first, second, other := q.running("w1"), q.running("w1"), q.running("w1")
		trip := q.as("w1").Trip(q.Context())
		trip.Done(first.ID)
		trip.Done(second.ID)
		_, err := trip.Go()
		q.must(err)
		q.same(map[string]string{other.ID: "w1 1"}, q.holders())
		if n := q.rdb.XLen(q.Context(), q.keys.Stream).Val(); n != 1 {
			q.Errorf("%d entries are left", n)
		}
	})
}

// More entries than Lua can hand to one command.
func TestDoneOfManyAtOnce(t *testing.T) {
	each(t, func(q queue) {
		n := q.most(10_000, 1200)
		pipe := q.rdb.Pipeline()
		for range n {
			pipe.XAdd(q.Context(), &redis.XAddArgs{Stream: q.keys.Stream, Values: []string{"kind", "noop"}})
		}
		_, err := pipe.Exec(q.Context())
		q.must(err)
		trip := q.as("w1").Trip(q.Context())
		var replies []store.Reply
		for _, e := range q.fetch("w1", n) {
			replies = append(replies, trip.Done(e.ID))
		}
		_, err = trip.Go()
		q.must(err)
		for i, reply := range replies {
			if ours, err := reply.Written(); !ours || err != nil {
				q.Fatalf("entry %d of %d: written %v, %v", i, len(replies), ours, err)
			}
		}
		if left := q.rdb.XLen(q.Context(), q.keys.Stream).Val(); len(replies) != n || left != 0 {
			q.Errorf("%d settled, %d left", len(replies), left)
		}
	})
}

// The work is done, whoever owns the entry by now.
func TestDoneByAFormerOwner(t *testing.T) {
	each(t, func(q queue) {
		e := q.running("w1")
		q.owner(e.ID, "w2", 0, 2)
		if ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return done(t, e.ID) }); !ours || err != nil {
			q.Errorf("written %v, %v", ours, err)
		}
		if left := q.rdb.XLen(q.Context(), q.keys.Stream).Val(); left != 0 || len(q.pending()) != 0 {
			q.Errorf("%d entries and %v are left", left, q.pending())
		}
	})
}

func TestRetry(t *testing.T) {
	each(t, func(q queue) {
		e := q.running("w1")
		job := map[string]string{"kind": "render", "attempts": "1", "odd\xff": "\x00\r\n"}
		const delay = 1500 * time.Microsecond
		before := q.clock()
		ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return t.Retry(e.ID, job, delay) })
		after := q.clock()
		if !ours || err != nil {
			q.Fatalf("written %v, %v", ours, err)
		}
		all := q.rdb.ZRangeWithScores(q.Context(), q.keys.Delayed, 0, -1).Val()
		if len(all) != 1 || q.rdb.XLen(q.Context(), q.keys.Stream).Val() != 0 || len(q.pending()) != 0 {
			q.Fatalf("%v is delayed, %v pending", all, q.pending())
		}
		got, err := fields.ParseMember(all[0].Member.(string))
		q.must(err)
		q.same(job, got)
		low, high := seconds(before.Add(delay)), seconds(after.Add(delay))
		if due := all[0].Score; due < low || due > high {
			q.Errorf("due at %f, not in [%f, %f]", due, low, high)
		}
	})
}

// seconds are epoch seconds.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func TestBury(t *testing.T) {
	each(t, func(q queue) {
		for i := range 5 {
			e := q.running("w1")
			letter := map[string]string{"kind": "render", "attempts": strconv.Itoa(i), "error": "e", "traceback": "t"}
			trip := q.as("w1").Trip(q.Context())
			reply := trip.Bury(e.ID, letter, 3)
			_, err := trip.Go()
			q.must(err)
			entry, dropped, err := reply.Buried()
			q.must(err)
			newest := q.rdb.XRevRangeN(q.Context(), q.keys.Dead, "+", "-", 1).Val()[0]
			if entry != newest.ID || dropped != int64(max(0, i-2)/max(1, i-2)) {
				q.Errorf("letter %d: %s, dropped %d; the newest is %s", i, entry, dropped, newest.ID)
			}
		}
		letters := q.entries(q.keys.Dead)
		if len(letters) != 3 || letters[0]["attempts"] != "2" || letters[2]["attempts"] != "4" {
			q.Errorf("kept %v", letters)
		}
		if len(q.pending()) != 0 || q.rdb.XLen(q.Context(), q.keys.Stream).Val() != 0 {
			q.Error("the entries are still on the stream")
		}
	})
}

// More of each sort than go into one script, some of which have another owner by now.
func TestOutcomesOfOneTripAnswerForThemselves(t *testing.T) {
	each(t, func(q queue) {
		const n, keep = 121, 50
		trip := q.as("w1").Trip(q.Context())
		var retries, burials []store.Reply
		for i := range n {
			first, second := q.running("w1"), q.running("w1")
			if i%3 == 0 {
				q.owner(first.ID, "w2", 0, 2)
				q.owner(second.ID, "w2", 0, 2)
			}
			job := map[string]string{"kind": "render", "i": strconv.Itoa(i)}
			retries = append(retries, trip.Retry(first.ID, job, time.Hour))
			burials = append(burials, trip.Bury(second.ID, job, keep))
		}
		_, err := trip.Go()
		q.must(err)
		fell, written, newest := int64(0), 0, ""
		for i := range n {
			mine := i%3 != 0
			if ours, err := retries[i].Written(); ours != mine || err != nil {
				q.Errorf("retry %d: written %v, %v", i, ours, err)
			}
			letter, dropped, err := burials[i].Buried()
			if (letter != "") != mine || err != nil {
				q.Errorf("dead letter %d: %q, %v", i, letter, err)
			}
			if fell += dropped; mine {
				written, newest = written+1, letter
			}
		}
		q.theseAreThere(written, keep, newest)
		if fell != int64(written-keep) {
			q.Errorf("%d dead letters fell out, and %d were told of", written-keep, fell)
		}
		for id, holder := range q.holders() {
			if holder != "w2 2" {
				q.Errorf("%s is still there: %s", id, holder)
			}
		}
	})
}

// A worker of many slots has most of its jobs still running when some end, the youngest say.
func TestOutcomesAmongManyThatStillRun(t *testing.T) {
	each(t, func(q queue) {
		for range 50 {
			q.running("w1")
		}
		trip := q.as("w1").Trip(q.Context())
		var retries, burials []store.Reply
		for i := range 6 {
			first, second := q.running("w1"), q.running("w1")
			if i == 0 {
				q.owner(first.ID, "w2", 0, 2)
				q.owner(second.ID, "w2", 0, 2)
			}
			job := map[string]string{"kind": "render", "i": strconv.Itoa(i)}
			retries = append(retries, trip.Retry(first.ID, job, time.Hour))
			burials = append(burials, trip.Bury(second.ID, job, 10))
		}
		_, err := trip.Go()
		q.must(err)
		for i := range retries {
			ours, err := retries[i].Written()
			letter, _, buryErr := burials[i].Buried()
			if mine := i > 0; ours != mine || (letter != "") != mine || errors.Join(err, buryErr) != nil {
				q.Errorf("the %d-th: written %v, dead letter %q, %v, %v", i, ours, letter, err, buryErr)
			}
		}
		q.theseAreThere(5, 5, first(burials[5].Buried()))
		if n := len(q.holders()); n != 52 {
			q.Errorf("%d entries are held, and should be 52", n)
		}
	})
}

func first(letter string, _ int64, _ error) string { return letter }

// theseAreThere checks how many are delayed and dead, and that the last dead letter is the newest.
func (q queue) theseAreThere(delayed, dead int, newest string) {
	members := q.rdb.ZRange(q.Context(), q.keys.Delayed, 0, -1).Val()
	letters := q.rdb.XRange(q.Context(), q.keys.Dead, "-", "+").Val()
	if len(members) != delayed || len(letters) != dead || letters[dead-1].ID != newest {
		q.Errorf("%d are delayed, %d dead, and should be %d and %d, the last of them %s", len(members), len(letters), delayed, dead, newest)
	}
}

func TestRelease(t *testing.T) {
	each(t, func(q queue) {
		e := q.running("w1")
		q.owner(e.ID, "w1", 0, 2)
		job := map[string]string{"kind": "render", "attempts": "3"}
		ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return t.Release(e.ID, job) })
		if !ours || err != nil || len(q.pending()) != 0 {
			q.Fatalf("written %v, %v, pending %v", ours, err, q.pending())
		}
		again := q.fetch("w2", 10)
		if len(again) != 1 || again[0].ID == e.ID {
			q.Fatalf("fetched %v", again)
		}
		q.same(job, again[0].Fields)
		q.same(map[string]string{again[0].ID: "w2 1"}, q.holders())
	})
}

// The entry looks as if its lease had run out, and the delivery is not held against it,
// however often this is asked for.
func TestHandOver(t *testing.T) {
	each(t, func(q queue) {
		for delivery, want := range map[int]int64{1: 0, 2: 1, 3: 2} {
			e := q.running("w1")
			q.owner(e.ID, "w1", 0, delivery)
			for range 2 {
				ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return t.HandOver(e.ID, delivery, lease) })
				got := q.pending()[e.ID]
				if !ours || err != nil || got.Consumer != "w1" || got.RetryCount != want || got.Idle < lease || got.Idle > lease+10*time.Second {
					q.Errorf("delivery %d: written %v, %v, %+v", delivery, ours, err, got)
				}
			}
			_, n, err := q.as("w2").Claim(q.Context(), store.Claim{
				Pending: store.Pending{ID: e.ID, Deliveries: int(want)}, Least: lease,
			})
			if n != delivery || err != nil {
				q.Errorf("the next delivery is %d, not %d again: %v", n, delivery, err)
			}
		}
	})
}

// An outcome is written by the owner, once, or not at all.
func TestOutcomeOfAnEntryThatIsNotOurs(t *testing.T) {
	gone := map[string]func(q queue, id string){
		"another owner": func(q queue, id string) { q.owner(id, "w2", 0, 2) },
		"done": func(q queue, id string) {
			_, err := write(q.Context(), q.as("w2"), func(t *store.Trip) store.Reply { return done(t, id) })
			q.must(err)
		},
		"acknowledged, and still there": func(q queue, id string) {
			q.must(q.rdb.XAck(q.Context(), q.keys.Stream, store.Group, id).Err())
		},
		"never delivered": func(q queue, id string) {
			q.must(q.rdb.XGroupDestroy(q.Context(), q.keys.Stream, store.Group).Err())
			q.must(q.as("w1").MakeGroup(q.Context()))
		},
	}
	each(t, func(q queue) {
		for why, change := range gone {
			for name, outcome := range outcomes {
				q.sub(name+"/"+why, func(q queue) {
					e := q.running("w1")
					change(q, e.ID)
					q.unchanged(func() {
						ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcome(t, e.ID) })
						if ours || err != nil {
							q.Errorf("written %v, %v", ours, err)
						}
					})
				})
			}
		}
	})
}

func TestOutcomeWithoutAGroup(t *testing.T) {
	each(t, func(q queue) {
		for name, outcome := range outcomes {
			q.sub(name, func(q queue) {
				e := q.running("w1")
				q.must(q.rdb.XGroupDestroy(q.Context(), q.keys.Stream, store.Group).Err())
				_, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcome(t, e.ID) })
				if !store.NoGroup(err) || !store.Refused(err) {
					q.Errorf("the error is %v", err)
				}
			})
		}
	})
}

// Whoever is second finds that it is too late, whatever the first one wrote.
func TestOneOutcomeOfTwenty(t *testing.T) {
	each(t, func(q queue) {
		names := []string{"retry", "bury", "release"}
		for range 10 {
			e := q.running("w1")
			wins := crowd(20, func(i int) bool {
				outcome := outcomes[names[i%len(names)]]
				ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcome(t, e.ID) })
				if err != nil {
					q.Error(err)
				}
				return ours
			})
			left := q.rdb.XLen(q.Context(), q.keys.Stream).Val() + q.rdb.ZCard(q.Context(), q.keys.Delayed).Val() +
				q.rdb.XLen(q.Context(), q.keys.Dead).Val()
			if wins != 1 || left != 1 {
				q.Errorf("%d of 20 have written an outcome, the job is there %d times", wins, left)
			}
			q.must(q.rdb.Del(q.Context(), q.keys.Delayed, q.keys.Dead).Err())
			q.must(q.rdb.XTrimMaxLen(q.Context(), q.keys.Stream, 0).Err())
		}
	})
}

// What goes wrong is found before anything is taken away.
func TestOutcomeWhereAKeyHasTheWrongType(t *testing.T) {
	each(t, func(q queue) {
		for name, key := range map[string]string{"retry": "delayed", "bury": "jobs:dead"} {
			q.sub(name, func(q queue) {
				e := q.running("w1")
				q.must(q.rdb.Set(q.Context(), strings.TrimSuffix(q.keys.Stream, "jobs")+key, "x", 0).Err())
				q.unchanged(func() {
					ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcomes[name](t, e.ID) })
					if ours || !redis.HasErrorPrefix(err, "WRONGTYPE") || !strings.Contains(err.Error(), key) {
						q.Errorf("written %v, %v", ours, err)
					}
				})
			})
		}
	})
}

// Settling goes on while Redis refuses new data.
func TestOutcomeForWantOfMemory(t *testing.T) {
	t.Parallel()
	rdb := servers.NewRedis(t).Client(t)
	outcomes := outcomes
	for name, outcome := range outcomes {
		q := newQueue(t, rdb)
		e := q.running("w1")
		q.must(rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		ours, err := write(t.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcome(t, e.ID) })
		if !ours || err != nil {
			t.Errorf("%s: written %v, %v", name, ours, err)
		}
		q.must(rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}
}

// One outcome that is refused does not hold up the others, nor the fetch.
func TestEachReplyOfATripAnswersForItself(t *testing.T) {
	each(t, func(q queue) {
		ok, refused, late := q.running("w1"), q.running("w1"), q.running("w1")
		q.must(q.rdb.Set(q.Context(), q.keys.Delayed, "x", 0).Err())
		q.owner(late.ID, "w2", 0, 2)
		next := q.add("kind", "next")
		trip := q.as("w1").Trip(q.Context())
		good, bad, lost := trip.Done(ok.ID), outcomes["retry"](trip, refused.ID), outcomes["bury"](trip, late.ID)
		trip.Fetch(5)
		got, err := trip.Go()
		if err != nil || len(got) != 1 || got[0].ID != next {
			q.Errorf("fetched %v, %v", got, err)
		}
		type answer struct{ Ours, Error bool }
		answers := map[string]answer{}
		for name, reply := range map[string]store.Reply{"good": good, "bad": bad, "lost": lost} {
			ours, err := reply.Written()
			answers[name] = answer{ours, err != nil}
		}
		q.same(map[string]answer{"good": {true, false}, "bad": {false, true}, "lost": {false, false}}, answers)

		trip = q.as("w1").Trip(q.Context()) // one that fetches nothing has arrived, too
		bad = outcomes["retry"](trip, refused.ID)
		if got, err := trip.Go(); len(got) != 0 || err != nil {
			q.Errorf("fetched %v, %v", got, err)
		}
		if _, err := bad.Written(); err == nil {
			q.Error("written into a key of the wrong type")
		}
	})
}

// A lost reply leaves an outcome to be written again, which says that it is written.
func TestOutcomeWhoseReplyIsLost(t *testing.T) {
	each(t, func(q queue) {
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // with go-redis's own retries
		defer far.Close()
		s := q.over(far, "w1")
		e := q.running("w1")
		proxy.Swallow(servers.Command("eval"))
		trip := s.Trip(q.Context())
		reply := outcomes["retry"](trip, e.ID)
		if _, err := trip.Go(); err == nil || store.Refused(err) {
			q.Errorf("the trip says %v", err)
		}
		if _, err := reply.Written(); err == nil {
			q.Error("written, says a reply that never came")
		}
		if ours, err := write(q.Context(), s, func(t *store.Trip) store.Reply { return outcomes["retry"](t, e.ID) }); ours || err != nil {
			q.Errorf("the second time: written %v, %v", ours, err)
		}
		if n := q.rdb.ZCard(q.Context(), q.keys.Delayed).Val(); n != 1 {
			q.Errorf("%d are delayed", n)
		}
	})
}

// Bytes, CRLF and a million of them, by every arrow.
func TestValuesTravelUnchanged(t *testing.T) {
	each(t, func(q queue) {
		job := map[string]string{
			"kind": "render", "order_id": "9007199254740993", "empty": "", "space": " x ", "list": "[]",
			"": "no name", "bytes\xff\x00": "\x00\xff\r\n$5\r\n", "long": strings.Repeat("a", 1<<20),
		}
		e := q.running("w1", fields.Flatten(job)...)
		q.same(job, e.Fields)
		_, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return t.Retry(e.ID, e.Fields, 0) })
		q.must(err)
		members, err := q.as("w1").Due(q.Context(), q.clock().Add(time.Second), 10)
		q.must(err)
		if moved, err := q.as("w1").Promote(q.Context(), members); moved != 1 || err != nil {
			q.Fatalf("moved %d, %v", moved, err)
		}
		e = q.fetch("w1", 1)[0]
		q.owner(e.ID, "w1", time.Hour, 1)
		e, _, err = q.as("w2").Claim(q.Context(), store.Claim{Pending: store.Pending{ID: e.ID, Deliveries: 1}})
		q.must(err)
		q.same(job, e.Fields)
		_, err = write(q.Context(), q.as("w2"), func(t *store.Trip) store.Reply { return t.Bury(e.ID, e.Fields, 10) })
		q.must(err)
		letters := q.entries(q.keys.Dead)
		if diff := cmp.Diff([]map[string]string{job}, letters); diff != "" {
			q.Error(diff)
		}
		newest, err := q.as("w2").NewestDead(q.Context())
		q.must(err)
		replayed, err := q.as("w2").Replay(q.Context(), []store.Replayed{{Entry: store.Entry{ID: newest, Fields: letters[0]}}})
		q.must(err)
		q.same([]bool{true}, replayed)
		q.same(job, q.fetch("w1", 1)[0].Fields)
	})
}

// Somebody has deleted the entry while it ran: the job is still ours, and is not lost.
func TestOutcomeOfABodyThatIsGone(t *testing.T) {
	each(t, func(q queue) {
		for name, left := range map[string]string{"retry": "delayed", "bury": "jobs:dead", "release": "jobs"} {
			q.sub(name, func(q queue) {
				e := q.running("w1")
				q.must(q.rdb.XDel(q.Context(), q.keys.Stream, e.ID).Err())
				ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return outcomes[name](t, e.ID) })
				if !ours || err != nil || len(q.pending()) != 0 {
					q.Errorf("written %v, %v, pending %v", ours, err, q.pending())
				}
				n := map[string]int64{
					"delayed":   q.rdb.ZCard(q.Context(), q.keys.Delayed).Val(),
					"jobs:dead": q.rdb.XLen(q.Context(), q.keys.Dead).Val(),
					"jobs":      q.rdb.XLen(q.Context(), q.keys.Stream).Val(),
				}
				if n[left] != 1 {
					q.Errorf("the job is not in %s: %v", left, n)
				}
			})
		}
	})
}

// What cannot be written again is not taken away: a job may have more fields than a script can hand on.
func TestReleaseOfTooManyFields(t *testing.T) {
	each(t, func(q queue) {
		pairs := []string{"kind", "render"}
		for i := range 4100 {
			pairs = append(pairs, strconv.Itoa(i), "x")
		}
		e := q.running("w1", pairs...)
		q.unchanged(func() {
			ours, err := write(q.Context(), q.as("w1"), func(t *store.Trip) store.Reply { return t.Release(e.ID, e.Fields) })
			if ours || !store.Refused(err) {
				q.Errorf("written %v, %v", ours, err)
			}
		})
	})
}

// Nor where a right was taken away since the worker began.
func TestReleaseWithoutTheRight(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	q := newQueue(t, server.Client(t))
	e := q.running("w1")
	for _, command := range []string{"xadd", "xack"} {
		q.unchanged(func() {
			err := q.with(server, []string{"~*", "+@all", "-" + command}, func(rdb *redis.Client) error {
				_, err := write(t.Context(), q.over(rdb, "w1"), func(t *store.Trip) store.Reply { return outcomes["release"](t, e.ID) })
				return err
			})
			if !store.Forbidden(err) {
				t.Errorf("without %s: %v", command, err)
			}
		})
	}
}
