package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
	"github.com/stagedoor/jobs/internal/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// site is a page on a queue, and a browser that has nothing but links and forms.
type site struct {
	t      *testing.T
	rdb    *redis.Client
	client *jobs.Client
	url    string
	http   *http.Client
}

// each runs a test on miniredis and on Redis.
func each(t *testing.T, o dashboard.Options, f func(t *testing.T, s *site)) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) { f(t, newSite(t, rdb, o)) })
}

// newSite mounts the page under a path that is stripped.
func newSite(t *testing.T, rdb *redis.Client, o dashboard.Options) *site {
	t.Helper()
	client := jobs.NewClient(rdb, jobs.Options{})
	mux := http.NewServeMux()
	mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", dashboard.Handler(client, o)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &site{t, rdb, client, server.URL + "/admin/jobs/", &http.Client{CheckRedirect: stay}}
}

var marek = dashboard.Options{Actor: func(*http.Request) string { return "marek" }}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *site) do(method, path string, form url.Values, header ...string) answer {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	must(s.t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	reply, err := s.http.Do(r)
	must(s.t, err)
	defer reply.Body.Close()
	all, err := io.ReadAll(reply.Body)
	must(s.t, err)
	return answer{reply.StatusCode, reply.Header, string(all)}
}

// get is a page that is there.
func (s *site) get(path string) string {
	s.t.Helper()
	a := s.do("GET", path, nil)
	if a.status != 200 {
		s.t.Fatalf("GET %s: %d\n%s", path, a.status, a.body)
	}
	return a.body
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// sure answers the question on a page with yes, and returns the page where that leads.
func (s *site) sure(question string) string {
	s.t.Helper()
	_, form, ok := strings.Cut(question, `action="act"`)
	if !ok {
		s.t.Fatalf("nothing is asked:\n%s", question)
	}
	values := asked(form)
	a := s.do("POST", "act", values)
	if a.status != http.StatusSeeOther {
		s.t.Fatalf("POST act %v: %d\n%s", values, a.status, a.body)
	}
	return s.get(a.header.Get("Location"))
}

// asked is what the form of a question sends.
func asked(question string) url.Values {
	values := url.Values{}
	for _, m := range hiddenInput.FindAllStringSubmatch(question, -1) {
		values.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	return values
}

// bury puts dead letters where a worker would, and returns their entries.
func (s *site) bury(letters ...jobs.Fields) (entries []string) {
	s.t.Helper()
	for i, fields := range letters {
		values := map[string]any{"kind": "render_tickets", "job_id": fmt.Sprint(88210 + i), "attempts": "2", "error": "bad", "traceback": "line 88"}
		for name, value := range fields {
			values[name] = value
		}
		entry, err := s.rdb.XAdd(s.t.Context(), &redis.XAddArgs{Stream: "jobs:dead", Values: values}).Result()
		must(s.t, err)
		entries = append(entries, entry)
	}
	return entries
}

// ready are the jobs on the stream.
func (s *site) ready() (all []map[string]any) {
	s.t.Helper()
	entries, err := s.rdb.XRange(s.t.Context(), "jobs", "-", "+").Result()
	must(s.t, err)
	for _, e := range entries {
		all = append(all, e.Values)
	}
	return all
}

func (s *site) audit() (all []jobs.Action) {
	s.t.Helper()
	for a, err := range s.client.Audit(s.t.Context(), jobs.Filter{}) {
		must(s.t, err)
		all = append(all, a)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			t.Errorf("%q is not on the page\n%s", part, page)
		}
	}
}

func lacks(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(page, part) {
			t.Errorf("%q is on the page\n%s", part, page)
		}
	}
}

func TestReplayOfASelection(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		e := s.bury(jobs.Fields{"order_id": "1"}, jobs.Fields{"order_id": "2"}, jobs.Fields{"order_id": "3", "kind": "send_tickets"})
		question := s.get("confirm?do=replay&entry=" + e[0] + "&entry=" + e[2] + "&kind=")
		contains(t, question, "Replay 2 dead letters?")
		must(t, s.client.DeadLetters().Discard(t.Context(), e[2])) // somebody else is quicker
		page := s.sure(question)
		contains(t, page, "1 dead letter is back on the stream. 1 had gone before", e[1])
		lacks(t, page, e[0])
		if got := s.ready(); len(got) != 1 || got[0]["order_id"] != "1" || got[0]["attempts"] != "0" {
			t.Errorf("ready: %v", got)
		}
		if a := s.audit()[0]; a.Who != "marek" || a.What != jobs.ActionReplay || a.Entry != e[0] {
			t.Errorf("audit: %+v", a)
		}
	})
}

