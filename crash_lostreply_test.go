//go:build !race

package jobs_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/crashes"
	"github.com/stagedoor/jobs/internal/servers"
)

// TestLostReplies loses the reply to every command that a process sends, one at a time, on every arrow in the life of a
// job: Redis has run it, the connection is cut, and the process lives on. Its client resends what it likes, as a
// client does by default. One Enqueue remains one entry, one tick one entry, one outcome one outcome; and since nobody
// dies, nothing runs twice at all, and no delivery is counted but those that there were.
//
// The commands are those that pass on the wire.
func TestLostReplies(t *testing.T) {
	names, err := crashes.Names("internal/store")
	must(t, err)
	h := newHarness(names, preparation(t, names))
	t.Run("on", func(t *testing.T) {
		room := room()
		t.Run("miniredis", func(t *testing.T) {
			t.Parallel()
			h.everywhere(t, func(t *testing.T, a arrow, at crashes.Point) (crashes.Verdict, passage) {
				m, err := servers.StartMiniredis()
				must(t, err)
				return h.lossy(t, a, at, m.Addr(), m.Close)
			}, outer, room)
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			server := servers.NewRedis(t)
			h.everywhere(t, func(t *testing.T, a arrow, at crashes.Point) (crashes.Verdict, passage) {
				return h.lossy(t, a, at, server.Addr(), func() {})
			}, outer, room)
			h.ending.Wait()
		})
	})
	h.ending.Wait()
	h.conclude(t, "lost replies")
}

// outer are the points without those in the middle of many that are alike, which are the jobs of one transaction.
func outer(points []crashes.Point) []crashes.Point {
	const many = 20
	var chosen []crashes.Point
	for i, p := range points {
		before, after := points[max(0, i-many)], points[min(i+many, len(points)-1)]
		if before.Command != p.Command || after.Command != p.Command || after.Nth-before.Nth != 2*many {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// lossy plays with a victim whose way to the server loses a reply.
func (h *harness) lossy(t *testing.T, a arrow, at crashes.Point, addr string, after func()) (crashes.Verdict, passage) {
	proxy, err := servers.StartProxy(addr)
	must(t, err)
	l := &loser{names: h.names, skip: h.preparation, at: at, seen: map[string]int{}}
	if a.whole {
		l.skip = 0
	}
	proxy.Hook(l.decide)
	w := h.world(t, a, crashes.Point{}, &redis.Options{Addr: addr, ReadTimeout: patience}, servers.Prefix(t))
	w.name, w.lossy, w.struck = a.name+", lost "+at.String(), true, l.Struck
	w.line = func() *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		w.ended = append(w.ended, func() { _ = rdb.Close() })
		return rdb
	}
	w.ended = append([]func(){after, func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	}}, w.ended...)
	defer h.ending.Go(w.clear)
	return w.play(a, at), l
}

// A loser loses the reply to one command.
type loser struct {
	names func([]string) string
	skip  int
	at    crashes.Point

	mu     sync.Mutex
	sent   int
	seen   map[string]int
	points []crashes.Point
	struck bool
}

func (l *loser) decide(cmd []string) servers.Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.names(cmd)
	if name == "" {
		return servers.Pass
	}
	if l.sent++; l.sent <= l.skip {
		return servers.Pass
	}
	l.seen[name]++
	point := crashes.Point{Command: name, Nth: l.seen[name], After: true}
	l.points = append(l.points, point)
	if point != l.at {
		return servers.Pass
	}
	l.struck = true
	return servers.SwallowReply
}

func (l *loser) Points() []crashes.Point {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.points)
}

func (l *loser) Struck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.struck
}
