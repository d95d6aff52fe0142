package main

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

// levels are the findings of doctor, by level, with their advice.
func levels(t *testing.T, text string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, f := range parsed(t, text) {
		advice, _ := f["advice"].(string)
		found[f["level"].(string)] += f["what"].(string) + " (" + advice + ")\n"
	}
	return found
}

// A server as somebody left it who thought that it is a cache.
func TestDoctorAtAMisconfiguredRedis(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{
		"--save", "", "--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru",
	}})
	d := newDesk(t, server.Client(t))
	ctx := t.Context()
	must(t, d.client.Enqueue(ctx, raw("render_tickets").Job(nil), raw("render_tickets").Job(nil)))
	must(t, d.rdb.XGroupCreate(ctx, d.prefix+"jobs", "workers", "0").Err())
	taken, err := d.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: "gone", Streams: []string{d.prefix + "jobs", ">"}, Count: 1}).Result()
	must(t, err)
	must(t, d.rdb.Do(ctx, "xclaim", d.prefix+"jobs", "workers", "gone", 0, taken[0].Messages[0].ID, "idle", time.Hour.Milliseconds()).Err())
	must(t, d.rdb.Set(ctx, d.prefix+"delayed", "another program's", 0).Err())

	found := levels(t, d.do(exitPartly, "doctor", "--json"))
	has(t, found["error"], "maxmemory-policy is allkeys-lru", "noeviction", "no snapshots", "appendonly", `delayed" holds a string`)
	has(t, found["warning"], `1 consumer has no process, and with 1 job: "gone"`, "of gone for up to 1h0m0s", "no worker that runs handles")
	text := d.do(exitPartly, "doctor")
	if !strings.HasPrefix(text, "error    ") {
		t.Errorf("the worst is not first:\n%s", text)
	}
	has(t, text, "\n         set maxmemory-policy to noeviction\n", "\nwarning  ")
}

// A user who may do what a worker does, and not look at the server.
func TestDoctorWithoutRights(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--user", "app", "on", ">s3cret", "~*", "&*",
		"+@read", "+@write", "+@stream", "+@sortedset", "+@scripting", "+@transaction", "+@connection", "+type", "+time"}})
	d := newDesk(t, server.Client(t))
	d.url = "redis://app:s3cret@" + server.Addr()
	s := d.try("doctor", "--json")
	has(t, levels(t, s.out)["unknown"], "maxmemory-policy is not known", "persistence is not known")
	must(t, d.client.Enqueue(t.Context(), raw("k").Job(nil)))
	has(t, d.do(exitPartly, "doctor"), "unknown  ", "no worker runs")
}

// A queue that is well, on a server that keeps what it is given.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--appendonly", "yes"}})
	d := newDesk(t, server.Client(t))
	r := jobs.NewRunner(d.client, jobs.Config{Logger: slog.New(slog.DiscardHandler)})
	jobs.Handle(r, raw("k"), func(context.Context, jobs.Fields) error { return nil })
	d.run(r)
	eventually(t, "a worker runs", func() bool { return d.try("workers").code == exitDone })
	if found := levels(t, d.do(exitDone, "doctor", "--json")); len(found) != 1 || !strings.Contains(found["fine"], "1 worker runs") {
		t.Errorf("got %v", found)
	}
}

// A queue of which all is delayed and nobody works, on a server that is well: that alone is an error.
func TestDoctorWhereNobodyPromotes(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--appendonly", "yes"}})
	d := newDesk(t, server.Client(t))
	d.later("a")
	has(t, levels(t, d.do(exitDone, "doctor", "--json"))["warning"], "there is no stream: no job was ready yet", "no worker runs (")
	due := float64(time.Now().Add(-2 * time.Minute).Unix())
	must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(due, `{"kind":"k","job_id":"b"}`)).Err())
	text := d.do(exitPartly, "doctor")
	has(t, text, "error    no worker runs, and the earliest delayed job is overdue by 2m", "\n         start one\n")
	lacks(t, text, "ever enqueued", "prefix")
}