func TestReplayOfAKind(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		s.bury(jobs.Fields{"kind": "other"}, nil, nil, jobs.Fields{"error": "good"})
		question := s.get("confirm?do=replay-all&kind=render_tickets&error=bad")
		contains(t, question, "Replay 2 dead letters of the kind render_tickets?")
		const late = "9999999999999-0" // what dies later is not what was shown
		must(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs:dead", ID: late, Values: []any{"kind", "render_tickets", "error", "bad"}}).Err())
		contains(t, s.sure(question), "2 dead letters are back", late)
		if n := len(s.ready()); n != 2 {
			t.Errorf("%d are ready, want 2", n)
		}
	})
}

// However long a person thinks, what was shown to them is replayed: the last hour is the one before the question.
func TestReplayOfTheLastHour(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		died := func(ago time.Duration) string {
			entry := fmt.Sprintf("%d-0", time.Now().Add(-ago).UnixMilli())
			must(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs:dead", ID: entry, Values: []any{"kind", "k", "error", "bad"}}).Err())
			return entry
		}
		before := died(2 * time.Hour)
		died(40 * time.Minute)
		died(20 * time.Minute)
		question := s.get("confirm?do=replay-all&since=1h")
		contains(t, question, "Replay 2 dead letters?", `name="since" value="1h"`)
		// As if it were half an hour later: then a duration reaches back as far as half an hour does now.
		later := strings.Replace(question, `name="since" value="1h"`, `name="since" value="30m"`, 1)
		contains(t, s.sure(later), "2 dead letters are back on the stream.")
		if n := len(s.ready()); n != 2 {
			t.Errorf("%d are ready, want 2", n)
		}
		contains(t, s.get("dead"), before)
		a := s.do("POST", "act", url.Values{"do": {"replay-all"}, "since": {"3h"}, "until": {"9999999999999"}})
		if a.status != 400 || len(s.ready()) != 2 {
			t.Errorf("not said since when: %d, ready %v", a.status, s.ready())
		}
	})
}

func TestDiscard(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		e := s.bury(nil, nil)
		question := s.get("confirm?do=discard&entry=" + e[0])
		contains(t, question, "Discard 1 dead letter?")
		contains(t, s.get("dead"), e[0]) // asking did nothing
		page := s.sure(question)
		contains(t, page, "1 dead letter is deleted.", e[1])
		gone := s.do("GET", "letter?entry="+e[0], nil)
		contains(t, gone.body, "Not here any more", "discard", "marek")
		if gone.status != 404 || len(s.ready()) != 0 {
			t.Errorf("status %d, ready %v", gone.status, s.ready())
		}
	})
}

func TestCorrectAndReplay(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		fields := jobs.Fields{"label": "14-C", "note": "two\nlines", "raw bytes": "\xff\x00", "cr": "a\r\nb", "same": "x"}
		e := s.bury(fields)
		contains(t, s.get("letter?entry="+e[0]), `name="set:label" value="14-C"`, "line 88", "not to be corrected in a form")
		// As a browser sends it: line ends become CRLF; what it was not given is not there, and a forged one is ignored.
		question := s.do("POST", "confirm", url.Values{"do": {"correct"}, "entry": {e[0]}, "set:label": {"14C"},
			"set:note": {"two\r\nlines"}, "set:same": {"x"}, "set:raw bytes": {"??"}, "add": {"hall"}, "added": {"big\r\none"}})
		contains(t, question.body, "<del>14-C</del>", "<ins>14C</ins>", "hall")
		lacks(t, question.body, "two", "raw bytes")
		contains(t, s.sure(question.body), "1 dead letter is back on the stream.")
		want := map[string]any{"kind": "render_tickets", "job_id": "88210", "attempts": "0", "label": "14C", "hall": "big\none"}
		for _, name := range []string{"note", "raw bytes", "cr", "same"} {
			want[name] = fields[name]
		}
		if got := s.ready(); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
			t.Errorf("ready: %q\nwant %q", got, want)
		}
		if a := s.audit()[0]; fmt.Sprint(a.Set) != "[hall label]" {
			t.Errorf("audit: %+v", a)
		}
		unchanged := s.do("POST", "confirm", url.Values{"do": {"correct"}, "entry": {s.bury(fields)[0]}, "set:label": {"14-C"}})
		contains(t, unchanged.body, "Nothing was changed")
	})
}

