package store_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// delay puts a job into delayed from outside.
func (q queue) delay(due float64, name string) store.Member {
	q.Helper()
	job := map[string]string{"kind": "render", "name": name}
	m := store.Member{Raw: fields.Member(job), Fields: job}
	q.must(q.rdb.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: due, Member: m.Raw}).Err())
	return m
}

// names are the jobs on the stream, in their order.
func (q queue) names() []string {
	q.Helper()
	names := []string{}
	for _, job := range q.entries(q.keys.Stream) {
		names = append(names, job["name"])
	}
	return names
}

// What is moved is decided on the score as it is, and not as it was read.
func TestPromote(t *testing.T) {
	each(t, func(q queue) {
		now := seconds(q.clock())
		members := []store.Member{
			q.delay(now-1, "due"), q.delay(now+3600, "later"), q.delay(math.Inf(-1), "at all times"),
			q.delay(math.Inf(1), "never"), q.delay(-5, "long ago"), q.delay(now-1, "cancelled"),
			q.delay(now-1, "put off"),
		}
		q.must(q.rdb.ZRem(q.Context(), q.keys.Delayed, members[5].Raw).Err())
		q.delay(now+3600, "put off")
		moved, err := q.as("w1").Promote(q.Context(), members)
		if moved != 3 || err != nil {
			q.Errorf("moved %d, %v", moved, err)
		}
		q.same([]string{"due", "at all times", "long ago"}, q.names())
		for i, m := range members {
			ok, err := q.as("").RunNow(q.Context(), m, store.Record{What: "run now"})
			if q.must(err); ok != (i == 1 || i == 3 || i == 6) {
				q.Errorf("member %d moved by hand: %v", i, ok)
			}
		}
		q.same([]string{"due", "at all times", "long ago", "later", "never", "put off"}, q.names())
		if n := q.rdb.ZCard(q.Context(), q.keys.Delayed).Val(); n != 0 {
			q.Errorf("%d are left", n)
		}
	})
}

// Not by a fraction of a second.
func TestPromoteIsNeverEarly(t *testing.T) {
	each(t, func(q queue) {
		for range 20 {
			due := q.clock().Add(3 * time.Millisecond)
			m := q.delay(seconds(due), strconv.Itoa(due.Nanosecond()))
			for moved := 0; moved == 0; {
				var err error
				moved, err = q.as("w1").Promote(q.Context(), []store.Member{m})
				q.must(err)
				if now := q.clock(); moved == 1 && now.Before(due) {
					q.Fatalf("moved before %s, %s early", now, due.Sub(now))
				}
			}
		}
	})
}

// Several megabytes of jobs go as several scripts.
func TestPromoteMuch(t *testing.T) {
	each(t, func(q queue) {
		var members []store.Member
		for i := range 5 {
			members = append(members, q.delay(1, fmt.Sprint(i, strings.Repeat("x", 1<<20))))
		}
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		var longest int
		proxy.Hook(func(cmd []string) servers.Action {
			n := 0
			for _, arg := range cmd {
				n += len(arg)
			}
			longest = max(longest, n)
			return servers.Pass
		})
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		defer far.Close()
		moved, err := q.over(far, "w1").Promote(q.Context(), members)
		if longest > 4<<20 {
			q.Errorf("a command of %d bytes", longest)
		}
		if names := q.names(); moved != 5 || err != nil || len(names) != 5 || len(names[4]) != 1<<20+1 {
			q.Errorf("moved %d, %v", moved, err)
		}
	})
}

func TestPromoteByTwenty(t *testing.T) {
	each(t, func(q queue) {
		var members []store.Member
		for i := range 50 {
			members = append(members, q.delay(1, fmt.Sprint(i)))
		}
		total := make(chan int, 20)
		crowd(20, func(i int) bool {
			moved, err := q.as(fmt.Sprint("w", i)).Promote(q.Context(), members)
			if err != nil {
				q.Error(err)
			}
			total <- moved
			return true
		})
		sum := 0
		for range 20 {
			sum += <-total
		}
		if names := q.names(); sum != 50 || len(names) != 50 {
			q.Errorf("%d moved, %d on the stream", sum, len(names))
		}
	})
}

func TestPromoteWhereTheStreamIsNone(t *testing.T) {
	each(t, func(q queue) {
		m := q.delay(1, "due")
		q.must(q.rdb.Set(q.Context(), q.keys.Stream, "x", 0).Err())
		q.unchanged(func() {
			if moved, err := q.as("w1").Promote(q.Context(), []store.Member{m}); moved != 0 || !redis.HasErrorPrefix(err, "WRONGTYPE") {
				q.Errorf("moved %d, %v", moved, err)
			}
		})
	})
}

