package jobs_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// raw is the newest entry of a stream, its names and values as redis-cli shows them.
func (q *queue) raw(stream string) []string {
	q.t.Helper()
	reply, err := q.rdb.Do(q.t.Context(), "xrevrange", q.key(stream), "+", "-", "count", 1).Slice()
	must(q.t, err)
	var flat []string
	for _, item := range reply[0].([]any)[1].([]any) {
		flat = append(flat, item.(string))
	}
	return flat
}

func TestWhatLiesInRedis(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		job := render.Job(ticket{4471, "14-C"})
		job.RequestID, job.Trace, job.Attempts = "7f3a9c2e", "4bf92f35", 9
		job.Tick = time.Date(2026, 11, 1, 4, 0, 0, 0, time.FixedZone("", 3600))
		flat := []string{"kind", "render_tickets", "order_id", "4471", "seat", "14-C", "job_id", job.ID,
			"scheduled_at", "2026-11-01T03:00:00Z", "attempts", "0", "request_id", "7f3a9c2e", "trace", "4bf92f35"}
		q.enqueue(job)
		if got := q.raw("jobs"); !slices.Equal(got, flat) {
			t.Errorf("jobs: %q", got)
		}

		q.enqueue(job.At(time.Unix(1_900_000_000, 123_456_001)))
		if due := q.delayed()[0].Due; due.UnixNano() != 1_900_000_000_123_457_000 {
			t.Errorf("due %d, rounded up to the microsecond", due.UnixNano())
		}
		for text, score := range q.scores() {
			var m jobs.Fields
			must(t, json.Unmarshal([]byte(text), &m))
			if want := fields(flat); !maps.Equal(m, want) || score != 1_900_000_000.123457 {
				t.Errorf("delayed: %f %v", score, m)
			}
		}

		q.start(jobs.Config{}, handle(render, func(context.Context, ticket) error { return jobs.Permanent(errSeat) }))
		dead := q.awaitDead(1)[0]
		want := slices.Clone(flat)
		want[11] = "1"
		want = append(want, "error", errSeat.Error(), "traceback", dead.Traceback)
		if got := q.raw("jobs:dead"); !slices.Equal(got, want) {
			t.Errorf("jobs:dead: %q", got)
		}
		keys, err := rdb.Keys(t.Context(), "*").Result()
		must(t, err)
		keys = slices.DeleteFunc(keys, func(key string) bool { // of the worker, which lives
			return strings.HasPrefix(key, "jobs:worker:") || strings.HasPrefix(key, "jobs:stats:")
		})
		groups, err := rdb.XInfoGroups(t.Context(), "jobs").Result()
		must(t, err)
		if slices.Sort(keys); !slices.Equal(keys, []string{"delayed", "jobs", "jobs:dead"}) || len(groups) != 1 || groups[0].Name != "workers" {
			t.Errorf("keys %q, groups %+v", keys, groups)
		}
	})
}

func fields(flat []string) jobs.Fields {
	m := jobs.Fields{}
	for i := 0; i < len(flat); i += 2 {
		m[flat[i]] = flat[i+1]
	}
	return m
}

func TestWhatIsNotUTF8WaitsInBase64(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		q.enqueue(once.Job(jobs.Fields{"a\xff": "\x00", "b": ""}).In(time.Hour))
		for text := range q.scores() {
			var m map[string]jobs.Fields
			must(t, json.Unmarshal([]byte(text), &m))
			decoded := jobs.Fields{}
			for name, value := range m["fields_base64"] {
				n, err := base64.StdEncoding.DecodeString(name)
				must(t, err)
				v, err := base64.StdEncoding.DecodeString(value)
				must(t, err)
				decoded[string(n)] = string(v)
			}
			if len(m) != 1 || decoded["a\xff"] != "\x00" || decoded["kind"] != "once" || len(decoded) != 5 {
				t.Errorf("%s is %q", text, decoded)
			}
		}
	})
}