// Who is asked and would not yet finds in the form what they had typed.
func TestCorrectionThatIsNotSure(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		e := s.bury(jobs.Fields{"label": "14-C", "note": "one\ntwo", "seat": "9"})
		question := s.do("POST", "confirm", url.Values{"do": {"correct"}, "entry": e, "set:label": {`1"4`}, "set:seat": {"9"},
			"set:note": {"three\r\nfour"}, "add": {"hall"}, "added": {"big\r\none"}}).body
		contains(t, question, `<button formaction="letter?entry=`+e[0]+`">Do not</button>`)
		back := s.do("POST", "letter?entry="+e[0], asked(question))
		if back.status != 200 || len(s.ready())+len(s.audit()) != 0 {
			t.Errorf("back: %d, ready %v, audit %v", back.status, s.ready(), s.audit())
		}
		contains(t, back.body, `name="set:label" value="1&#34;4"`, `name="set:seat" value="9"`, "\nthree\nfour</textarea>",
			"<details open>", `name="add" value="hall"`, "\nbig\none</textarea>")
		contains(t, s.get("letter?entry="+e[0]), `name="set:label" value="14-C"`, "<details><summary>")
		// A link is typed by somebody else: it shows what the letter holds.
		foreign := s.get("letter?entry=" + e[0] + "&set:label=15-D&set:hall=big")
		contains(t, foreign, `name="set:label" value="14-C"`, "<details><summary>")
		lacks(t, foreign, "15-D", "big")
	})
}

// What a keyboard writes can be corrected, and what hides or turns text is shown as what it is.
func TestWhatCanBeCorrected(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		text := jobs.Fields{"emoji": "👩\u200d👩\u200d👧\u200d👦 ❤️\u200d🔥 👨🏽\u200d🚀", "persian": "می\u200cخواهم", "hindi": "क्\u200dष", "hebrew": "שלום", "accents": "e\u0301"}
		odd := jobs.Fields{"joined": "ad\u200dmin", "end": "é\u200d", "override": "é\u202e", "isolate": "é\u2066é", "mark": "\u200f",
			"escape": "\x1b", "space": "\u200b", "tag": "🏴\U000e0067"}
		letter := jobs.Fields{}
		maps.Copy(letter, text)
		maps.Copy(letter, odd)
		page := s.get("letter?entry=" + s.bury(letter)[0])
		for name, value := range text {
			contains(t, page, `name="set:`+name+`" value="`+value+`"`)
		}
		for name, value := range odd {
			lacks(t, page, `name="set:`+name+`"`, value)
		}
		contains(t, page, `ad\u200dmin`, `é\u200d`, `é\u202e`, `é\u2066é`, `\u200f`, `\x1b`, `\u200b`, `🏴\U000e0067`)
	})
}

func TestDelayed(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		remind := jobs.NewKind[jobs.Fields]("send_reminder", jobs.Policy{})
		var all []jobs.Job
		for i := range 120 {
			job := remind.Job(jobs.Fields{"order_id": fmt.Sprint(i)}).In(time.Hour + time.Duration(i)*time.Minute)
			job.ID = fmt.Sprintf("id-%03d.", i)
			all = append(all, job)
		}
		must(t, s.client.Enqueue(t.Context(), all...))
		seen := map[string]int{}
		path := "delayed"
		for pages := 0; path != ""; pages++ {
			page := s.get(path)
			for _, m := range regexp.MustCompile(`<code>(id-\d+\.)</code>`).FindAllStringSubmatch(page, -1) {
				seen[m[1]]++
			}
			path = ""
			if m := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(page); m != nil {
				path = html.UnescapeString(m[1])
			}
			if pages > 5 {
				t.Fatal("the pages do not end")
			}
		}
		if len(seen) != 120 {
			t.Errorf("%d jobs on all pages, want 120", len(seen))
		}
		found := s.get("delayed?id=id-100.")
		contains(t, found, "id-100.", "119 others were looked at.")
		m := regexp.MustCompile(`href="(job\?[^"]*)"`).FindStringSubmatch(found)
		contains(t, s.get(html.UnescapeString(m[1])), "id-100.", "order_id")
		contains(t, s.get("delayed?from="+time.Now().Add(48*time.Hour).UTC().Format("2006-01-02T15:04")), "Nothing is delayed that late")

		contains(t, s.sure(s.get("confirm?do=run-now&id=id-100.&kind=send_reminder")), "The job is ready.")
		contains(t, s.sure(s.get("confirm?do=cancel&id=id-101.&kind=send_reminder")), "The job is cancelled.")
		if got := s.ready(); len(got) != 1 || got[0]["job_id"] != "id-100." {
			t.Errorf("ready: %v", got)
		}
		a := s.do("POST", "act", url.Values{"do": {"cancel"}, "id": {"id-101."}})
		if a.status != 404 || len(s.audit()) != 2 {
			t.Errorf("cancelled twice: %d, audit %v", a.status, s.audit())
		}
	})
}

func TestDelayedJobsThatWereLookedAt(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		for _, id := range []string{"a", "b"} {
			must(t, s.client.Enqueue(t.Context(), jobs.Job{Kind: "k", ID: id}.In(time.Hour)))
		}
		contains(t, s.get("delayed?id=a"), " 1 other was looked at.")
		contains(t, s.get("delayed?id=c"), " 2 others were looked at.")
		contains(t, s.get("confirm?do=cancel&id=a&kind=k"), "Cancel the job a (k)?")
		contains(t, s.get("confirm?do=cancel&id=a"), "Cancel the job a?")
	})
}

