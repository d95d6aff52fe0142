package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

func TestDelayed(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.do(exitPartly, "delayed", "ls")
		for id, in := range map[string]time.Duration{"soon": time.Minute, "later": 3 * time.Hour, "tomorrow": 24 * time.Hour} {
			job := raw("k_" + id).Job(jobs.Fields{"n": "1"}).In(in)
			job.ID = id
			must(t, d.client.Enqueue(t.Context(), job))
		}
		for _, c := range []struct{ args, want string }{
			{"", "soon later tomorrow"},
			{"--limit 2", "soon later"},
			{"--kind k_later", "later"},
			{"--from +1h", "later tomorrow"},
			{"--from +1h --until +5h", "later"},
		} {
			var got []string
			for _, j := range d.objects(append([]string{"delayed", "ls"}, strings.Fields(c.args)...)...) {
				got = append(got, j["id"].(string))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("delayed ls %s: %v, want %s", c.args, got, c.want)
			}
		}
		list := strings.Split(d.do(exitDone, "delayed", "ls"), "\n")
		has(t, list[0], "DUE", "IN", "KIND", "ID", "LAST ERROR")
		has(t, list[2], "2h59m", "k_later", "later")

		has(t, d.do(exitDone, "delayed", "show", "later"), "k_later", ", in 2h59m", "\n  n  1\n")
		if got := d.objects("delayed", "show", "soon"); len(got) != 1 || got[0]["id"] != "soon" || got[0]["kind"] != "k_soon" {
			t.Errorf("got %v", got)
		}
		if s := d.try("delayed", "show", "nobody", "soon"); s.code != exitPartly || !strings.Contains(s.out, "k_soon") {
			t.Errorf("one that is there and one that is not: %+v", s)
		}

		has(t, d.do(exitDone, "delayed", "run-now", "soon"), "ready soon")
		if s := d.try("delayed", "cancel", "later"); s.code != exitUsage || d.stats().Delayed != 2 {
			t.Errorf("cancelled without --yes: %+v", s)
		}
		if s := d.try("delayed", "cancel", "later", "nobody", "-y"); s.code != exitPartly || s.out != "cancelled later\n" {
			t.Errorf("one that is there and one that is not: %+v", s)
		}
		if s := d.stats(); s.Ready != 1 || s.Delayed != 1 {
			t.Errorf("left: %+v", s)
		}
		d.do(exitPartly, "delayed", "run-now", "later")
	})
}

// later delays a job under each ID for an hour.
func (d *desk) later(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		job := raw("k").Job(nil).In(time.Hour)
		job.ID = id
		must(d.t, d.client.Enqueue(d.t.Context(), job))
	}
}

// Who names a job twice means it once.
func TestADelayedJobIsNamedTwice(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.later("a", "b", "c")
		has(t, d.try("delayed", "cancel", "a", "b", "a").err, "Cancel 2 delayed jobs for good?")
		for _, c := range []struct{ args, want string }{
			{"cancel a b a -y", "cancelled a\ncancelled b\n"},
			{"run-now c c", "ready c\n"},
		} {
			if s := d.try(append([]string{"delayed"}, strings.Fields(c.args)...)...); s.code != exitDone || s.err != "" || s.out != c.want {
				t.Errorf("delayed %s: %+v", c.args, s)
			}
		}
	})
}

// A job that should have become ready says for how long, and one without an ID leaves no hole in the table.
func TestWhatIsOverdueSaysSo(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		ago := func(days int) float64 { return float64(time.Now().AddDate(0, 0, -days).Unix()) }
		must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(ago(4), `{"kind":"k","job_id":"a"}`), z(ago(3), `{"kind":"k"}`)).Err())
		list := strings.Split(d.do(exitDone, "delayed", "ls"), "\n")
		has(t, list[1], "  4d late  k     a   0")
		has(t, list[2], "  3d late  k     -   0")
		has(t, d.do(exitDone, "delayed", "show", "a"), ", 4d late\n")
	})
}

