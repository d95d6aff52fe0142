package store_test

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// A page of large entries ends early, so that no script holds Redis up for long.
func TestKindsOfLargeEntries(t *testing.T) {
	each(t, func(q queue) {
		const n = 30
		large := strings.Repeat("x", 512<<10)
		for i := range n {
			q.must(q.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: q.keys.Stream, Values: []string{"text", large, "kind", fmt.Sprint("k", i)}}).Err())
		}
		proxy := servers.NewProxy(q, q.rdb.Options().Addr)
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		defer rdb.Close()
		var scripts atomic.Int64
		proxy.Hook(func(cmd []string) servers.Action {
			if strings.EqualFold(cmd[0], "eval") {
				scripts.Add(1)
			}
			return servers.Pass
		})
		var got []string
		q.must(q.over(rdb, "").EachKind(t.Context(), func(kind, _ string, where int) {
			if where == store.IsReady {
				got = append(got, kind)
			}
		}))
		if scripts.Load() < n/4 {
			q.Errorf("%d scripts for %d entries of half a megabyte", scripts.Load(), n)
		}
		for i, kind := range got {
			if kind != fmt.Sprint("k", i) || len(got) != n {
				q.Fatalf("kinds %v", got)
			}
		}
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
