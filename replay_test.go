package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

func TestL03_ReplayAKindAmongThousands(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		pairs := 2500
		if isMini(t) {
			pairs = 500
		}
		text := strings.Repeat("x", 2000)
		for page := range pairs / 100 {
			pipe := rdb.Pipeline()
			for i := range 200 {
				pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs:dead", Values: []string{
					"kind", string('a' + rune(i%2)), "text", text, "job_id", fmt.Sprint(page, i), "attempts", "1", "error", "e", "traceback", "t"}})
			}
			_, err := pipe.Exec(t.Context())
			must(t, err)
		}
		var others []string
		for d := range q.DeadLetters().List(t.Context(), jobs.Filter{Kind: "b"}) {
			others = append(others, d.Entry)
		}
		var largest largestReply
		rdb.AddHook(&largest)
		n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{Kind: "a"}, jobs.ReplayOptions{})
		if err != nil || n != pairs || largest.entries > 1000 {
			t.Errorf("%d replayed, up to %d at once: %v", n, largest.entries, err)
		}
		ids := map[string]bool{}
		for _, f := range q.entries("jobs") {
			if ids[f["job_id"]] = true; f["kind"] != "a" || f["text"] != text || f["attempts"] != "0" || f["error"] != "" {
				t.Fatalf("replayed as %.300v", f)
			}
		}
		var left []string
		for _, d := range q.dead() {
			left = append(left, d.Entry)
		}
		if len(ids) != pairs || !slices.Equal(left, others) {
			t.Errorf("%d jobs replayed, %d dead letters left", len(ids), len(left))
		}
		for _, kind := range []string{"a", "c"} {
			if n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{Kind: kind}, jobs.ReplayOptions{}); n != 0 || err != nil {
				t.Errorf("kind %s: %d, %v", kind, n, err)
			}
		}
	})
}

// largestReply is how many entries came in one reply, at most.
type largestReply struct{ entries int }

func (l *largestReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *largestReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *largestReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if page, ok := cmd.(*redis.XMessageSliceCmd); ok {
			l.entries = max(l.entries, len(page.Val()))
		}
		return err
	}
}

func TestL05_ReplayWhatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		alive := "1-1"
		must(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs", ID: alive, Values: []string{"kind", "once"}}).Err())
		noKind := q.add("jobs:dead", "a", "b", "attempts", "0", "error", "undecodable: no kind", "traceback", "")
		raw := q.add("jobs:dead", "raw", "rubbish", "kind", "once", "attempts", "0", "error", "undecodable: x", "traceback", "")
		good := q.kill("once", 1)[0]
		reserved := jobs.ReplayOptions{Set: jobs.Fields{"trace": "x"}}
		tests := []struct {
			entry    string
			options  jobs.ReplayOptions
			notFound bool
		}{
			{"abc", jobs.ReplayOptions{}, false}, {"", jobs.ReplayOptions{}, false}, {"-", jobs.ReplayOptions{}, false}, {"*", jobs.ReplayOptions{}, false},
			{"99999999999999999999-0", jobs.ReplayOptions{}, false}, {good + "\n", jobs.ReplayOptions{}, false},
			{"0-0", jobs.ReplayOptions{}, true}, {alive, jobs.ReplayOptions{}, true},
			{noKind, jobs.ReplayOptions{}, false}, {raw, jobs.ReplayOptions{}, false}, {good, reserved, false},
		}
		for _, test := range tests {
			err := q.DeadLetters().Replay(t.Context(), test.entry, test.options)
			if err == nil || errors.Is(err, jobs.ErrNotFound) != test.notFound || errors.Is(err, jobs.ErrUncertain) || !strings.Contains(err.Error(), strconv.Quote(test.entry)) {
				t.Errorf("%q: %v", test.entry, err)
			}
		}
		if st := q.stats(); st.Ready != 1 || st.Dead != 3 {
			t.Errorf("%+v", st)
		}
		n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{}, jobs.ReplayOptions{})
		if n != 1 || err == nil || !strings.Contains(err.Error(), noKind) {
			t.Errorf("all: %d, %v", n, err)
		}
		if st := q.stats(); st.Ready != 2 || st.Dead != 2 {
			t.Errorf("%+v", st)
		}
		if isMini(t) {
			return
		}
		full := q.kill("once", 1)[0]
		must(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		if err := q.DeadLetters().Replay(t.Context(), full, jobs.ReplayOptions{}); err == nil || !strings.Contains(err.Error(), "OOM") || errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("under want of memory: %v", err)
		}
		if st := q.stats(); st.Ready != 2 || st.Dead != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestL06_AReplayedJobStartsAfresh(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.Fields]("render", jobs.Policy{Retries: 2, Backoff: soon})
	each(t, func(t *testing.T, q *queue) {
		poison := q.add("jobs", "kind", "render", "job_id", "poison")
		q.ghost(1)
		must(t, q.rdb.Do(t.Context(), "xclaim", q.key("jobs"), "workers", "ghost", 0, poison, "idle", 3_600_000, "retrycount", 3).Err())
		q.enqueue(jobs.Job{ID: "exhausted", Kind: "render"})
		var rs runs
		var mu sync.Mutex
		answer := errors.New("first")
		q.start(jobs.Config{Lease: 500 * time.Millisecond}, handle(kind, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			mu.Lock()
			defer mu.Unlock()
			return answer
		}))
		replay := func(next error) {
			t.Helper()
			mu.Lock()
			answer = next
			mu.Unlock()
			if n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{Kind: "render"}, jobs.ReplayOptions{}); n != 2 || err != nil {
				t.Fatal(n, err)
			}
		}
		for _, d := range q.awaitDead(2) {
			if d.Attempts != 3 || d.ID == "poison" && d.Reason != jobs.ReasonPoison || d.ID == "exhausted" && d.Error != "first" {
				t.Errorf("%+v", d)
			}
		}
		replay(errors.New("second")) // three runs each, and no poison
		dead := q.awaitDead(2)
		for _, d := range dead {
			if d.Attempts != 3 || d.Error != "second" || d.Reason != jobs.ReasonFailed {
				t.Errorf("%+v", d)
			}
		}
		if rs.of("poison") != 3 || rs.of("exhausted") != 6 {
			t.Errorf("runs: %d and %d", rs.of("poison"), rs.of("exhausted"))
		}
		replay(nil)
		for _, job := range rs.wait(t, 11)[9:] {
			if job.Attempts != 0 {
				t.Errorf("replayed with attempts %d", job.Attempts)
			}
		}
		q.idle()
		if n := q.total(); n != 0 || len(rs.all()) != 11 {
			t.Errorf("%d left, %d runs", n, len(rs.all()))
		}
	})
}

func TestTwoPeopleReplayOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		entries := q.kill("once", 20)
		var wins, losses, all, errs counter
		var people sync.WaitGroup
		for range 4 {
			people.Go(func() {
				for _, i := range rand.Perm(len(entries)) {
					switch err := q.DeadLetters().Replay(t.Context(), entries[i], jobs.ReplayOptions{}); {
					case err == nil:
						wins.add(1)
					case errors.Is(err, jobs.ErrNotFound):
						losses.add(1)
					default:
						errs.add(1)
					}
				}
			})
			people.Go(func() {
				n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{}, jobs.ReplayOptions{})
				if all.add(n); err != nil {
					errs.add(1)
				}
			})
		}
		people.Wait()
		if st := q.stats(); wins.n+all.n != 20 || wins.n+losses.n != 80 || errs.n != 0 || st.Ready != 20 || st.Dead != 0 {
			t.Errorf("%d replayed singly, %d at once, %d too late, %d errors: %+v", wins.n, all.n, losses.n, errs.n, st)
		}
	})
}

// Of those who replay and those who discard the same letter one acts, and the trail says who.
func TestReplayAgainstDiscard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		entries := q.kill("once", 40)
		var people sync.WaitGroup
		var replayed, discarded counter
		for i := range 8 {
			act, acted := q.DeadLetters().Discard, &discarded
			if i%2 == 0 {
				acted = &replayed
				act = func(ctx context.Context, entry string) error {
					return q.DeadLetters().Replay(ctx, entry, jobs.ReplayOptions{})
				}
			}
			people.Go(func() {
				for _, i := range rand.Perm(len(entries)) {
					if err := act(t.Context(), entries[i]); err == nil {
						acted.add(1)
					} else if !errors.Is(err, jobs.ErrNotFound) {
						t.Error(err)
					}
				}
			})
		}
		people.Wait()
		did := map[string]int{}
		for _, entry := range entries {
			trail := q.audit(jobs.Filter{Entry: entry})
			if len(trail) != 1 {
				t.Fatalf("%s: %+v", entry, trail)
			}
			did[trail[0].What]++
		}
		if st := q.stats(); st.Dead != 0 || int(st.Ready) != replayed.n || did[jobs.ActionReplay] != replayed.n ||
			did[jobs.ActionDiscard] != discarded.n || replayed.n+discarded.n != len(entries) {
			t.Errorf("%d replayed, %d discarded, the trail has %v: %+v", replayed.n, discarded.n, did, st)
		}
	})
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) value() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

func TestReplayOfAKindEndsWhereItsJobsFailAgainAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.kill("once", 150) // two pages
		q.start(jobs.Config{}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			return errMail
		}))
		n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{Kind: "once"}, jobs.ReplayOptions{})
		if n != 150 || err != nil {
			t.Errorf("%d replayed, %v", n, err)
		}
		q.idle()
		if dead := q.dead(); len(dead) != 150 || len(rs.all()) != 150 {
			t.Errorf("%d dead again after %d runs", len(dead), len(rs.all()))
		}
	})
}

func TestALostReplyOfAReplayIsUncertain(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		entry := q.kill("once", 1)[0]
		lost := proxy.Swallow(servers.Command("eval"))
		err := q.DeadLetters().Replay(t.Context(), entry, jobs.ReplayOptions{})
		receive(t, lost)
		if !errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("error %v", err)
		}
		if n, dead := len(q.entries("jobs")), len(q.entries("jobs:dead")); n != 1 || dead != 0 {
			t.Errorf("%d ready, %d dead", n, dead)
		}
		if err := q.DeadLetters().Replay(t.Context(), entry, jobs.ReplayOptions{}); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
	})
}

func TestLostRepliesOfWhatIsDoneByHandAreUncertain(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		entry := q.kill("once", 1)[0]
		cancelled, ready := once.Job(nil).In(time.Hour), once.Job(nil).In(time.Hour)
		q.enqueue(cancelled, ready)
		for what, act := range map[string]func() error{
			"discard": func() error { return q.DeadLetters().Discard(t.Context(), entry) },
			"cancel":  func() error { return q.Delayed().Cancel(t.Context(), cancelled.ID) },
			"run now": func() error { return q.Delayed().RunNow(t.Context(), ready.ID) },
		} {
			lost := proxy.Swallow(servers.Command("eval"))
			err := act()
			receive(t, lost)
			if !errors.Is(err, jobs.ErrUncertain) {
				t.Errorf("%s: %v", what, err)
			}
			if err := act(); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("%s again: %v", what, err)
			}
		}
		if st := q.stats(); st.Dead != 0 || st.Delayed != 0 || st.Ready != 1 {
			t.Errorf("%+v", st)
		}
	})
}