// Who goes on where a list says so misses nothing, whoever wrote the due times and however exactly, and comes to its end.
func TestDelayedListGoesOn(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		for i, score := range []float64{math.Inf(-1), 0, 1796015334, 1796015334, 1796015334, 1e15} {
			must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(score, fmt.Sprintf(`{"kind":"k","job_id":"%d"}`, i))).Err())
		}
		var seen []string
		args := []string{"delayed", "ls", "--json", "--limit", "1"}
		for range 12 {
			s := d.try(args...)
			for _, j := range parsed(t, s.out) {
				if id := j["id"].(string); len(seen) == 0 || seen[len(seen)-1] != id {
					seen = append(seen, id)
				}
			}
			_, on, more := strings.Cut(s.err, "There may be more: --after ")
			if s.code != exitDone || !more {
				break
			}
			place, _, _ := strings.Cut(on, ", ")
			args = []string{"delayed", "ls", "--json", "--limit", "1", "--after", place}
		}
		if got := strings.Join(seen, " "); got != "0 1 2 3 4 5" {
			t.Errorf("listed %s", got)
		}
		if s := d.try("delayed", "ls", "--limit", "6"); s.code != exitDone || s.err != "" {
			t.Errorf("all there are: %+v", s)
		}
	})
}

// What is due in thousands of years, by mistake for the most part, is so as JSON says it.
func TestDelayedVeryLate(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(math.Inf(1), `{"kind":"k","job_id":"never"}`), z(math.Inf(-1), `{"kind":"k","job_id":"ever"}`)).Err())
		list := strings.Split(d.do(exitDone, "delayed", "ls"), "\n")
		last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		in := fmt.Sprintf("%dd", (last.Unix()-time.Now().Unix())/86400)
		ago := fmt.Sprintf("%dd late", (time.Now().Unix()-time.Time{}.Unix())/86400)
		has(t, list[1], "0001-01-01 00:00:00  "+ago+"  k")
		has(t, list[2], "9999-12-31 23:59:59  "+in+" ")
		has(t, d.do(exitDone, "delayed", "show", "never"), "9999-12-31 23:59:59, in "+in+"\n")
	})
}

// What lies among the delayed and is no job counts there, and is told of where the list shows all.
func TestDelayedMembersThatAreNoJobs(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		add := func(member string) {
			must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(9e9, member)).Err())
		}
		const one = "jobs: 1 delayed member is no job and is not shown: it is dead-lettered when it is due\n"
		const two = "jobs: 2 delayed members are no jobs and are not shown: they are dead-lettered when they are due\n"
		add("rubbish")
		if s := d.try("delayed", "ls"); s.code != exitPartly || s.out != "" || !strings.HasPrefix(s.err, one) {
			t.Errorf("nothing but rubbish: %+v", s)
		}
		d.later("a", "b")
		add("[]")
		for args, says := range map[string]string{
			"": two, "--json": two, "--limit 0": two, "--kind k": "", "--from 1d": "", "--until +2h": "", "--limit 1": "",
		} {
			s := d.try(append([]string{"delayed", "ls"}, strings.Fields(args)...)...)
			if s.code != exitDone || says != "" && s.err != says || says == "" && strings.Contains(s.err, "member") {
				t.Errorf("delayed ls %s: %+v", args, s)
			}
		}
	})
}

// A time without a + is past, which is not what somebody means who looks for what is due soon.
func TestDelayedListInThePast(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.later("a")
		for args, says := range map[string]string{
			"--until 2h": "--until 2h is 2h00m ago; +2h is from now", "--from 1d": "--from 1d is 24h00m ago; +1d is from now",
		} {
			has(t, d.try(append([]string{"delayed", "ls"}, strings.Fields(args)...)...).err, says)
		}
		for _, args := range []string{"--until +2h", "--from yesterday", "--from now"} {
			if s := d.try(append([]string{"delayed", "ls"}, strings.Fields(args)...)...); s.code != exitDone || s.err != "" {
				t.Errorf("delayed ls %s: %+v", args, s)
			}
		}
	})
}

