package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// onCluster is a queue on a cluster, with a client of the cluster's as an application has
// it. The test itself looks at the one server that holds the tag.
func onCluster(t testing.TB, c *servers.Cluster, tag string) *queue {
	t.Helper()
	prefix := "{" + tag + "}:"
	owner, err := c.Owner(t.Context(), prefix)
	must(t, err)
	q := newQueue(t, owner.Client(t), prefix)
	q.worker = c.Client(t)
	q.Client = jobs.NewClient(q.worker, jobs.Options{Prefix: prefix})
	return q
}

func TestClusterWholeLife(t *testing.T) {
	t.Parallel()
	q := onCluster(t, servers.SharedCluster(t), "stagedoor")
	ctx := t.Context()
	var rs runs
	q.orphan("killed", time.Minute, 1, render.Job(ticket{4469, "14B"}))
	orphan := once.Job(nil)
	q.orphan("also killed", time.Minute, 1, orphan)
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(time.Second)),
		handle(render, func(ctx context.Context, args ticket) error {
			rs.add(ctx)
			if args.Seat == "14-C" {
				return fmt.Errorf("render: %w", errSeat)
			}
			return nil
		}))

	single, later := once.Job(nil), once.Job(nil)
	cancelled, hurried := once.Job(nil), once.Job(nil)
	bad := render.Job(ticket{4471, "14-C"})
	batch := append(many(20), later.In(300*time.Millisecond), cancelled.In(time.Hour), hurried.At(q.now().Add(time.Hour)), bad)
	q.enqueue(single)
	q.enqueue(batch...)
	if all := q.delayed(); len(all) < 2 || all[len(all)-1].ID != hurried.ID && all[len(all)-2].ID != hurried.ID {
		t.Errorf("delayed: %+v", all)
	}
	must(t, q.Delayed().Cancel(ctx, cancelled.ID))
	must(t, q.Delayed().RunNow(ctx, hurried.ID))
	if err := q.Delayed().Cancel(ctx, cancelled.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("cancelled again: %v", err)
	}

	letter := q.awaitDead(1)[0]
	if letter.ID != bad.ID || letter.Attempts != 2 {
		t.Errorf("dead: %+v", letter)
	}
	if n, err := q.DeadLetters().ReplayAll(ctx, jobs.Filter{Kind: "render_tickets"}, jobs.ReplayOptions{}); n != 1 || err != nil {
		t.Errorf("replayed %d: %v", n, err)
	}
	letter = q.awaitDead(1)[0]
	must(t, q.DeadLetters().Replay(ctx, letter.Entry, jobs.ReplayOptions{Set: jobs.Fields{"seat": "14C"}}))
	eventually(t, "all have run, and two ticks", func() bool {
		return rs.of(bad.ID) == 5 && rs.of(later.ID) == 1 && rs.of(orphan.ID) == 1 && len(rs.ticks()) > 2
	})
	for _, j := range append(batch[:20:20], single, hurried) {
		eventually(t, "job "+j.ID+" has run", func() bool { return rs.of(j.ID) == 1 })
	}
	q.idle()
	if st := q.stats(); st.Delayed+st.Dead != 0 || rs.of(cancelled.ID) != 0 {
		t.Errorf("left %+v; the cancelled job ran %d times", st, rs.of(cancelled.ID))
	}
	for tick, n := range rs.ticks() {
		if n > 1 && strings.HasPrefix(tick, "beat ") {
			t.Errorf("tick %s ran %d times", tick, n)
		}
	}
}