func TestWhatOtherProgramsWrite(t *testing.T) {
	t.Parallel()
	same := func(id string) string { return id }
	tests := map[string]struct {
		entry    []string
		id       func(string) string
		attempts int
		request  string
		fields   jobs.Fields
	}{
		"a relay":            {[]string{"kind", "once", "outbox_id", "88210", "order_id", "4471", "request_id", "r"}, is("88210"), 0, "r", jobs.Fields{"order_id": "4471"}},
		"the scheduler":      {[]string{"kind", "once", "job_id", "j1", "attempts", "0"}, is("j1"), 0, "", jobs.Fields{}},
		"both IDs":           {[]string{"outbox_id", "o", "job_id", "j2", "kind", "once"}, is("j2"), 0, "", jobs.Fields{}},
		"an empty job_id":    {[]string{"kind", "once", "job_id", "", "outbox_id", "o3"}, is("o3"), 0, "", jobs.Fields{}},
		"no ID":              {[]string{"kind", "once", "a", "b"}, same, 0, "", jobs.Fields{"a": "b"}},
		"empty IDs":          {[]string{"kind", "once", "job_id", "", "outbox_id", "", "attempts", "7"}, same, 7, "", jobs.Fields{}},
		"a name given twice": {[]string{"kind", "x", "a", "1", "job_id", "j4", "a", "2", "kind", "once", "attempts", "x", "attempts", "3"}, is("j4"), 3, "", jobs.Fields{"a": "2"}},
		"odd names":          {[]string{"", "empty", "kind", "once", "fields_base64", "x", "\xff", "\xfe", "job_id", "j5"}, is("j5"), 0, "", jobs.Fields{"": "empty", "fields_base64": "x", "\xff": "\xfe"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				id := test.id(q.add("jobs", test.entry...))
				var rs runs
				kind := jobs.NewKind[jobs.Fields]("once", jobs.Policy{Retries: 100, Backoff: soon})
				q.start(jobs.Config{}, handle(kind, func(ctx context.Context, f jobs.Fields) error {
					job := rs.add(ctx)
					if job.ID != id || job.RequestID != test.request || !maps.Equal(f, test.fields) || !maps.Equal(job.Fields, f) {
						t.Errorf("a run of %+v", job)
					}
					if job.Attempts > test.attempts {
						return jobs.Permanent(errMail)
					}
					return errMail
				}))
				dead := q.awaitDead(1)[0]
				must(t, q.DeadLetters().Replay(t.Context(), dead.Entry, jobs.ReplayOptions{}))
				all := rs.wait(t, 3)
				if dead.ID != id || dead.Attempts != test.attempts+2 || !maps.Equal(dead.Fields, test.fields) || all[0].Attempts != test.attempts || all[2].Attempts != 0 {
					t.Errorf("dead as %+v", dead)
				}
			})
		})
	}
}

func is(id string) func(string) string { return func(string) string { return id } }

func TestMembersOfDelayedThatOtherProgramsWrite(t *testing.T) {
	t.Parallel()
	members := map[string]string{
		"compact":   `{"kind":"once","job_id":"compact","n":"9007199254740993"}`,
		"spaced":    "\t{ \"n\" : \"9007199254740993\" ,\n \"job_id\":\"spaced\",\"kind\":\"once\"}\r\n",
		"escaped":   `{"\u006bind":"once","job_id":"esc\u0061ped","n":"900719925474099\u0033"}`,
		"twice":     `{"kind":"x","n":"1","job_id":"twice","n":"9007199254740993","kind":"once"}`,
		"outbox":    `{"kind":"once","outbox_id":"outbox","n":"9007199254740993"}`,
		"packed":    `{"fields_base64":{"a2luZA==":"b25jZQ==","am9iX2lk":"cGFja2Vk","bg==":"OTAwNzE5OTI1NDc0MDk5Mw=="}}`,
		"with name": `{"kind":"once","job_id":"with name","n":"9007199254740993","fields_base64":"x"}`,
	}
	each(t, func(t *testing.T, q *queue) {
		score := -3.0
		for _, member := range members {
			q.addDelayed(score, member)
			score += 1.5
		}
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		for _, job := range rs.wait(t, len(members)) {
			if members[job.ID] == "" || job.Fields["n"] != "9007199254740993" {
				t.Errorf("%+v", job)
			}
		}
	})
}

func TestY05_NumbersAndEmptiesSurvive(t *testing.T) {
	t.Parallel()
	args := jobs.Fields{
		"id": "9007199254740993", "list": "[]", "empty": "", "sp": " x ", "long": strings.Repeat("a", 1<<20),
		"object": "{}", "slash": "</a>", "bytes": "\x00\xff\r\n", "": "no name", "true": "true", "float": "1e100",
	}
	kind := jobs.NewKind[jobs.Fields]("keeps", jobs.Policy{Retries: 1, Backoff: soon})
	each(t, func(t *testing.T, q *queue) {
		check := func(where string, got jobs.Fields) {
			t.Helper()
			for name, want := range args {
				if got[name] != want || len(got) != len(args) {
					t.Errorf("%s: %q is %.100q, want %.100q", where, name, got[name], want)
				}
			}
		}
		failing := true
		ran := make(chan jobs.Fields)
		q.start(jobs.Config{}, handle(kind, func(_ context.Context, f jobs.Fields) error {
			ran <- f
			if failing {
				return errMail
			}
			return nil
		}))
		q.enqueue(kind.Job(args).In(time.Second))
		check("delayed", q.delayed()[0].Fields)
		check("first run", receive(t, ran))
		check("retry", receive(t, ran))
		dead := q.awaitDead(1)[0]
		check("dead", dead.Fields)
		failing = false
		must(t, q.DeadLetters().Replay(t.Context(), dead.Entry, jobs.ReplayOptions{}))
		check("replayed", receive(t, ran))
		q.idle()
	})
}

