package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/jobstest"
)

// What an application's own tests do, on miniredis: enqueue, run, fail, retry, die, replay.
func TestM02_AnApplicationsTestsOnMiniredis(t *testing.T) {
	t.Parallel()
	a := jobstest.New(t, jobs.Config{})
	kind := jobs.NewKind[ticket]("render_tickets", jobs.Policy{Retries: 1})
	jobs.Handle(a.Runner(), kind, func(_ context.Context, args ticket) error {
		if args.Seat == "14-C" {
			return errSeat
		}
		return nil
	})
	a.Enqueue(kind.Job(ticket{4470, "14C"}), kind.Job(ticket{4471, "14-C"}), kind.Job(ticket{4472, "15C"}).In(24*time.Hour))
	a.Drain()
	if len(a.Done()) != 1 || len(a.Delayed()) != 2 {
		t.Fatalf("done %v, delayed %v", a.Done(), a.Delayed())
	}
	a.Advance(24 * time.Hour)
	if dead := a.Dead(); len(a.Done()) != 2 || len(dead) != 1 || dead[0].Attempts != 2 {
		t.Fatalf("done %v, dead %v", a.Done(), a.Dead())
	}
	must(t, a.Client().DeadLetters().Replay(t.Context(), a.Dead()[0].Entry, jobs.ReplayOptions{Set: jobs.Fields{"seat": "14C"}}))
	a.Drain()
	if len(a.Done()) != 3 || len(a.Dead()) != 0 {
		t.Errorf("after the replay: done %v, dead %v", a.Done(), a.Dead())
	}
}

// And reclaim, with the server's clock set.
func TestM02_ReclaimOnMiniredis(t *testing.T) {
	t.Parallel()
	m := servers.NewMiniredis(t)
	now := time.Now()
	m.SetTime(now)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	q := newQueue(t, rdb, "")
	var rs runs
	q.orphan("gone", 0, 1, once.Job(nil))
	q.start(jobs.Config{Lease: 200 * time.Millisecond}, handle(once, record[jobs.Fields](&rs)))
	m.SetTime(now.Add(time.Minute))
	rs.wait(t, 1)
	q.idle()
}
