//go:build !race

package jobs_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/crashes"
	"github.com/stagedoor/jobs/internal/pipe"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// TestCrashPoints lets a process die at every command that it sends, before it is sent and after Redis has run it, on
// every arrow in the life of a job, and looks whether others then bring each job to its one right end. The points are
// found by watching the process live: a command that is new is covered too. How a worker prepares itself is one arrow,
// and left out of the others.
//
// On miniredis a run is a bubble of its own with a clock of its own; on Redis runs are many at once. They are thousands
// of workers with leases of a second, too many for the race detector: this and TestLostReplies are built without it.
func TestCrashPoints(t *testing.T) {
	names, err := crashes.Names("internal/store")
	must(t, err)
	h := newHarness(names, preparation(t, names))
	t.Run("on", func(t *testing.T) {
		t.Run("miniredis", func(t *testing.T) {
			t.Parallel()
			h.everywhere(t, h.inBubble, both, nil)
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			server := servers.NewRedis(t)
			h.everywhere(t, h.onRedis(server.Addr()), both, room())
		})
	})
	h.ending.Wait()
	h.conclude(t, "crash points")
}

// harness tries points and adds up.
type harness struct {
	names       func([]string) string
	preparation int
	ending      sync.WaitGroup // of what the runs leave behind

	mu     sync.Mutex
	points int
	known  map[string]bool // commands, each before and after
	hits   map[string]int  // of these
	sum    crashes.Verdict
}

func newHarness(names func([]string) string, preparation int) *harness {
	return &harness{names: names, preparation: preparation, known: map[string]bool{}, hits: map[string]int{}}
}

// conclude says what it came to.
func (h *harness) conclude(t *testing.T, points string) {
	for name := range h.known {
		if h.hits[name] == 0 {
			t.Errorf("%s: never came to %s", points, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.hits)) {
		t.Logf("%4d times %s", h.hits[name], name)
	}
	fmt.Printf("%s: %d, jobs: %d, lost: %d, unexplained doubles: %d, wrong dead letters: %d\n",
		points, h.points, h.sum.Jobs, h.sum.Lost, h.sum.Doubled, h.sum.Wrong)
	if h.sum.Lost+h.sum.Doubled+h.sum.Wrong > 0 {
		t.Error("see above")
	}
}

// preparation is how many commands a worker sends before it begins.
func preparation(t *testing.T, names func([]string) string) int {
	p := crashes.NewProcess(names, 0, crashes.Point{})
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(p)
	must(t, store.New(rdb, "").As("worker").Prepare(t.Context()))
	return len(p.Points())
}

// A site is where a scenario can be played: with a victim to which something happens at a point. The zero point is none.
type site func(t *testing.T, a arrow, at crashes.Point) (crashes.Verdict, passage)

// passage is what a victim has come past.
type passage interface {
	Points() []crashes.Point
	Struck() bool // it happened
}

// everywhere tries all points of all arrows: those that the victim comes past where nothing happens to it. With room, so
// many at once as it has.
func (h *harness) everywhere(t *testing.T, on site, points func([]crashes.Point) []crashes.Point, room chan struct{}) {
	var all sync.WaitGroup
	for _, a := range arrows {
		play := func() {
			t.Run(a.name, func(t *testing.T) { h.along(t, on, a, points, room) })
		}
		if room == nil {
			play()
			continue
		}
		all.Go(play) // and not t.Parallel, which knows nothing of room
	}
	all.Wait()
}

func (h *harness) along(t *testing.T, on site, a arrow, points func([]crashes.Point) []crashes.Point, room chan struct{}) {
	v, p := on(t, a, crashes.Point{})
	h.add(t, a, crashes.Point{}, v)
	if len(p.Points()) == 0 {
		t.Error("the victim sends nothing")
	}
	var tried sync.WaitGroup
	for _, point := range h.meet(points(p.Points())) {
		if room == nil {
			h.try(t, on, a, point)
			continue
		}
		room <- struct{}{}
		tried.Go(func() {
			defer func() { <-room }()
			h.try(t, on, a, point)
		})
	}
	tried.Wait()
}

// room is for so many runs as keep a processor or two busy: they wait more than they work.
func room() chan struct{} {
	return make(chan struct{}, 150)
}

// meet notes which commands there are: each must be hit somewhere.
func (h *harness) meet(points []crashes.Point) []crashes.Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range points {
		h.known[p.Name()] = true
	}
	return points
}

// both are the points before and after each.
func both(points []crashes.Point) []crashes.Point {
	all := make([]crashes.Point, 0, 2*len(points))
	for _, p := range points {
		all = append(all, p)
		p.After = true
		all = append(all, p)
	}
	return all
}

// try plays until the victim has died at the point. How often some commands are sent is a matter of chance (outcomes
// that are written one by one or together, say), so that a point may not come again.
func (h *harness) try(t *testing.T, on site, a arrow, at crashes.Point) {
	for range 3 {
		v, p := on(t, a, at)
		h.add(t, a, at, v)
		if p.Struck() {
			h.struck(at)
			return
		}
	}
	t.Logf("%s: does not come again: %s", a.name, at)
}

func (h *harness) struck(at crashes.Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.points++
	h.hits[at.Name()]++
}

func (h *harness) add(t *testing.T, a arrow, at crashes.Point, v crashes.Verdict) {
	for _, note := range v.Notes {
		t.Errorf("%s, %s: %s", a.name, at, note)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sum.Jobs += v.Jobs
	h.sum.Lost += v.Lost
	h.sum.Doubled += v.Doubled
	h.sum.Wrong += v.Wrong
}

// world returns what a scenario is played in.
func (h *harness) world(t *testing.T, a arrow, at crashes.Point, o *redis.Options, prefix string) *world {
	skip := h.preparation
	if a.whole {
		skip = 0
	}
	w := &world{
		t: t, name: a.name + ", " + at.String(), prefix: prefix, lease: time.Second, options: o,
		victim: crashes.NewProcess(h.names, skip, at), others: crashes.NewProcess(h.names, 0, crashes.Point{}),
		entries: map[string]string{},
	}
	w.line, w.struck = w.dial, w.victim.Struck
	w.rdb = w.dial()
	w.client = jobs.NewClient(w.rdb, jobs.Options{Prefix: prefix})
	return w
}

// inBubble plays on a miniredis whose clock, like every other, goes only while nobody works.
func (h *harness) inBubble(t *testing.T, a arrow, at crashes.Point) (v crashes.Verdict, p passage) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		w := h.world(t, a, at, bubbled(m), "")
		defer w.clear()
		p = w.victim
		v = w.play(a, at)
	})
	return v, p
}

// bubbled are options of a client without a network.
func bubbled(m *miniredis.Miniredis) *redis.Options {
	return &redis.Options{
		Addr: "127.0.0.1:1", // never dialled: no name is to be resolved
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return pipe.Buffered(c), nil
		},
	}
}

// onRedis plays on a real Redis, under a prefix of its own.
func (h *harness) onRedis(addr string) site {
	return func(t *testing.T, a arrow, at crashes.Point) (crashes.Verdict, passage) {
		w := h.world(t, a, at, &redis.Options{Addr: addr, ReadTimeout: patience}, servers.Prefix(t))
		defer h.ending.Go(w.clear)
		return w.play(a, at), w.victim
	}
}