// While a slot moves from server to server, and after it has, jobs go on: each that was
// enqueued runs once, each that was refused does not, and nothing is uncertain.
func TestClusterMovesTheQueue(t *testing.T) {
	t.Parallel()
	c := servers.NewCluster(t)
	q := onCluster(t, c, "moving")
	var rs runs
	flaky := jobs.NewKind[jobs.Fields]("flaky", jobs.Policy{Retries: 1, Backoff: soon})
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(time.Second)),
		handle(flaky, func(ctx context.Context, _ jobs.Fields) error {
			if rs.add(ctx).Attempts == 0 {
				return errSeat
			}
			return nil
		}))

	want := map[string]int{}
	refused := 0
	enqueue := func(js ...jobs.Job) {
		err := q.Enqueue(t.Context(), js...)
		var failed *jobs.EnqueueError
		if errors.As(err, &failed) && (failed.Queued > 0 || failed.Uncertain > 0 || len(js) == 1) {
			t.Errorf("%d jobs: %v", len(js), err)
		}
		for _, j := range js {
			want[j.ID] = 1
			if j.Kind == "flaky" {
				want[j.ID] = 2
			}
			if err != nil {
				want[j.ID] = 0
			}
		}
		if err != nil {
			refused++
		}
	}
	load := func() {
		enqueue(once.Job(nil))
		enqueue(flaky.Job(nil))
		enqueue(once.Job(nil).In(50 * time.Millisecond))
		enqueue(once.Job(nil), once.Job(nil).In(100*time.Millisecond), flaky.Job(nil))
	}
	load()
	q.enqueue(once.Job(nil).In(time.Hour)) // so that delayed is there to be moved
	rs.wait(t, 1)
	for _, to := range c.Nodes {
		must(t, c.Move(t.Context(), q.prefix, to, func() {
			for range 5 {
				load()
			}
		}))
		before := len(rs.all())
		load()
		eventually(t, "jobs go on after the move", func() bool { return len(rs.all()) > before+3 })
	}
	eventually(t, "all is settled but the one of the next hour", func() bool {
		st := q.stats()
		return st.Ready+st.Running == 0 && st.Delayed == 1
	})
	for id, n := range want {
		if got := rs.of(id); got != n {
			t.Errorf("job %s ran %d times, want %d", id, got, n)
		}
	}
	t.Logf("%d jobs over 3 moves, %d calls of Enqueue were refused meanwhile", len(want), refused)
}

func TestClusterNeedsAHashTag(t *testing.T) {
	t.Parallel()
	c := servers.SharedCluster(t)
	owner, err := c.Owner(t.Context(), "{here}:")
	must(t, err)
	elsewhere := c.Nodes[0]
	if elsewhere == owner {
		elsewhere = c.Nodes[1]
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, test := range map[string]struct {
		rdb    redis.UniversalClient
		prefix string
		says   string
	}{
		"no prefix":                      {c.Client(t), "", "hash tag"},
		"no tag":                         {c.Client(t), "app:", "hash tag"},
		"an empty tag":                   {c.Client(t), "{}:", "hash tag"},
		"half a tag":                     {c.Client(t), "{app:", "hash tag"},
		"one node, no prefix":            {c.Nodes[0].Client(t), "", "NewClusterClient"},
		"one node, no tag":               {c.Nodes[1].Client(t), "app:", "NewClusterClient"},
		"one node, the tag is elsewhere": {elsewhere.Client(t), "{here}:", "NewClusterClient"},
		"a ring, no tag":                 {ring, "app:", "hash tag"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := jobs.NewRunner(jobs.NewClient(test.rdb, jobs.Options{Prefix: test.prefix}), jobs.Config{}).Run(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "jobs: ") || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Run returns %v, and should say %q", err, test.says)
			}
		})
	}
	q := &queue{Client: jobs.NewClient(owner.Client(t), jobs.Options{Prefix: "{here}:"}), t: t, rdb: owner.Client(t), prefix: "{here}:"}
	var rs runs
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
	q.enqueue(once.Job(nil))
	rs.wait(t, 1)
}

// Of a cluster only the server counts that has the queue: a worker does not notice that
// another one is gone, and notices when its own is, though others answer.
func TestClusterContactIsWithTheServerOfTheQueue(t *testing.T) {
	t.Parallel()
	c := servers.NewCluster(t)
	q := onCluster(t, c, "stagedoor")
	owner, err := c.Owner(t.Context(), q.prefix)
	must(t, err)
	var log journal
	var rs runs
	q.start(jobs.Config{Lease: 500 * time.Millisecond, Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(time.Second)))
	q.enqueue(once.Job(nil))
	rs.wait(t, 1)
	for _, node := range c.Nodes {
		if node != owner {
			must(t, node.Kill())
			break
		}
	}
	q.enqueue(many(10)...)
	n := len(rs.wait(t, 11))
	rs.wait(t, n+2) // by then the worker has asked for the time some ten times
	if lines := log.lines(t, "trouble"); len(lines) > 0 {
		t.Errorf("trouble with a server that is not the queue's: %v", lines)
	}

	must(t, owner.Kill())
	s := store.New(c.Client(t), q.prefix)
	for range 5 {
		if at, err := s.Now(t.Context()); err == nil {
			t.Fatalf("the server of the queue is gone, and it is %s there", at)
		}
	}
	must(t, owner.Start())
}

// A worker that is told to end before it has begun leaves no consumer.
func TestNoConsumerIsLeftByAWorkerThatNeverWorked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		s := store.New(q.rdb, q.prefix).As("early")
		must(t, s.Prepare(t.Context()))
		if left := q.consumers(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}