func TestEnqueue(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		s := d.try("enqueue", "send_tickets", "order_id=4471", "note=a=b c", "empty=", "--request-id", "r1")
		if s.code != exitDone {
			t.Fatal(s)
		}
		has(t, s.err, "no living worker handles the kind send_tickets")
		entries, err := d.rdb.XRange(t.Context(), d.prefix+"jobs", "-", "+").Result()
		must(t, err)
		v := entries[0].Values
		for name, want := range map[string]string{
			"kind": "send_tickets", "order_id": "4471", "note": "a=b c", "empty": "", "request_id": "r1", "job_id": strings.TrimSpace(s.out),
		} {
			if v[name] != want {
				t.Errorf("%s is %q, want %q", name, v[name], want)
			}
		}
		if got := d.objects("enqueue", "k", "--id", "one", "--in", "1d"); got[0]["id"] != "one" {
			t.Errorf("got %v", got)
		}
		d.do(exitDone, "enqueue", "k", "--id", "two", "--at", "2999-01-02T03:04:05Z")
		var due []time.Time
		for j, err := range d.client.Delayed().List(t.Context()) {
			must(t, err)
			due = append(due, j.Due)
		}
		in := time.Until(due[0])
		if len(due) != 2 || in < 23*time.Hour || in > 25*time.Hour || !due[1].Equal(time.Date(2999, 1, 2, 3, 4, 5, 0, time.UTC)) {
			t.Errorf("due at %v", due)
		}
		for _, args := range []string{"enqueue two\x00names", "enqueue k error=x"} {
			if s := d.try(strings.SplitN(strings.ReplaceAll(args, "\x00", "\u00a0 "), " ", 3)...); s.code != exitUsage {
				t.Errorf("%q: %+v", args, s)
			}
		}
	})
}

// Of a single job it is not said which of many it is.
func TestEnqueueIsRefused(t *testing.T) {
	t.Parallel()
	d := &desk{t: t, url: "redis://127.0.0.1:1"} // nothing is asked of it
	s := d.try("enqueue", "", "a=1")
	if s.code != exitUsage {
		t.Errorf("got %+v", s)
	}
	has(t, s.err, `jobs: enqueue: kind "": a kind without a name`)
}

// Without a + a duration is ago, which is not what somebody means who enqueues.
func TestEnqueueInThePast(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		for text, says := range map[string]string{
			"2h": "2h00m ago", "10s": "10s ago", "yesterday": " 00:00:00, ", "2020-01-02 03:04": "2020-01-02 03:04:00, ",
		} {
			s := d.try("enqueue", "k", "--at", text)
			if s.code != exitUsage || s.out != "" {
				t.Errorf("--at %s: %+v", text, s)
			}
			has(t, s.err, fmt.Sprintf("--at %q is past", text), says, "--in")
		}
		if s := d.stats(); s.Ready+s.Delayed != 0 {
			t.Errorf("enqueued: %+v", s)
		}
		for _, text := range []string{"now", time.Now().Format(time.RFC3339)} {
			d.do(exitDone, "enqueue", "k", "--at", text)
		}
		if s := d.stats(); s.Ready+s.Delayed != 2 {
			t.Errorf("enqueued: %+v", s)
		}
	})
}

func TestWorkersAndSchedules(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.do(exitPartly, "workers")
		d.do(exitPartly, "schedule", "ls")
		d.do(exitPartly, "schedule", "run-now", "nightly")

		running, release := make(chan string, 10), make(chan struct{})
		r := jobs.NewRunner(d.client, jobs.Config{Worker: "desk", Slots: 3, Lease: time.Second, Logger: slog.New(slog.DiscardHandler)})
		jobs.Handle(r, raw("render_tickets"), func(ctx context.Context, _ jobs.Fields) error {
			j, _ := jobs.FromContext(ctx)
			running <- j.ID
			<-release
			return nil
		})
		r.Schedule(jobs.Periodic{Name: "nightly", When: jobs.Daily(3, 0), Job: raw("render_tickets").Job(jobs.Fields{"from": "schedule"})})
		stop := d.run(r)
		t.Cleanup(func() { close(release); stop() })
		d.do(exitDone, "enqueue", "render_tickets", "--id", "one")
		<-running

		var w map[string]any
		eventually(t, "the worker says what runs", func() bool {
			s := d.try("workers", "--json")
			if s.code != exitDone {
				return false
			}
			w = parsed(t, s.out)[0]
			return len(w["running"].([]any)) == 1
		})
		job := w["running"].([]any)[0].(map[string]any)
		if w["alive"] != true || w["slots"] != 3. || job["id"] != "one" || job["kind"] != "render_tickets" {
			t.Errorf("got %v", w)
		}
		if s := d.try("enqueue", "render_tickets", "--in", "1h"); s.err != "" {
			t.Errorf("its kind is known, and yet: %s", s.err)
		}
		text := d.do(exitDone, "workers")
		has(t, text, "WORKER", "desk-", "1 of 3", "\n  render_tickets", "one", "attempt 1")
		d.schedules(running)
	})
}