func TestY06_NoKindAndEmptyKind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		bad := map[string]jobs.Fields{}
		for _, entry := range [][]string{{"a", "b"}, {"kind", ""}, {"", "x"}, {"kind", "once", "kind", ""}} {
			bad[q.add("jobs", entry...)] = fields(entry)
		}
		good := once.Job(nil)
		q.enqueue(good)
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		within(t, prompt, "the good job runs", func() bool { return len(rs.all()) == 1 })
		for _, d := range q.awaitDead(len(bad)) {
			own := bad[d.ID]
			delete(own, "kind") // it is no argument
			if d.Reason != jobs.ReasonUndecodable || !strings.Contains(d.Error, `"kind"`) || d.Kind != "" || d.Attempts != 0 || !maps.Equal(d.Fields, own) {
				t.Errorf("%v: %+v", own, d)
			}
		}
		if q.idle(); len(rs.all()) != 1 {
			t.Errorf("%d runs", len(rs.all()))
		}
	})
}

func TestY08_AttemptsAreRubbish(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.Fields]("fails", jobs.Policy{Retries: 2, Backoff: jobs.FullJitter(10*time.Millisecond, 100*time.Millisecond)})
	tests := map[string]struct{ runs, attempts int }{
		"abc": {0, 0}, "": {0, 0}, "-5": {0, 0}, "-9223372036854775808": {0, 0}, "9223372036854775808": {0, 0},
		"1e9": {0, 0}, "+1": {0, 0}, " 1": {0, 0}, "1\n": {0, 0}, "2147483647": {0, 0}, strings.Repeat("9", 100_000): {0, 0},
		"999999": {1, 1_000_000}, "absent": {3, 3}, "007": {1, 8}, "1": {2, 3},
	}
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		ids := map[string]string{}
		for text := range tests {
			pairs := []string{"kind", "fails", "a", "b"}
			if text != "absent" {
				pairs = append(pairs, "attempts", text)
			}
			ids[q.add("jobs", pairs...)] = text
		}
		q.start(jobs.Config{}, handle(kind, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			return errMail
		}))
		for _, d := range q.awaitDead(len(tests)) {
			text := ids[d.ID]
			want := tests[text]
			if rs.of(d.ID) != want.runs || d.Attempts != want.attempts || d.Fields["a"] != "b" {
				t.Errorf("attempts %.30q: %d runs, dead as %+v", text, rs.of(d.ID), d.Job)
			}
			if undecodable := d.Reason == jobs.ReasonUndecodable; undecodable != (want.runs == 0) || undecodable && !strings.Contains(d.Error, `"attempts"`) {
				t.Errorf("attempts %.30q: reason %q, error %.200q", text, d.Reason, d.Error)
			}
		}
		for _, f := range q.entries("jobs:dead") {
			if !regexp.MustCompile(`^[0-9]+$`).MatchString(f["attempts"]) {
				t.Errorf("dead with attempts %q", f["attempts"])
			}
		}
	})
}

func TestMoreThanAThousandFieldsAreRaw(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		sizes := map[string]int{}
		for _, n := range []int{1001, 4100} {
			pairs := []string{"kind", "once"}
			for i := len(pairs) / 2; i < n; i++ {
				pairs = append(pairs, fmt.Sprint("f", i), "\xff")
			}
			sizes[q.add("jobs", pairs...)] = n
		}
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		for _, d := range q.awaitDead(len(sizes)) {
			n := sizes[d.ID]
			if d.Reason != jobs.ReasonUndecodable || !strings.Contains(d.Error, fmt.Sprint(n, " fields")) || len(d.Fields) != 0 || d.Kind != "once" {
				t.Errorf("%+v", d)
			}
			var m map[string]jobs.Fields
			must(t, json.Unmarshal([]byte(d.Raw), &m))
			if len(m["fields_base64"]) != n {
				t.Errorf("raw has %d fields, of %d", len(m["fields_base64"]), n)
			}
			if err := q.DeadLetters().Replay(t.Context(), d.Entry, jobs.ReplayOptions{}); err == nil {
				t.Error("replayed")
			}
		}
		if flat := q.raw("jobs:dead"); flat[len(flat)-4] != "error" || flat[len(flat)-2] != "traceback" {
			t.Errorf("error and traceback are not the last two fields: %.100q", flat)
		}
		q.enqueue(once.Job(nil))
		if all := rs.wait(t, 1); len(all) != 1 {
			t.Errorf("runs %v", all)
		}
	})
}

func TestAThousandForeignFieldsLiveThroughAllOfIt(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.Fields]("wide", jobs.Policy{Retries: 1, Backoff: soon})
	each(t, func(t *testing.T, q *queue) {
		pairs := []string{"kind", "wide"}
		for i := range 999 {
			pairs = append(pairs, fmt.Sprint(i), "x")
		}
		id := q.add("jobs", pairs...) // what a runner adds is not held against it
		var rs runs
		q.start(jobs.Config{}, handle(kind, func(ctx context.Context, f jobs.Fields) error {
			if rs.add(ctx); len(f) != 999 {
				t.Errorf("%d fields", len(f))
			}
			return errMail
		}))
		dead := q.awaitDead(1)[0]
		if dead.ID != id || dead.Attempts != 2 || len(dead.Fields) != 999 || dead.Error != errMail.Error() {
			t.Errorf("%d attempts, %d fields, error %q", dead.Attempts, len(dead.Fields), dead.Error)
		}
		must(t, q.DeadLetters().Replay(t.Context(), dead.Entry, jobs.ReplayOptions{}))
		rs.wait(t, 4)
	})
}
