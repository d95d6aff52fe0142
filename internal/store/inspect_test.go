package store_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// A page of large entries ends early, so that no script holds Redis up for long.
func TestPagesOfLargeEntries(t *testing.T) {
	each(t, func(q queue) {
		const n = 30
		large := strings.Repeat("x", 512<<10)
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint("k", i))
			q.running("w1", "text", large, "kind", want[i])
		}
		rdb, trips := q.countingTrips()
		check := func(name string, got []string, err error) {
			q.must(err)
			q.same(want, got)
			if trips.n < n/4 {
				q.Errorf("%s: %d scripts for %d entries of half a megabyte", name, trips.n, n)
			}
			trips.n = 0
		}
		var kinds, idle []string
		err := q.over(rdb, "").EachKind(q.Context(), func(kind, _ string, where int) { kinds = append(kinds, kind) })
		check("kinds", kinds, err)
		err = q.over(rdb, "").Idle(q.Context(), 0, func(page []store.Pending) error {
			for _, p := range page {
				idle = append(idle, p.Kind)
			}
			return nil
		})
		check("a sweep", idle, err)
	})
}

// Whole mailing lists are due at one time: a place among them is found again, wherever a page ends.
func TestDelayedFromAmongEquals(t *testing.T) {
	each(t, func(q queue) {
		s := q.as("")
		var want []string
		add := func(score float64, n int) {
			for range n {
				member := fmt.Sprintf("%04d", len(want))
				q.must(q.rdb.ZAdd(t.Context(), q.keys.Delayed, redis.Z{Score: score, Member: member}).Err())
				want = append(want, member)
			}
		}
		add(math.Inf(-1), 2)
		add(1.25, 3)
		add(1700000000.123456, 250)
		add(1700000001, 120)
		add(math.Inf(1), 1)
		var places []store.Place
		from := func(p store.Place) (got []string) {
			q.must(s.DelayedFrom(t.Context(), p, func(page []store.Member, at []store.Place) bool {
				for i, m := range page {
					got = append(got, m.Raw)
					if len(places) < len(want) {
						places = append(places, at[i])
					}
				}
				return true
			}))
			return got
		}
		if got := from(store.Place{Score: math.Inf(-1)}); fmt.Sprint(got) != fmt.Sprint(want) {
			q.Fatalf("in all %v", got)
		}
		for i, p := range places {
			if got := from(p); fmt.Sprint(got) != fmt.Sprint(want[i+1:]) {
				q.Fatalf("behind %d, at %+v: %v", i, p, got)
			}
		}
	})
}

// Who may do a part of it only changes nothing: no job is taken away and not put back, none is put back and stays.
func TestWhatIsDoneByHandWithoutARight(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	rdb, r := server.Client(t), store.Record{Who: "marek", What: "by hand"}
	for name, c := range map[string]struct {
		rights []string
		do     func(s *store.Store, m store.Member, letter string) (bool, error)
	}{
		"run now": {[]string{"xadd", "zrem", "zscore"}, func(s *store.Store, m store.Member, _ string) (bool, error) { return s.RunNow(t.Context(), m, r) }},
		"cancel":  {[]string{"xadd", "zrem", "zscore"}, func(s *store.Store, m store.Member, _ string) (bool, error) { return s.Cancel(t.Context(), m, r) }},
		"discard": {[]string{"xadd", "xdel", "xrange"}, func(s *store.Store, _ store.Member, letter string) (bool, error) {
			return s.Discard(t.Context(), letter, r)
		}},
	} {
		q := newQueue(t, rdb)
		m, letter := q.delay(5e9, "x"), q.dead("x").ID
		for _, right := range c.rights {
			q.unchanged(func() {
				err := q.with(server, []string{"~*", "+@all", "-" + right}, func(rdb *redis.Client) error {
					_, err := c.do(q.over(rdb, ""), m, letter)
					return err
				})
				if !store.Forbidden(err) {
					t.Errorf("%s without %s: %v", name, right, err)
				}
			})
		}
		for _, want := range []bool{true, false} {
			if ok, err := c.do(q.as(""), m, letter); ok != want || err != nil {
				t.Errorf("%s: %v, %v; want %v", name, ok, err, want)
			}
		}
	}
}