func TestListPagesByCursor(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		e := s.bury(make([]jobs.Fields, 51)...)
		page := s.get("dead?kind=render_tickets")
		contains(t, page, e[50], e[1])
		lacks(t, page, e[0])
		m := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(page)
		next := s.get(html.UnescapeString(m[1]))
		contains(t, next, e[0], "back to the newest")
		lacks(t, next, `value="`+e[1]+`"`, `rel="next"`)
	})
}

// What is a place in the list is the list's to say. (A Redis that does not answer is no matter of the place.)
func TestThePageTakesEachCursorOfTheList(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		for _, cursor := range []string{"1.5/0", "1/+1", "-inf/3", "1e3/2", "+1/1", "1/ 1", "1", "/", "", "nan/1", "1/1e3"} {
			want := 200
			for _, err := range s.client.Delayed().ListAfter(t.Context(), cursor) {
				if err != nil && cursor != "" { // which is the first page
					want = 400
				}
			}
			if a := s.do("GET", "delayed?"+url.Values{"after": {cursor}}.Encode(), nil); a.status != want {
				t.Errorf("after %q: %d, want %d", cursor, a.status, want)
			}
		}
		must(t, s.rdb.Set(t.Context(), "delayed", "no sorted set", 0).Err())
		if a := s.do("GET", "delayed?after=1/1", nil); a.status != 503 {
			t.Errorf("where Redis refuses: %d", a.status)
		}
	})
}

// What is searched for is read once: for what nobody has it is all there is, which no open tab reads again and again.
func TestSearchIsNotLive(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		s.bury(nil)
		for _, path := range []string{"dead", "dead?before=9999999999999-0", "dead?kind=", "delayed", "delayed?from=2026-03-29T03:00", "audit"} {
			contains(t, s.get(path), `id="live"`, " data-live>")
		}
		for _, path := range []string{"dead?id=nosuch", "dead?kind=render_tickets", "dead?error=bad&before=9999999999999-0", "dead?since=1h",
			"delayed?id=nosuch", "delayed?kind=other", "audit?kind=other", "audit?id=nosuch"} {
			lacks(t, s.get(path), `id="live"`, "data-live")
		}
	})
}

func TestFleet(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		slow := jobs.NewKind[jobs.None]("reconcile", jobs.Policy{})
		started, finish := make(chan struct{}, 1), make(chan struct{})
		r := jobs.NewRunner(s.client, jobs.Config{Worker: "worker-01", Lease: 2 * time.Second})
		jobs.Handle(r, slow, func(context.Context, jobs.None) error { started <- struct{}{}; <-finish; return nil })
		r.Schedule(jobs.Periodic{When: jobs.Daily(3, 0), Job: slow.Job(jobs.None{})})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		defer func() {
			close(finish)
			stop()
			must(t, <-ended)
		}()
		deadline := time.Now().Add(20 * time.Second)
		for list, err := s.client.Schedules(t.Context()); len(list) == 0; list, err = s.client.Schedules(t.Context()) {
			if err != nil || time.Now().After(deadline) {
				t.Fatal("no schedule", err)
			}
		}
		contains(t, s.get("schedules"), "reconcile", "run-schedule")
		contains(t, s.sure(s.get("confirm?do=run-schedule&name=reconcile")), "The schedule&#39;s job is ready.")
		<-started
		for {
			list, err := s.client.Workers(t.Context())
			if len(list) == 1 && len(list[0].Running) == 1 {
				break
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatal("nothing runs", err)
			}
		}
		workers := s.get("workers")
		contains(t, workers, "worker-01", "reconcile", "1 of 8", `<span title="since `)
		lacks(t, workers, "Nothing runs.")
		contains(t, s.get(""), "8 slots of 1 worker")
		contains(t, s.get("audit"), "marek", "run schedule")
	})
}

// tells has a worker describe itself that long ago, with more in its description. It owns an entry: miniredis lists no
// worker else.
func (s *site) tells(worker string, ago time.Duration, more ...any) {
	s.t.Helper()
	ctx := s.t.Context()
	_ = s.rdb.XGroupCreateMkStream(ctx, "jobs", "workers", "0").Err() // there already, perhaps
	must(s.t, s.client.Enqueue(ctx, jobs.Job{Kind: "k"}))
	must(s.t, s.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: worker, Streams: []string{"jobs", ">"}, Count: 1}).Err())
	seen := time.Now().Add(-ago).Unix()
	self := append([]any{"host", "h", "pid", 1, "slots", 8, "lease", 12_000, "started", seen - 60, "seen", seen}, more...)
	must(s.t, s.rdb.HSet(ctx, "jobs:worker:"+worker, self...).Err())
}