func TestBuryMember(t *testing.T) {
	each(t, func(q queue) {
		m := store.Member{Raw: "not-a-job\xff"}
		q.must(q.rdb.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: 1, Member: m.Raw}).Err())
		letter := map[string]string{"raw": m.Raw, "error": "no job"}
		bury := func() (string, int64, error) { return q.as("w1").BuryMember(q.Context(), m, 10, letter) }

		q.must(q.rdb.Set(q.Context(), q.keys.Dead, "x", 0).Err())
		q.unchanged(func() {
			if entry, _, err := bury(); entry != "" || !redis.HasErrorPrefix(err, "WRONGTYPE") {
				q.Errorf("buried as %q, %v", entry, err)
			}
		})
		q.must(q.rdb.Del(q.Context(), q.keys.Dead).Err())

		wins := crowd(20, func(int) bool {
			entry, _, err := bury()
			if err != nil {
				q.Error(err)
			}
			return entry != ""
		})
		if wins != 1 {
			q.Errorf("%d of 20 have buried it", wins)
		}
		q.same([]map[string]string{letter}, q.entries(q.keys.Dead))
	})
}

// The oldest dead letters fall out, whichever way the newest came.
func TestBuryMemberKeepsSoMany(t *testing.T) {
	each(t, func(q queue) {
		for range 3 {
			q.dead("old")
		}
		m := store.Member{Raw: "not-a-job"}
		q.must(q.rdb.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: 1, Member: m.Raw}).Err())
		_, dropped, err := q.as("w1").BuryMember(q.Context(), m, 2, map[string]string{"raw": m.Raw})
		if n := q.rdb.XLen(q.Context(), q.keys.Dead).Val(); dropped != 2 || n != 2 || err != nil {
			q.Errorf("%d dropped, %d kept, %v", dropped, n, err)
		}
	})
}

// Rows of an outbox that are no jobs: all in one trip, in their order, as many kept as are to be.
func TestBuryRows(t *testing.T) {
	each(t, func(q queue) {
		letters := []map[string]string{
			{"kind": "x", "raw": "\xff\x00", "error": "no job", "traceback": ""},
			{"raw": "", "error": "nor this"},
			{"raw": "{}", "error": "nor that"},
		}
		rdb, trips := q.countingTrips()
		dropped, err := q.over(rdb, "w1").BuryRows(q.Context(), 3, letters)
		if dropped != 0 || err != nil || trips.n != 1 {
			q.Errorf("%d dropped, %v, after %d trips", dropped, err, trips.n)
		}
		q.same(letters, q.entries(q.keys.Dead))

		dropped, err = q.as("w1").BuryRows(q.Context(), 2, letters[:2])
		if dropped != 3 || err != nil {
			q.Errorf("%d dropped, %v", dropped, err)
		}
		q.same(letters[:2], q.entries(q.keys.Dead))
	})
}

func TestBuryRowsThatIsRefused(t *testing.T) {
	each(t, func(q queue) {
		q.must(q.rdb.Set(q.Context(), q.keys.Dead, "x", 0).Err())
		q.unchanged(func() {
			_, err := q.as("w1").BuryRows(q.Context(), 10, []map[string]string{{"raw": "a"}, {"raw": "b"}})
			if !redis.HasErrorPrefix(err, "WRONGTYPE") {
				q.Errorf("buried, %v", err)
			}
		})
	})
}

func TestBuryRowsForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t))
	q.must(q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	q.unchanged(func() {
		_, err := q.as("w1").BuryRows(t.Context(), 10, []map[string]string{{"raw": "a"}, {"raw": "b"}})
		if !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("buried, %v", err)
		}
	})
}

// The client does not send again by itself what it has had no answer to.
func TestBuryRowsWhoseReplyIsLost(t *testing.T) {
	each(t, func(q queue) {
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		far := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // with its default retries
		defer far.Close()
		swallowed := proxy.Swallow(func(cmd []string) bool { return strings.EqualFold(cmd[0], "eval") })
		_, err := q.over(far, "w1").BuryRows(q.Context(), 10, []map[string]string{{"raw": "a"}, {"raw": "b"}})
		<-swallowed
		if err == nil {
			q.Error("an answer came")
		}
		in := map[string]int{}
		for _, e := range q.entries(q.keys.Dead) {
			in[e["raw"]]++
		}
		if in["a"] != 1 || in["b"] > 1 {
			q.Errorf("there are %v", in)
		}
	})
}

