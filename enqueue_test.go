package jobs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// refused enqueues what must fail, and returns how.
func (q *queue) refused(js ...jobs.Job) *jobs.EnqueueError {
	q.t.Helper()
	err := q.Enqueue(context.Background(), js...)
	failed, ok := errors.AsType[*jobs.EnqueueError](err)
	if !ok {
		q.t.Fatalf("error %v, want an EnqueueError", err)
	}
	if !strings.HasPrefix(err.Error(), "jobs: enqueue: ") {
		q.t.Errorf("text %q", err)
	}
	if uncertain := errors.Is(err, jobs.ErrUncertain); uncertain != (failed.Uncertain > 0) {
		q.t.Errorf("ErrUncertain is %t: %+v", uncertain, failed)
	}
	return failed
}

func TestEnqueueRefusesWhatCannotBeAJob(t *testing.T) {
	t.Parallel()
	wide := jobs.Fields{}
	for i := range 999 {
		wide[fmt.Sprint(i)] = ""
	}
	tests := map[string]struct {
		job  jobs.Job
		want string
	}{
		"nothing":          {jobs.Job{}, "without a name"},
		"no kind":          {jobs.Job{ID: "1", Fields: jobs.Fields{"a": "b"}}, "without a name"},
		"a kind of spaces": {jobs.Job{Kind: " "}, `" "`},
		"the zero time":    {once.Job(nil).At(time.Time{}), "zero time"},
		"too many fields":  {once.Job(wide), "1002 fields, and 1000"},
	}
	reserved := []string{"kind", "job_id", "outbox_id", "attempts", "request_id", "trace", "scheduled_at",
		"last_error", "unknown_since", "error", "traceback", "raw"}
	for _, name := range reserved {
		tests["field "+name] = struct {
			job  jobs.Job
			want string
		}{once.Job(jobs.Fields{name: "x"}), fmt.Sprintf("%q is reserved", name)}
	}
	each(t, func(t *testing.T, q *queue) {
		for name, test := range tests {
			failed := q.refused(once.Job(nil), test.job, once.Job(nil))
			if failed.Queued != 0 || failed.Uncertain != 0 || !strings.Contains(failed.Error(), test.want) || !strings.Contains(failed.Error(), "job 1, kind") {
				t.Errorf("%s: %+v: %q", name, *failed, failed)
			}
		}
		if st := q.stats(); st != (jobs.Stats{}) {
			t.Errorf("something is in: %+v", st)
		}
		must(t, q.Enqueue(t.Context()))
	})
}

func TestAThousandFieldsAreAJob(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		wide := jobs.Fields{}
		for i := range 997 { // kind, job_id and attempts are fields too
			wide[fmt.Sprint(i)] = "x"
		}
		var rs runs
		q.start(jobs.Config{}, handle(once, func(ctx context.Context, f jobs.Fields) error {
			if rs.add(ctx); !maps.Equal(f, wide) {
				t.Errorf("%d fields", len(f))
			}
			return errors.New("no")
		}))
		q.enqueue(once.Job(wide).In(time.Millisecond), once.Job(wide))
		for _, letter := range q.awaitDead(2) {
			if letter.Error != "no" || !maps.Equal(letter.Fields, wide) {
				t.Errorf("%d fields, error %q", len(letter.Fields), letter.Error)
			}
		}
	})
}

func TestEnqueueIsOneCommandOrOneTransaction(t *testing.T) {
	t.Parallel()
	server := servers.NewMiniredis(t)
	proxy := servers.NewProxy(t, server.Addr())
	q := newQueue(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}), "")
	t.Cleanup(func() { _ = q.rdb.Close() })
	q.stats() // the connection is made
	var transactions, alone atomic.Int32
	proxy.Hook(func(cmd []string) servers.Action {
		switch strings.ToLower(cmd[0]) {
		case "exec":
			transactions.Add(1)
		case "xadd", "zadd", "eval":
			alone.Add(1)
		}
		return servers.Pass
	})
	for _, test := range []struct {
		jobs                 []jobs.Job
		transactions, adding int32
	}{
		{many(1), 0, 1},
		{[]jobs.Job{once.Job(nil).In(time.Hour)}, 0, 1},
		{[]jobs.Job{once.Job(nil).At(time.Now().Add(time.Hour))}, 0, 1},
		{many(2), 1, 2},
		{many(1000), 1, 1000},
		{many(1001), 1, 1001}, // and the last one alone
		{many(2500), 3, 2500},
	} {
		transactions.Store(0)
		alone.Store(0)
		q.enqueue(test.jobs...)
		if transactions.Load() != test.transactions || alone.Load() != test.adding {
			t.Errorf("%d jobs: %d transactions of %d commands", len(test.jobs), transactions.Load(), alone.Load())
		}
	}
	for i, f := range q.entries("jobs")[3:1003] {
		if f["n"] != fmt.Sprint(i) {
			t.Fatalf("entry %d is job %q: not in their order", i, f["n"])
		}
	}
}

