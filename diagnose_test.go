package jobs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// diagnose is what Diagnose finds, a line each.
func (q *queue) diagnose() string {
	q.t.Helper()
	found, err := q.Diagnose(q.t.Context())
	must(q.t, err)
	var lines []string
	for _, f := range found {
		lines = append(lines, string(f.Level)+": "+f.What+" ("+f.Advice+")")
	}
	return strings.Join(lines, "\n")
}

// says checks that each text is in one of a diagnosis's lines.
func says(t testing.TB, diagnosis string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(diagnosis, text) {
			t.Errorf("it does not say %q:\n%s", text, diagnosis)
		}
	}
}

func TestDiagnoseAHealthyRedis(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--appendonly", "yes"}})
	q := newQueue(t, server.Client(t), "")
	says(t, q.diagnose(), "warning: there is no stream", "warning: no worker runs")
	q.enqueue(once.Job(nil))
	says(t, q.diagnose(), "error: the stream has no group", "error: no worker runs, and 1 job is ready")
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](new(runs))))
	eventually(t, "all is fine", func() bool {
		text := q.diagnose()
		return strings.HasPrefix(text, "fine: ") && strings.Contains(text, "1 worker runs")
	})
}

func TestDiagnoseAMisconfiguredRedis(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{
		"--save", "", "--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
	q := newQueue(t, server.Client(t), "")
	q.orphan("gone", time.Hour, 1, once.Job(nil), once.Job(nil))
	must(t, q.rdb.Set(t.Context(), "delayed", "x", 0).Err())
	text := q.diagnose()
	says(t, text, "error: maxmemory-policy is allkeys-lru", "error: appendonly is off and there are no snapshots",
		`error: key "delayed" holds a string`, "of gone for up to 1h0m0s", "1 consumer has no process, and with 2 jobs", `"once"`)
	if !strings.HasPrefix(text, "error: ") {
		t.Error(text)
	}
}

// Managed servers forbid INFO and CONFIG, miniredis has little of them: that is told, and no failure.
func TestDiagnoseWhereLittleMayBeAsked(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t)
	admin := server.Client(t)
	must(t, admin.Do(t.Context(), "acl", "setuser", "guest", "on", ">secret", "~*", "+@all", "-info", "-config", "-type").Err())
	guest := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "guest", Password: "secret"})
	t.Cleanup(func() { _ = guest.Close() })
	text := newQueue(t, guest, "").diagnose()
	says(t, text, "unknown: the server's version", "unknown: maxmemory-policy", "unknown: the server's persistence", "unknown: the keys: NOPERM")
	must(t, admin.Do(t.Context(), "acl", "setuser", "guest", "-time", "-@scripting").Err())
	says(t, newQueue(t, guest, "").diagnose(), "unknown: the clock: NOPERM", "unknown: the depths: NOPERM")
	each(t, func(t *testing.T, q *queue) {
		if q.mini != nil {
			says(t, q.diagnose(), "unknown: the server's version", "warning: no worker runs")
		}
	})
}

func TestDiagnoseSchedules(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](new(runs))), func(r *jobs.Runner) {
			r.Schedule(jobs.Periodic{Name: "sweep", When: jobs.Every(time.Hour), Job: once.Job(nil)})
		})
		eventually(t, "it is on time", func() bool { return strings.Contains(q.diagnose(), "fine: 1 schedule ticks on time") })
	})
}

// A worker that says that it lives, and does not promote.
func TestDiagnoseWhatNobodyPromotes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t), "")
	ctx := t.Context()
	must(t, q.rdb.XGroupCreateMkStream(ctx, "jobs", "workers", "0").Err())
	must(t, q.rdb.XGroupCreateConsumer(ctx, "jobs", "workers", "deaf").Err())
	must(t, q.rdb.HSet(ctx, "jobs:worker:deaf", "lease", 12_000).Err())
	q.addDelayed(float64(time.Now().Add(time.Hour).Unix()), `{"kind":"once","job_id":"later"}`)
	if text := q.diagnose(); strings.Contains(text, "overdue") {
		t.Error(text)
	}
	q.addDelayed(float64(time.Now().Add(-time.Hour).Unix()), `{"kind":"once","job_id":"sooner"}`)
	says(t, q.diagnose(), "error: the earliest delayed job is overdue by 1h0m")
}

func TestDiagnoseWithoutRedis(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nowhere(t), "")
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if found, err := q.Diagnose(ctx); err == nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestDiagnoseWhatNoWorkerKnows(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		w := q.hire(jobs.Config{}, handle(once, record[jobs.Fields](new(runs))))
		q.enqueue(render.Job(ticket{1, "14C"}))
		time.Sleep(5 * time.Second)
		says(t, q.diagnose(), `warning: jobs are put off again and again, since no worker that fetched them knew their kinds: "render_tickets"`)
		w.die()
		time.Sleep(30 * time.Second)
		says(t, q.diagnose(), "has been silent for ")
	})
}