// A worker that was killed is known to be so long before its description runs out.
func TestWorkersThatAreSilent(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		running := []any{"running", `[{"entry":"1-0","job_id":"a","kind":"render","attempts":2,"since":1}]`}
		s.tells("idle", 20*time.Second, running...)
		lacks(t, s.get("workers"), "silent", "last told")
		s.tells("killed", 45*time.Second, running...)
		page := s.get("workers")
		contains(t, page, "silent for 4")
		if n := strings.Count(page, "last told, it may run elsewhere by now"); n != 1 {
			t.Errorf("%d jobs may run elsewhere, want 1\n%s", n, page)
		}
	})
}

// A tick that nobody enqueued, since the schedule was new then, is not the last one.
func TestScheduleThatHasNotRun(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		last := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
		s.tells("w", 0, "schedules", `[{"name":"nightly","kind":"k","expression":"0 0 * * *","next":4102444800,"job":"{\"kind\":\"k\"}"}]`)
		must(t, s.rdb.Set(t.Context(), "sched:nightly", fmt.Sprintf("%d 0 0 * * *", last.Unix()), 0).Err())
		page := s.get("schedules")
		contains(t, page, "none yet", "nobody")
		lacks(t, page, "Nov 29")
		must(t, s.rdb.Set(t.Context(), fmt.Sprint("sched:nightly:", last.Unix()), "w-1234", 0).Err())
		page = s.get("schedules")
		contains(t, page, "Nov 29", "w-1234")
		lacks(t, page, "none yet")
		// An hourly one that stands still: who enqueued its last tick is forgotten by then.
		hour := time.Now().Add(-3 * time.Hour).Unix()
		s.tells("w", 0, "schedules", fmt.Sprintf(`[{"name":"hourly","kind":"k","expression":"0 * * * *","next":%d,"job":"{\"kind\":\"k\"}"}]`, hour+3600))
		must(t, s.rdb.Set(t.Context(), "sched:hourly", fmt.Sprintf("%d 0 * * * *", hour), 0).Err())
		page = s.get("schedules")
		contains(t, page, "3 h ago", "not known any more")
		lacks(t, page, "none yet", "nobody")
	})
}

// The present is part of the last hour: what has just died is not more than the most.
func TestTheMostOfTheHourIsNotLessThanNow(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		s.bury(nil, nil)
		minute := fmt.Sprintf("jobs:stats:%d", time.Now().Add(-time.Minute).Unix()/60)
		must(t, s.rdb.HSet(t.Context(), minute, "ready", 7, "running", 0, "delayed", 0, "dead", 0, "oldest", 0).Err())
		contains(t, s.get(""), "most 2 in the last hour", "most 7 in the last hour")
	})
}

func TestHostileContents(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		const script = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>`
		big := strings.Repeat("é", 1<<19)
		fields := jobs.Fields{"kind": script, "job_id": script, "error": script, "traceback": script, script: script,
			"control": "\x1b[31m\x00\u202e", "bytes\xff": "\xfe", "big": big, "request_id": script}
		e := s.bury(fields)
		delayed := jobs.Job{Kind: "k", ID: script, Fields: jobs.Fields{script: script, "big": big}}.In(time.Hour)
		must(t, s.client.Enqueue(t.Context(), delayed))
		job := regexp.MustCompile(`href="(job\?[^"]*)"`).FindStringSubmatch(s.get("delayed"))
		pages := map[string]string{
			"dead": s.get("dead"), "delayed": s.get("delayed"), "letter": s.get("letter?entry=" + e[0]),
			"search":  s.get("dead?" + url.Values{"error": {script}, "kind": {script}, "id": {script}}.Encode()),
			"confirm": s.get("confirm?do=discard&entry=" + e[0]), "job": s.get(html.UnescapeString(job[1])),
			"cancel": s.get("confirm?" + url.Values{"do": {"cancel"}, "id": {script}, "kind": {script}}.Encode()),
		}
		for name, page := range pages {
			if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.ContainsAny(page, "\x00\x1b\u202e") || !utf8.ValidString(page) {
				t.Errorf("%s shows what it was given:\n%s", name, page)
			}
			if len(page) > 64<<10 {
				t.Errorf("%s has %d bytes", name, len(page))
			}
		}
		contains(t, pages["letter"], `\x1b[31m\x00\u202e`, `\xfe`, "All 1,048,576 bytes of it")
		value := s.do("GET", "value?"+url.Values{"entry": {e[0]}, "name": {"big"}}.Encode(), nil)
		if value.body != big || value.header.Get("Content-Type") != "text/plain; charset=utf-8" || value.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("the whole value: %d bytes, %v", len(value.body), value.header)
		}
		link := regexp.MustCompile(`href="(value\?[^"]*name=big[^"]*)"`).FindStringSubmatch(pages["job"])
		if link == nil || s.get(html.UnescapeString(link[1])) != big {
			t.Errorf("no link to the whole value: %v", link)
		}
	})
}