// through is a queue on each kind of server, by way of a proxy, with go-redis's own resending.
func through(t *testing.T, f func(t *testing.T, q *queue, proxy *servers.Proxy)) {
	t.Helper()
	each(t, func(t *testing.T, q *queue) {
		proxy := servers.NewProxy(t, q.rdb.Options().Addr)
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		q.Client = jobs.NewClient(rdb, jobs.Options{Prefix: q.prefix}) // q.rdb remains the direct one
		f(t, q, proxy)
	})
}

// total is how many jobs are anywhere.
func (q *queue) total() int64 {
	q.t.Helper()
	pipe := q.rdb.TxPipeline()
	stream, delayed, dead := pipe.XLen(q.t.Context(), q.key("jobs")), pipe.ZCard(q.t.Context(), q.key("delayed")), pipe.XLen(q.t.Context(), q.key("jobs:dead"))
	_, err := pipe.Exec(q.t.Context())
	must(q.t, err)
	return stream.Val() + delayed.Val() + dead.Val()
}

// Where TLS does not begin nothing was sent, and nothing is uncertain.
func TestAStrangerIsSentNothing(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for name, addr := range map[string]string{"untrusted": untrusted.Listener.Addr().String(), "without TLS": plain.Listener.Addr().String()} {
		rdb := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: &tls.Config{ServerName: "example.com"}})
		t.Cleanup(func() { _ = rdb.Close() })
		err := newQueue(t, rdb, "").Enqueue(t.Context(), once.Job(nil))
		if err == nil || errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALostReplyIsUncertainAndOneEntry(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	tests := map[string]struct {
		jobs    []jobs.Job
		command string
	}{
		"ready":     {many(1), "xadd"},
		"after":     {[]jobs.Job{once.Job(nil).In(time.Hour)}, "eval"},
		"at":        {[]jobs.Job{once.Job(nil).At(later)}, "zadd"},
		"three":     {many(3), "exec"},
		"different": {[]jobs.Job{once.Job(nil), once.Job(nil).At(later), once.Job(nil).In(time.Hour)}, "exec"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
				n := len(test.jobs)
				lost := proxy.Swallow(servers.Command(test.command))
				failed := q.refused(test.jobs...)
				receive(t, lost)
				if failed.Queued != 0 || failed.Uncertain != n {
					t.Errorf("%+v", *failed)
				}
				if in := q.total(); in != int64(n) {
					t.Errorf("%d are in, of %d", in, n)
				}
			})
		})
	}
}

func TestATransactionIsAllOrNone(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		commands := 0
		proxy.Hook(func(cmd []string) servers.Action {
			if strings.EqualFold(cmd[0], "xadd") {
				commands++
			}
			if commands == 700 {
				return servers.CutBefore
			}
			return servers.Pass
		})
		if failed := q.refused(many(1000)...); failed.Queued != 0 || failed.Uncertain != 1000 {
			t.Errorf("%+v", *failed)
		}
		if in := q.total(); in != 0 {
			t.Errorf("%d are in, of a transaction that was never complete", in)
		}
	})
}

func TestALargerCallSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		transactions := 0
		proxy.Hook(func(cmd []string) servers.Action {
			if strings.EqualFold(cmd[0], "exec") {
				transactions++
			}
			if transactions == 2 {
				transactions++
				return servers.SwallowReply
			}
			return servers.Pass
		})
		failed := q.refused(many(2500)...)
		if failed.Queued != 1000 || failed.Uncertain != 1000 || !strings.Contains(failed.Error(), "1000") {
			t.Errorf("%+v", *failed)
		}
		if in := q.total(); in != 2000 {
			t.Errorf("%d are in: nothing is tried after what failed", in)
		}
	})
}

// A transaction that Redis carries out by half: the error says of how many that is not known.
func TestATransactionThatIsHalfRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		must(t, q.rdb.Set(t.Context(), q.key("delayed"), "x", 0).Err())
		now, later := once.Job(nil), once.Job(nil).In(time.Hour)
		for _, c := range []struct {
			jobs              []jobs.Job
			queued, uncertain int
			says              string
		}{
			{[]jobs.Job{now, now, later}, 2, 0, "(the first 2 are in)"},
			{[]jobs.Job{now, later, now, later}, 1, 2, "(the first 1 are in) (of 2 it is not known whether they are in)"},
		} {
			failed := q.refused(c.jobs...)
			if failed.Queued != c.queued || failed.Uncertain != c.uncertain || !strings.Contains(failed.Error(), "WRONGTYPE") || !strings.HasSuffix(failed.Error(), c.says) {
				t.Errorf("%+v: %v; want %+v", *failed, failed, c)
			}
		}
	})
}

