package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
)

// TestPicturesOfStates is TestPictures of what is seldom seen: nothing at all, what hostile producers wrote, a page that
// nobody guards, one without buttons, and a Redis that refuses.
func TestPicturesOfStates(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		w := newWorld(t, dashboard.Options{}, nil)
		pictures(t, open(t, 1280), w, "empty", map[string]string{
			"overview": "", "dead": "dead", "filtered": "dead?kind=x", "delayed": "delayed", "schedules": "schedules",
			"workers": "workers", "audit": "audit", "missing": "nothing", "nothing-chosen": "confirm?do=replay",
		})
	})
	t.Run("hostile", func(t *testing.T) {
		w := newWorld(t, dashboard.Options{Actor: hostileActor}, manyKinds)
		pictures(t, open(t, 1280), w, "hostile", w.hostile(t))
	})
	t.Run("read-only", func(t *testing.T) {
		w := newWorld(t, dashboard.Options{ReadOnly: true}, nil)
		pages := w.hostile(t)
		maps.DeleteFunc(pages, func(name, _ string) bool {
			return !slices.Contains([]string{"overview", "dead", "delayed", "cancel", "letter-bytes", "job-long"}, name)
		})
		pictures(t, open(t, 1280), w, "read-only", pages)
	})
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t, dashboard.Options{Authenticated: true}, nil)
		must(t, w.rdb.Set(t.Context(), prefix+"jobs:dead", "of another type", 0).Err())
		pictures(t, open(t, 1280), w, "refused", map[string]string{"overview": "", "dead": "dead"})
	})
}

const script = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>`

func hostileActor(*http.Request) string { return strings.Repeat("longactorname", 15) }

// hostile fills a queue with what no honest producer would write, and returns the pages that show it.
func (w *world) hostile(t *testing.T) map[string]string {
	t.Helper()
	long := strings.Repeat("unbroken", 200)
	letters := [][]any{
		{"kind", script, "job_id", script, "attempts", 2, "error", script, "traceback", script, script, script},
		{"kind", long, "job_id", long, "attempts", 999999999, "request_id", long, "trace", long, "error", strings.Repeat("ö", 4000), "traceback", strings.Repeat(strings.Repeat("wide ", 80)+"\n", 60)},
		{"kind", "render_tickets", "job_id", "bytes", "attempts", 1, "error", "\xff\xfe\x00\x1b[31m \u202ereversed", "traceback", "a\tb\r\nc", "bytes\xff", "\xfe\xfd", "control", "\x1b[31m\x00\u202e",
			"empty", "", "", "without a name", "big", strings.Repeat("é", 1<<18), "several lines", "one\ntwo\n\nfour", "spaces", "  a  ", long, "of a long name", "emoji", "👩‍👩‍👧‍👦 مرحبا שלום"},
		{"raw", "{rubbish \xff" + strings.Repeat("x", 3000), "error", "jobs: delayed holds what is no job: unexpected end of JSON input"},
	}
	many := []any{"kind", "many_fields", "job_id", "many", "attempts", 1, "error", "too many", "traceback", ""}
	for i := range 60 {
		many = append(many, fmt.Sprintf("field_%02d", i), i)
	}
	var entries []string
	for _, values := range append(letters, many) {
		entry, err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: prefix + "jobs:dead", Values: values}).Result()
		must(t, err)
		entries = append(entries, entry)
	}
	// Not by Enqueue, which refuses some of them.
	for i, fields := range []jobs.Fields{
		{"kind": script, "job_id": script, script: script}, {"kind": long, "job_id": long, long: long, "b": long, "c": long, "d": long},
		{"kind": "send_reminder", "job_id": "bytes", "bytes\xff": "\xfe", "lines": "one\ntwo", "request_id": "7f3a9c2e", "trace": "4bf92f35"},
	} {
		at := float64(time.Now().Add(time.Hour + time.Duration(i)*24*time.Hour).Unix())
		must(t, w.rdb.ZAdd(t.Context(), prefix+"delayed", redis.Z{Score: at, Member: member(t, fields)}).Err())
	}
	due := float64(time.Now().Add(90*time.Second).UnixMicro()) / 1e6
	retried := `{"kind":"send_tickets","job_id":"0197-4471","order_id":"4471","attempts":"3","last_error":"mail provider answered 503 after 10 s"}`
	must(t, w.rdb.ZAdd(t.Context(), prefix+"delayed", redis.Z{Score: due, Member: retried}, redis.Z{Score: due + 1, Member: `{"kind":"no_id"}`}).Err())
	// One more hand's deed, and one that named neither.
	must(t, w.client.DeadLetters().Discard(jobs.WithActor(t.Context(), hostileActor(nil)), w.copyOf(t, letters[1])))
	must(t, w.client.DeadLetters().Discard(t.Context(), w.copyOf(t, letters[0])))
	pages := map[string]string{
		"overview": "", "dead": "dead", "delayed": "delayed", "audit": "audit", "workers": "workers",
		"search": "dead?" + url.Values{"kind": {long}, "error": {script}}.Encode(),
		"chosen": "confirm?do=replay&entry=" + strings.Join(entries, "&entry="), "all": "confirm?do=replay-all",
		"cancel": "confirm?" + url.Values{"do": {"cancel"}, "id": {long}, "kind": {long}}.Encode(),
	}
	for i, name := range []string{"script", "long", "bytes", "raw", "many"} {
		pages["letter-"+name] = "letter?entry=" + entries[i]
	}
	for job, err := range w.client.Delayed().List(t.Context()) {
		must(t, err)
		name := map[string]string{long: "job-long", "bytes": "job-bytes", "0197-4471": "job-retried"}[job.ID]
		if name != "" {
			pages[name] = "job?" + url.Values{"due": {fmt.Sprint(job.Due.UnixMicro())}, "id": {job.ID}, "kind": {job.Kind}}.Encode()
		}
	}
	return pages
}

// member is a job as it lies in delayed.
func member(t *testing.T, fields jobs.Fields) string {
	t.Helper()
	encoded := jobs.Fields{}
	for name, value := range fields {
		encoded[base64.StdEncoding.EncodeToString([]byte(name))] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	text, err := json.Marshal(map[string]any{"fields_base64": encoded})
	must(t, err)
	return string(text)
}

func (w *world) copyOf(t *testing.T, values []any) (entry string) {
	t.Helper()
	entry, err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: prefix + "jobs:dead", Values: values}).Result()
	must(t, err)
	return entry
}

// manyKinds is a worker whose lists are long.
func manyKinds(r *jobs.Runner) {
	for i := range 40 {
		kind := jobs.NewKind[jobs.None](fmt.Sprintf("a_kind_with_quite_a_long_name_%02d", i), jobs.Policy{})
		jobs.Handle(r, kind, func(context.Context, jobs.None) error { return nil })
		if i%10 == 0 {
			r.Schedule(jobs.Periodic{When: jobs.Cron("*/7 3-5 1,15 * *"), Job: kind.Job(jobs.None{})})
		}
	}
}