func TestReadOnly(t *testing.T) {
	each(t, dashboard.Options{ReadOnly: true, Authenticated: true}, func(t *testing.T, s *site) {
		e := s.bury(nil)
		must(t, s.client.Enqueue(t.Context(), jobs.Job{Kind: "k", ID: "1"}.In(time.Hour)))
		for _, path := range []string{"", "dead", "delayed", "schedules", "workers", "audit", "letter?entry=" + e[0]} {
			lacks(t, s.get(path), `action="confirm"`, `method="post"`, "confirm?", "checkbox")
		}
		for path, form := range map[string]url.Values{"act": {"do": {"discard"}, "entry": e}, "confirm": {"do": {"correct"}, "entry": e}} {
			if a := s.do("POST", path, form); a.status != 403 {
				t.Errorf("POST %s: %d", path, a.status)
			}
		}
		if a := s.do("GET", "confirm?do=discard&entry="+e[0], nil); a.status != 403 {
			t.Errorf("a read-only page asks: %d", a.status)
		}
		contains(t, s.get("dead"), e[0])
	})
}

func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	defer rdb.Close()
	const warns = "Open to everybody"
	open := newSite(t, rdb, dashboard.Options{})
	contains(t, open.get(""), warns)
	for host, want := range map[string]int{"evil.example": 421, "evil.example:80": 421, "localhost": 200, "x.localhost:8080": 200, "127.0.0.1:1": 200, "[::1]": 200} {
		if a := open.do("GET", "dead", nil, "Host", host); a.status != want {
			t.Errorf("open, as %s: %d, want %d", host, a.status, want)
		}
	}
	lacks(t, newSite(t, rdb, dashboard.Options{Authenticated: true}).get(""), warns)
	if a := newSite(t, rdb, dashboard.Options{Authenticated: true}).do("GET", "", nil, "Host", "shop.example"); a.status != 200 {
		t.Errorf("behind an authentication, by name: %d", a.status)
	}
	lacks(t, newSite(t, rdb, marek).get(""), warns)
	nobody := newSite(t, rdb, dashboard.Options{Actor: func(*http.Request) string { return "" }})
	if a := nobody.do("GET", "dead", nil); a.status != 403 {
		t.Errorf("nobody: %d", a.status)
	}
}

func TestForeignSitesAreRefused(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		e := s.bury(nil)
		form := url.Values{"do": {"discard"}, "entry": e}
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			if a := s.do("POST", "act", form, header...); a.status != 403 {
				t.Errorf("%v: %d", header, a.status)
			}
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Frame-Options": "DENY",
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
		} {
			if got := s.do("GET", "dead", nil).header.Get(name); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q", name, got)
			}
		}
		lacks(t, s.get("letter?entry="+e[0]), "<script>", "style=", "onclick")
		if a := s.do("POST", "act", form, "Sec-Fetch-Site", "same-origin"); a.status != 303 {
			t.Errorf("its own form: %d", a.status)
		}
	})
}