func (d *desk) schedules(running chan string) {
	t := d.t
	var s map[string]any
	eventually(t, "the worker says when the next tick is", func() bool {
		s = d.objects("schedule", "ls")[0]
		return s["next"] != nil
	})
	next, err := time.Parse(time.RFC3339, s["next"].(string))
	if err != nil || next.Hour() != 3 || s["name"] != "nightly" || s["kind"] != "render_tickets" || s["workers"] != 1. {
		t.Errorf("got %v, %v", s, err)
	}
	has(t, d.do(exitDone, "schedule", "ls"), "NAME", "EXPRESSION", "nightly", "03:00:00")
	if out := d.do(exitDone, "schedule", "run-now", "nightly", "nightly", "--as", "ines"); out != "enqueued nightly\n" {
		t.Errorf("named twice: %q", out)
	}
	<-running
	trail := d.objects("audit", "ls")
	if !slices.ContainsFunc(trail, func(a map[string]any) bool {
		return a["who"] == "ines" && a["what"] == "run schedule" && a["schedule"] == "nightly"
	}) {
		t.Errorf("the trail is %v", trail)
	}
}

// tells has a worker describe itself that long ago, with more in its description. It owns an entry: miniredis lists no
// worker else.
func (d *desk) tells(worker string, ago time.Duration, more ...any) {
	d.t.Helper()
	ctx, stream := d.t.Context(), d.prefix+"jobs"
	_ = d.rdb.XGroupCreateMkStream(ctx, stream, "workers", "0").Err() // there already, perhaps
	must(d.t, d.client.Enqueue(ctx, raw("k").Job(nil)))
	must(d.t, d.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: worker, Streams: []string{stream, ">"}, Count: 1}).Err())
	now, err := d.rdb.Time(ctx).Result()
	must(d.t, err)
	seen := now.Add(-ago).Unix()
	self := append([]any{"host", "h", "pid", 1, "slots", 8, "lease", 12_000, "started", seen - 60, "seen", seen}, more...)
	must(d.t, d.rdb.HSet(ctx, d.prefix+"jobs:worker:"+worker, self...).Err())
}

// A worker that was killed is known to be so after two leases and one renewal, long before its description runs out.
func TestWorkersThatAreSilent(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		const run = `[{"entry":"1-0","job_id":"%s","kind":"render","attempts":2,"since":1}]`
		d.tells("idle", 20*time.Second, "running", fmt.Sprintf(run, "a"))
		d.tells("killed", 45*time.Second, "running", fmt.Sprintf(run, "b"))
		lines := strings.Split(d.do(exitDone, "workers"), "\n")
		has(t, lines[1], "idle", "s ago")
		has(t, lines[2], "  a ", "attempt 3")
		has(t, lines[3], "killed", "silent for 4")
		lacks(t, lines[3], "ago")
		has(t, lines[4], "  b ", "last told")
		lacks(t, lines[4], "attempt")
		all := d.objects("workers")
		if _, said := all[0]["silent"]; said || all[1]["silent"] != true || all[1]["alive"] != true {
			t.Errorf("got %v", all)
		}
	})
}

// A tick that nobody enqueued, since the schedule was new then, is not the last one.
func TestScheduleThatHasNotRun(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		ctx, last := t.Context(), time.Now().Truncate(24*time.Hour).Add(-24*time.Hour)
		d.tells("w", 0, "schedules", fmt.Sprintf(`[{"name":"nightly","kind":"k","expression":"0 0 * * *","next":%d,"job":"{\"kind\":\"k\"}"}]`,
			last.Add(48*time.Hour).Unix()))
		must(t, d.rdb.Set(ctx, d.prefix+"sched:nightly", fmt.Sprintf("%d 0 0 * * *", last.Unix()), 0).Err())
		list := func() string { return strings.Join(strings.Fields(d.do(exitDone, "schedule", "ls")), " ") }
		has(t, list(), " 00:00:00 - - 1")
		if s := d.objects("schedule", "ls")[0]; s["next"] == nil || s["last"] != nil {
			t.Errorf("got %v", s)
		}
		must(t, d.rdb.Set(ctx, d.prefix+fmt.Sprint("sched:nightly:", last.Unix()), "w-1234", 0).Err())
		has(t, list(), last.UTC().Format(time.DateTime)+" w-1234 1")
		if s := d.objects("schedule", "ls")[0]; s["last"] != last.UTC().Format(time.RFC3339) {
			t.Errorf("got %v", s)
		}
	})
}