func TestEnqueueingAgainIsHarmlessWhereItWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		job := once.Job(jobs.Fields{"a": "b"})
		for range 3 {
			q.enqueue(job.In(time.Hour), once.Job(nil).At(time.Now().Add(time.Hour)))
		}
		for range 3 {
			q.enqueue(job)
		}
		scores := q.scores()
		for _, waiting := range q.delayed() {
			waiting.Job.Attempts = 0
			q.enqueue(waiting.Job.In(time.Minute), waiting.Job.At(time.Now().Add(time.Minute)))
			q.enqueue(waiting.Job.In(time.Minute))
		}
		if st := q.stats(); st.Ready != 3 || !maps.Equal(q.scores(), scores) {
			t.Errorf("%+v, and waiting are %v, not %v", st, q.scores(), scores)
		}
		for _, f := range q.entries("jobs") {
			if f["job_id"] != job.ID {
				t.Errorf("another ID: %v", f)
			}
		}
	})
}

func TestWhatWasNeverSentIsNotUncertain(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nowhere(t), "")
	for _, js := range [][]jobs.Job{many(1), many(3), many(2000)} {
		if failed := q.refused(js...); failed.Queued != 0 || failed.Uncertain != 0 {
			t.Errorf("%d jobs: %+v", len(js), *failed)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed, ok := errors.AsType[*jobs.EnqueueError](q.Enqueue(ctx, many(2)...))
	if !ok || failed.Uncertain != 0 || !errors.Is(failed, context.Canceled) {
		t.Errorf("%+v", failed)
	}
}

func TestE02_RedisFullOnEnqueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t), "")
	var rs runs
	finish := make(chan struct{})
	q.start(jobs.Config{Slots: 2}, handle(once, func(ctx context.Context, f jobs.Fields) error {
		rs.add(ctx)
		<-finish
		return nil
	}), handle(render, func(ctx context.Context, _ ticket) error {
		rs.add(ctx)
		<-finish
		return errSeat
	}))
	fails := render.Job(ticket{4471, "14-C"})
	q.enqueue(once.Job(nil), fails)
	rs.wait(t, 2)
	q.enqueue(many(2)...)
	must(t, q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, js := range [][]jobs.Job{many(1), {once.Job(nil).In(time.Second)}, {once.Job(nil).At(time.Now().Add(time.Second))}, many(1000)} {
		if failed := q.refused(js...); failed.Queued != 0 || failed.Uncertain != 0 || !strings.Contains(failed.Error(), "OOM") {
			t.Errorf("%d jobs: %v", len(js), failed)
		}
	}
	if st := q.stats(); st != (jobs.Stats{Ready: 2, Running: 2, OldestReady: st.OldestReady}) {
		t.Errorf("%+v", st)
	}
	close(finish)     // what runs is settled, also where that writes,
	rs.wait(t, 2+2+1) // and what is ready runs: two jobs, and the retry
	q.awaitDead(1)
	q.idle()
	must(t, q.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	last := once.Job(nil)
	q.enqueue(last)
	if all := rs.wait(t, 6); all[5].ID != last.ID || rs.of(fails.ID) != 2 {
		t.Errorf("runs %v", all)
	}
}

func TestJobsHaveIDsThatSort(t *testing.T) {
	t.Parallel()
	js := many(100)
	if !slices.IsSortedFunc(js, func(a, b jobs.Job) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("IDs are not in the order in which they were minted")
	}
	each(t, func(t *testing.T, q *queue) {
		q.enqueue(jobs.Job{Kind: "once"}, jobs.Job{Kind: "once", ID: "mine"})
		entries := q.entries("jobs")
		if len(entries[0]["job_id"]) != 36 || entries[1]["job_id"] != "mine" {
			t.Errorf("%v", entries)
		}
	})
}

func TestStats(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		if st := q.stats(); st != (jobs.Stats{}) {
			t.Errorf("of nothing: %+v", st)
		}
		q.enqueue(append(many(5), once.Job(nil).In(time.Hour))...)
		q.add("jobs:dead", "kind", "once", "error", "x", "traceback", "y")
		first := q.stats()
		if want := (jobs.Stats{Ready: 5, Delayed: 1, Dead: 1, OldestReady: first.OldestReady}); first != want {
			t.Errorf("before the first worker: %+v, want %+v", first, want)
		}
		eventually(t, "the oldest grows older", func() bool { return q.stats().OldestReady > first.OldestReady })
		var rs runs
		finish := make(chan struct{})
		q.start(jobs.Config{Slots: 3}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			<-finish
			return nil
		}))
		defer close(finish)
		rs.wait(t, 3)
		st := q.stats()
		if want := (jobs.Stats{Ready: 2, Running: 3, Delayed: 1, Dead: 1, OldestReady: st.OldestReady}); st != want {
			t.Errorf("while three run: %+v, want %+v", st, want)
		}
		if st.OldestReady <= 0 || st.OldestReady > time.Minute {
			t.Errorf("the oldest has waited for %s", st.OldestReady)
		}
	})
}