func TestOddRequests(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		for _, c := range []struct {
			method, path string
			form         url.Values
			want         int
		}{
			{"GET", "nothing", nil, 404}, {"DELETE", "dead", nil, 405}, {"POST", "dead", url.Values{}, 405}, {"GET", "act", nil, 405},
			{"GET", "letter?entry=x", nil, 404}, {"GET", "letter?entry=1-1", nil, 404}, {"GET", "letter", nil, 404},
			{"GET", "confirm", nil, 400}, {"GET", "confirm?do=replay", nil, 400}, {"GET", "confirm?do=replay&entry=1-1", nil, 404},
			{"GET", "confirm?do=replay-all", nil, 404}, {"GET", "confirm?do=run-schedule&name=x", nil, 404}, {"GET", "confirm?do=run-schedule", nil, 404}, {"POST", "act", url.Values{"do": {"replay"}}, 400},
			{"POST", "act", url.Values{"do": {"replay-all"}}, 400}, {"POST", "act", url.Values{"do": {"run-schedule"}, "name": {"x"}}, 404},
			{"GET", "dead?since=x", nil, 400}, {"GET", "dead?before=x", nil, 400}, {"GET", "delayed?from=x", nil, 400},
			{"GET", "delayed?after=junk", nil, 400}, {"GET", "delayed?after=1/-1", nil, 400}, {"GET", "delayed?after=NaN/1", nil, 400},
			{"GET", "delayed?after=1/1/1", nil, 400}, {"GET", "delayed?after=1.5/1", nil, 200}, {"GET", "delayed?after=1/9007199254740991", nil, 200}, {"GET", "delayed?after=1/9223372036854775807", nil, 400},
			{"GET", "letter?entry=99999999999999999999-0", nil, 404}, {"GET", "letter?entry=0-18446744073709551616", nil, 404},
			{"GET", "letter?entry=18446744073709551615-0", nil, 404}, {"GET", "letter?entry=000000000000000000001-0", nil, 404},
			{"GET", "value?entry=99999999999999999999-0", nil, 404}, {"GET", "confirm?do=replay&entry=99999999999999999999-0", nil, 404},
			{"GET", "dead?before=99999999999999999999-0", nil, 400}, {"GET", "audit?before=99999999999999999999-0", nil, 400},
			{"POST", "act", url.Values{"do": {"replay"}, "entry": {"99999999999999999999-0"}}, 400},
			{"GET", "job?due=1&id=x", nil, 404}, {"GET", "value?entry=1-1", nil, 404}, {"HEAD", "dead", nil, 200}, {"GET", "dead?%zz", nil, 400},
			{"POST", "confirm", url.Values{"x": {strings.Repeat("x", 5<<20)}}, 413},
			{"GET", "style.css", nil, 200}, {"GET", "live.js", nil, 200}, {"GET", "icon.svg", nil, 200}, {"GET", "frame.html", nil, 404},
		} {
			if a := s.do(c.method, c.path, c.form); a.status != c.want {
				t.Errorf("%s %s: %d, want %d\n%s", c.method, c.path, a.status, c.want, a.body)
			}
		}
		raw := s.bury(jobs.Fields{"raw": "{rubbish"})[0]
		lacks(t, s.get("letter?entry="+raw), `value="replay"`, `value="correct"`)
		a := s.do("POST", "act", url.Values{"do": {"replay"}, "entry": {raw}})
		if a.status != 409 || !strings.Contains(a.body, "cannot be replayed") {
			t.Errorf("replay of rubbish: %d %s", a.status, a.body)
		}
		if a := s.do("GET", "confirm?do=replay&entry="+raw, nil); a.status != 409 {
			t.Errorf("asked whether to replay rubbish: %d", a.status)
		}
		some := s.get("confirm?do=replay&entry=" + raw + "&entry=" + s.bury(nil)[0])
		contains(t, some, "Replay 1 dead letter?", "1 of the selected could not be read as a job", `<a href="dead" aria-current="page">`)
		lacks(t, some, `value="`+raw+`"`)
	})
}

// A letter without a kind is no job, and the kind is not a field that could be corrected.
func TestLetterWithoutAKind(t *testing.T) {
	each(t, marek, func(t *testing.T, s *site) {
		none := s.bury(jobs.Fields{"kind": "", "order_id": "4471"})[0]
		page := s.get("letter?entry=" + none)
		contains(t, page, "A job without a kind", "4471", "it cannot be replayed", `value="discard"`)
		lacks(t, page, `value="replay"`, `value="correct"`)
		if a := s.do("GET", "confirm?do=replay&entry="+none, nil); a.status != 409 {
			t.Errorf("asked whether to replay it: %d", a.status)
		}
		some := s.get("confirm?do=replay&entry=" + none + "&entry=" + s.bury(nil)[0])
		contains(t, some, "Replay 1 dead letter?", "1 of the selected could not be read as a job")
		lacks(t, some, `value="`+none+`"`)
		contains(t, s.sure(s.get("confirm?do=discard&entry="+none)), "1 dead letter is deleted.")
	})
}

// The page stands anywhere: links and redirects are relative.
func TestMountedAnywhere(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	defer rdb.Close()
	h := dashboard.Handler(jobs.NewClient(rdb, jobs.Options{}), marek)
	absolute := regexp.MustCompile(`(?:href|src|action)="(?:/|https?:)[^"]*"`)
	for prefix, mounted := range map[string]http.Handler{"/": h, "/a/": h, "/a/b/": http.StripPrefix("/a/b", h)} {
		for _, name := range []string{"", "dead", "delayed", "schedules", "workers", "audit"} {
			w := httptest.NewRecorder()
			mounted.ServeHTTP(w, httptest.NewRequest("GET", prefix+name, nil))
			if found := absolute.FindString(w.Body.String()); w.Code != 200 || found != "" {
				t.Errorf("GET %s%s: %d, links to %s", prefix, name, w.Code, found)
			}
		}
	}
}