func TestDueAndEarliest(t *testing.T) {
	each(t, func(q queue) {
		if _, due, err := q.as("w1").Earliest(q.Context()); !due.IsZero() || err != nil {
			q.Errorf("nothing is due at %s, %v", due, err)
		}
		q.delay(2000.25, "second")
		q.delay(1000.5, "first")
		q.delay(3000, "third")
		q.must(q.rdb.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: 1500, Member: "rubbish"}).Err())
		now, due, err := q.as("w1").Earliest(q.Context())
		if !due.Equal(time.Unix(1000, 5e8)) || time.Since(now).Abs() > time.Minute || err != nil {
			q.Errorf("due at %s, at %s, %v", due, now, err)
		}
		members, err := q.as("w1").Due(q.Context(), time.Unix(2000, 25e7), 10)
		q.must(err)
		got := map[string]bool{}
		for _, m := range members {
			got[m.Fields["name"]] = m.Err == nil
		}
		q.same(map[string]bool{"first": true, "second": true, "": false}, got)
		members, err = q.as("w1").Due(q.Context(), time.Unix(4000, 0), 2)
		if len(members) != 2 || members[0].Fields["name"] != "first" || err != nil {
			q.Errorf("two of them: %v, %v", members, err)
		}
	})
}

// What could not become an entry is no job.
func TestMembersThatAreNoJobs(t *testing.T) {
	many := map[string]string{}
	for i := range store.MaxFields + 1 {
		many[fmt.Sprint("f", i)] = "x"
	}
	each(t, func(q queue) {
		for _, raw := range []string{"", "not-a-job", "{}", "[]", fields.Member(many)} {
			q.must(q.rdb.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: 1, Member: raw}).Err())
		}
		members, err := q.as("w1").Due(q.Context(), time.Unix(2, 0), 10)
		q.must(err)
		for _, m := range members {
			if m.Err == nil {
				q.Errorf("a job: %.40q", m.Raw)
			}
		}
		if len(members) != 5 {
			q.Errorf("%d members", len(members))
		}
	})
}

func TestScanAndList(t *testing.T) {
	each(t, func(q queue) {
		const n = 1200
		pipe := q.rdb.Pipeline()
		for i := range n {
			pipe.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: float64(i), Member: fields.Member(map[string]string{"kind": "k", "i": strconv.Itoa(i)})})
		}
		_, err := pipe.Exec(q.Context())
		q.must(err)
		seen, last := 0, time.Time{}
		q.must(q.as("").Delayed(q.Context(), func(page []store.Member) bool {
			for _, m := range page {
				if m.Due.Before(last) {
					q.Errorf("%s after %s", m.Due, last)
				}
				last = m.Due
				seen++
			}
			return true
		}))
		ids := map[string]bool{}
		q.must(q.as("").Scan(q.Context(), "", func(page []store.Member) error {
			for _, m := range page {
				ids[m.Fields["i"]] = true
			}
			return nil
		}))
		if seen != n || len(ids) != n {
			q.Errorf("listed %d, scanned %d of %d", seen, len(ids), n)
		}
		stop := errors.New("enough")
		if err := q.as("").Scan(q.Context(), "", func([]store.Member) error { return stop }); err != stop {
			q.Errorf("a scan that was stopped says %v", err)
		}
	})
}

// What may be the job is found however its ID is written; most of the rest is not read at all.
func TestScanForAnID(t *testing.T) {
	each(t, func(q queue) {
		const id = "a-\"quoted\"-id\xff"
		for i, member := range []string{
			fields.Member(map[string]string{"kind": "base64", "job_id": id}),
			`{"kind":"plain","job_id":"a-b"}`,
			`{"kind":"escaped","job_id":"\u0061\u002db"}`,
			`{"kind":"another","job_id":"c"}`,
		} {
			q.must(q.rdb.ZAdd(q.Context(), q.keys.Delayed, redis.Z{Score: float64(i), Member: member}).Err())
		}
		for id, want := range map[string]string{id: "base64 escaped", "a-b": "base64 escaped plain", "c": "another base64 escaped"} {
			var got []string
			q.must(q.as("").Scan(q.Context(), id, func(page []store.Member) error {
				for _, m := range page {
					got = append(got, m.Fields["kind"])
				}
				return nil
			}))
			if slices.Sort(got); strings.Join(got, " ") != want {
				q.Errorf("%q: %v, want %s", id, got, want)
			}
		}
	})
}

func TestCancel(t *testing.T) {
	each(t, func(q queue) {
		m := q.delay(1, "x")
		if wins := crowd(20, func(int) bool {
			ok, err := q.as("").Cancel(q.Context(), m, store.Record{What: "cancel"})
			return ok && err == nil
		}); wins != 1 {
			q.Errorf("%d of 20 have cancelled it", wins)
		}
	})
}
