package jobs_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// run returns what a Run that is refused returns, at once.
func run(t testing.TB, client *jobs.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return jobs.NewRunner(client, jobs.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}).Run(ctx)
}

// A user without the right to run scripts, or to do what a script does, is told at once.
func TestI05_UsersWithoutARight(t *testing.T) {
	t.Parallel()
	q, server := apart(t)
	for name, c := range map[string]struct {
		rules []any
		says  string // "": it runs
	}{
		"scripting":  {[]any{"~*", "+@all", "-@scripting"}, "EVAL"},
		"zadd":       {[]any{"~*", "+@all", "-zadd"}, "ZADD"},
		"xclaim":     {[]any{"~*", "+@all", "-xclaim"}, "XCLAIM"},
		"schedules":  {[]any{"~jobs*", "~delayed", "+@all"}, "sched:"},
		"xautoclaim": {[]any{"~*", "+@all", "-xautoclaim"}, ""},
	} {
		must(t, q.rdb.Do(t.Context(), append([]any{"acl", "setuser", name, "reset", "on", "nopass", "&*"}, c.rules...)...).Err())
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: name, Password: "x"})
		t.Cleanup(func() { _ = rdb.Close() })
		client := jobs.NewClient(rdb, jobs.Options{})
		if c.says == "" {
			var rs runs
			w := q.employ(client, jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
			must(t, client.Enqueue(t.Context(), once.Job(nil).In(time.Second)))
			rs.wait(t, 1)
			must(t, w.stop())
			continue
		}
		if err := run(t, client); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Run returns %v", name, err)
		}
	}
}

// What waiting does not mend ends Run only before its first success.
func TestARightThatIsTakenAwayLaterIsWaitedFor(t *testing.T) {
	t.Parallel()
	q, server := apart(t)
	grant := func(rule string) {
		must(t, q.rdb.Do(t.Context(), "acl", "setuser", "worker", "on", "nopass", "~*", "&*", "+@all", rule).Err())
	}
	grant("+xadd")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "x"})
	t.Cleanup(func() { _ = rdb.Close() })
	var rs runs
	var log journal
	w := q.employ(jobs.NewClient(rdb, jobs.Options{}), jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
	q.enqueue(once.Job(nil))
	rs.wait(t, 1)
	grant("-xreadgroup")
	eventually(t, "it has met the refusal", func() bool { return len(log.lines(t, "trouble")) > 0 })
	q.enqueue(once.Job(nil))
	grant("+xreadgroup")
	rs.wait(t, 2)
	must(t, w.stop())
}

func TestRunWantsRedisSixTwo(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		proxy.Hook(func(cmd []string) servers.Action {
			if strings.EqualFold(cmd[0], "xpending") {
				return servers.ReplyError("ERR syntax error")
			}
			return servers.Pass
		})
		err := run(t, q.Client)
		if err == nil || !strings.Contains(err.Error(), "6.2") || !strings.HasPrefix(err.Error(), "jobs: ") {
			t.Errorf("Run: %v", err)
		}
	})
}

// On a cluster, all keys of a queue are in one slot; two queues are in two.
func TestI04_Cluster(t *testing.T) {
	t.Parallel()
	c := servers.SharedCluster(t)
	for _, prefix := range []string{"", "app:"} {
		err := run(t, jobs.NewClient(c.Client(t), jobs.Options{Prefix: prefix}))
		if err == nil || !strings.Contains(err.Error(), "hash tag") {
			t.Errorf("prefix %q: Run returns %v", prefix, err)
		}
	}
	flaky := jobs.NewKind[jobs.Fields]("flaky", jobs.Policy{Retries: 1, Backoff: soon})
	for _, tag := range []string{servers.Prefix(t), servers.Prefix(t)} {
		var rs runs
		q := onCluster(t, c, tag)
		orphan := once.Job(nil)
		q.orphan("gone", time.Hour, 2, orphan)
		q.start(jobs.Config{Lease: 500 * time.Millisecond}, handle(once, record[jobs.Fields](&rs)),
			handle(flaky, func(ctx context.Context, _ jobs.Fields) error {
				rs.add(ctx)
				return errSeat
			}), on("beat", jobs.Every(time.Second)))
		js := append(many(50), once.Job(nil).In(time.Second), flaky.Job(nil))
		q.enqueue(js...)
		letter := q.awaitDead(1)[0]
		must(t, q.DeadLetters().Replay(t.Context(), letter.Entry, jobs.ReplayOptions{}))
		eventually(t, "all have run", func() bool {
			return rs.of(orphan.ID) == 1 && rs.of(letter.ID) == 4 && rs.of(js[50].ID) == 1 && len(rs.ticks()) > 1
		})
		q.idle()
		for _, job := range js[:50] {
			if rs.of(job.ID) != 1 {
				t.Errorf("%s: job %s ran %d times", tag, job.ID, rs.of(job.ID))
			}
		}
	}
}

func TestRunSaysWhatAKeyOfTheWrongTypeIs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		must(t, q.rdb.Set(t.Context(), q.key("delayed"), "x", redis.KeepTTL).Err())
		err := run(t, q.Client)
		if err == nil || !strings.Contains(err.Error(), q.key("delayed")) {
			t.Errorf("Run: %v", err)
		}
	})
}

// Outcomes that cannot be written keep their slots: what a worker holds does not grow.
func TestWhatCannotBeWrittenKeepsItsSlot(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		const slots, n = 2, 10
		var rs runs
		q.hire(jobs.Config{Slots: slots}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			return jobs.Snooze(time.Hour)
		}))
		time.Sleep(time.Second)
		must(t, q.rdb.Set(t.Context(), q.key("delayed"), "x", time.Hour).Err())
		q.enqueue(many(n)...)
		time.Sleep(time.Minute)
		if p, err := q.rdb.XPending(t.Context(), q.key("jobs"), "workers").Result(); err != nil || p.Count > 2*slots || len(rs.all()) > 2*slots {
			t.Errorf("%d are held and %d ran, with %d slots: %v", p.Count, len(rs.all()), slots, err)
		}
		must(t, q.rdb.Del(t.Context(), q.key("delayed")).Err())
		time.Sleep(time.Minute)
		if st := q.stats(); st != (jobs.Stats{Delayed: n}) || len(rs.all()) != n {
			t.Errorf("%d ran, and then %+v", len(rs.all()), st)
		}
	})
}