// Two queues stand side by side, and what is done on one page leaves the other's alone.
func TestTwoQueuesInOneMux(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	defer rdb.Close()
	mux := http.NewServeMux()
	for _, name := range []string{"mail", "images"} {
		client := jobs.NewClient(rdb, jobs.Options{Prefix: name + ":"})
		mux.Handle("/"+name+"/", dashboard.Handler(client, dashboard.Options{Actor: marek.Actor, Title: name}))
		must(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: name + ":jobs:dead", ID: "1-1", Values: []any{"kind", "of_" + name, "error", "bad"}}).Err())
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	s := &site{t: t, rdb: rdb, url: server.URL + "/mail/", http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	images := *s
	images.url = server.URL + "/images/"
	for page, own := range map[string]string{s.get("dead"): "mail", images.get("dead"): "images"} {
		contains(t, page, "of_"+own, "<title>Dead letters · "+own+"</title>")
		lacks(t, page, map[string]string{"mail": "of_images", "images": "of_mail"}[own])
	}
	contains(t, s.sure(s.get("confirm?do=replay-all")), "1 dead letter is back on the stream.")
	left := [2]int64{rdb.XLen(t.Context(), "mail:jobs:dead").Val(), rdb.XLen(t.Context(), "images:jobs:dead").Val()}
	if left != [2]int64{0, 1} {
		t.Errorf("dead letters of mail and images: %v, want 0 and 1", left)
	}
}

// Redis goes between the question and the answer, and comes back: nothing was done, the page says so, and the same
// answer does it.
func TestRedisGoesInTheMiddle(t *testing.T) {
	t.Parallel()
	redisServer := servers.NewMiniredis(t)
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), MaxRetries: -1})
	defer rdb.Close()
	s := newSite(t, rdb, marek)
	e := s.bury(nil, nil)
	question := s.get("confirm?do=replay&entry=" + e[0] + "&entry=" + e[1])
	redisServer.Close()
	for err := error(nil); err == nil || !strings.Contains(err.Error(), "connection refused"); { // the pool has seen it, too
		err = rdb.Ping(t.Context()).Err()
	}
	for _, form := range []url.Values{
		{"do": {"replay"}, "entry": e}, {"do": {"discard"}, "entry": e}, {"do": {"correct"}, "entry": e[:1], "set:a": {"b"}},
		{"do": {"replay-all"}, "until": {"9999999999999"}}, {"do": {"cancel"}, "id": {"1"}}, {"do": {"run-now"}, "id": {"1"}},
		{"do": {"run-schedule"}, "name": {"x"}},
	} {
		a := s.do("POST", "act", form)
		if a.status != 503 {
			t.Errorf("%v while Redis is away: %d", form, a.status)
		}
		contains(t, a.body, "connection refused", "Try again in a moment", "jobs doctor")
	}
	must(t, redisServer.Restart())
	contains(t, s.sure(question), "2 dead letters are back on the stream.")
}

// Redis refuses what comes after the first letter: the page says how far it came.
func TestRedisRefusesHalfway(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	defer rdb.Close()
	s := newSite(t, rdb, marek)
	e := s.bury(nil, nil, nil)
	rdb.AddHook(refusing{e[1]})
	a := s.do("POST", "act", url.Values{"do": {"discard"}, "entry": e})
	if a.status != 503 {
		t.Errorf("status %d", a.status)
	}
	contains(t, a.body, "1 dead letter was discarded, and then: ", "READONLY", "Try again in a moment")
	if left := rdb.XLen(t.Context(), "jobs:dead").Val(); left != 2 {
		t.Errorf("%d dead letters are left, want 2", left)
	}
}

// readOnly is what a replica answers.
type readOnly struct{}

func (readOnly) Error() string { return "READONLY You can't write against a read only replica." }
func (readOnly) RedisError()   {}

// refusing answers as Redis where a command names a dead letter.
type refusing struct{ entry string }

func (r refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), r.entry) {
			err := readOnly{}
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func TestRedisIsGone(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // where nobody listens
	s := newSite(t, rdb, marek)
	for _, path := range []string{"", "dead", "delayed", "schedules", "workers", "audit"} {
		a := s.do("GET", path, nil)
		if a.status != 503 || !strings.Contains(a.body, "connection refused") {
			t.Errorf("GET %s: %d\n%s", path, a.status, a.body)
		}
	}
}

// leaving is a browser that goes when the first script is sent.
type leaving context.CancelFunc

func (leaving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (leaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			l()
		}
		return next(ctx, cmd)
	}
}

// What was confirmed is done to its end, also when the browser is gone.
func TestTheBrowserIsGoneInTheMiddle(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
	defer rdb.Close()
	s := newSite(t, rdb, marek)
	form := url.Values{"do": {"discard"}, "entry": s.bury(nil, nil, nil)}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	rdb.AddHook(leaving(leave))
	r := httptest.NewRequest("POST", "/act", strings.NewReader(form.Encode())).WithContext(ctx)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	dashboard.Handler(jobs.NewClient(rdb, jobs.Options{}), marek).ServeHTTP(httptest.NewRecorder(), r)
	if left := rdb.XLen(t.Context(), "jobs:dead").Val(); ctx.Err() == nil || left != 0 {
		t.Errorf("%d of 3 letters are left", left)
	}
}
