package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stagedoor/jobs"
)

type seat struct {
	Row    string
	Number int
}

// everything has a field of each sort that arguments may have.
type everything struct {
	Text     string
	Count    int
	Small    int8
	Order    int64
	Big      uint64
	Yes      bool
	Price    float64
	Ratio    float32
	Bytes    []byte
	Starts   time.Time
	Wait     time.Duration
	From     netip.Addr // an encoding.TextUnmarshaler
	Seats    []seat
	Best     seat
	Notes    map[string]string
	Absent   *int
	Optional *string
	Late     *time.Duration
	Renamed  string `job:"other-name"`
	Left     string `job:"-"`
	hidden   string
}

func TestArgumentsComeBackTheSame(t *testing.T) {
	t.Parallel()
	_ = everything{}.hidden
	text, late := "", -time.Second
	berlin := time.FixedZone("", 2*60*60)
	tests := map[string]everything{
		"zero": {},
		"ordinary": {
			Text: "14-C", Count: -3, Small: -128, Order: 9007199254740993, Big: math.MaxUint64, Yes: true,
			Price: 0.1, Ratio: 1e-9, Bytes: []byte("\x00\xff\r\n"), Starts: time.Date(2026, 7, 1, 20, 0, 0, 1, berlin),
			Wait: 90 * time.Minute, From: netip.MustParseAddr("2001:db8::1"), Seats: []seat{{"C", 14}, {"", 0}},
			Best: seat{"<&>", 1}, Notes: map[string]string{"é": "ü"}, Optional: &text, Late: &late, Renamed: "yes",
		},
		"odd": {
			Text: " \xff\x00 x ", Price: math.Inf(-1), Order: math.MinInt64, Seats: []seat{}, Notes: map[string]string{},
			Starts: time.Unix(0, 0).UTC(),
		},
	}
	equal := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreUnexported(everything{})}
	kind := jobs.NewKind[everything]("everything", jobs.Policy{})
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				got := make(chan everything, 2)
				q.start(jobs.Config{}, handle(kind, func(_ context.Context, args everything) error {
					got <- args
					return nil
				}))
				q.enqueue(kind.Job(want), kind.Job(want).In(time.Millisecond))
				for range 2 { // straight, and by way of delayed
					if diff := cmp.Diff(want, receive(t, got), equal); diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}

func TestHandlerMayTakeTheRawFields(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		got := make(chan jobs.Fields, 1)
		q.start(jobs.Config{}, handle(once, func(_ context.Context, f jobs.Fields) error {
			got <- f
			return nil
		}))
		want := jobs.Fields{"a": "1", "b": "", "ü": "\xff", " ": "x"}
		job := once.Job(want)
		job.RequestID, job.Trace = "7f3a9c2e", "4bf92f35"
		q.enqueue(job)
		if f := receive(t, got); !maps.Equal(f, want) {
			t.Errorf("got %q, want %q: the job's own fields, and none of the library's", f, want)
		}
	})
}

func TestExtraFieldsAreIgnoredAndTravelOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		q.start(jobs.Config{}, handle(render, func(ctx context.Context, args ticket) error {
			rs.add(ctx)
			return errSeat
		}))
		q.add("jobs", "kind", "render_tickets", "job_id", "x1", "seat", "14-C", "added_by_the_next_version", "yes", "", "empty name")
		letter := q.awaitDead(1)[0]
		want := jobs.Fields{"seat": "14-C", "added_by_the_next_version": "yes", "": "empty name"}
		for _, job := range append(rs.all(), letter.Job) {
			if !maps.Equal(job.Fields, want) {
				t.Errorf("fields %q, want %q", job.Fields, want)
			}
		}
		if len(rs.all()) != 2 {
			t.Errorf("%d runs", len(rs.all()))
		}
	})
}

func TestAMissingFieldIsZeroUnlessRequired(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		got := make(chan ticket, 1)
		q.start(jobs.Config{}, handle(render, func(_ context.Context, args ticket) error {
			got <- args
			return nil
		}))
		q.add("jobs", "kind", "render_tickets", "order_id", "1") // the seat is required
		q.add("jobs", "kind", "render_tickets", "seat", "14C")
		if args := receive(t, got); args != (ticket{0, "14C"}) {
			t.Errorf("got %+v", args)
		}
		letter := q.awaitDead(1)[0]
		if letter.Reason != jobs.ReasonUndecodable || !strings.Contains(letter.Error, `"seat"`) {
			t.Errorf("%+v", letter)
		}
	})
}

func TestUnreadableArgumentsNeverReachTheHandler(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ field, value string }{
		"letters":    {"count", "abc"},
		"empty":      {"count", ""},
		"space":      {"count", " 1"},
		"fraction":   {"order", "1.0"},
		"too large":  {"small", "128"},
		"negative":   {"big", "-1"},
		"no bool":    {"yes", "perhaps"},
		"no float":   {"price", "1,5"},
		"no time":    {"starts", "tomorrow"},
		"no wait":    {"wait", "90"},
		"no address": {"from", "300.1.1.1"},
		"no JSON":    {"seats", "[{"},
		"other JSON": {"best", `"14-C"`},
		"a pointer":  {"absent", "x"},
		"endless":    {"count", strings.Repeat("9", 100_000)},
	}
	kind := jobs.NewKind[everything]("everything", jobs.Policy{Retries: 5})
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		ids := map[string]string{}
		for name, test := range tests {
			ids[name] = q.add("jobs", "kind", "everything", test.field, test.value, "request_id", "r1")
		}
		q.start(jobs.Config{}, handle(kind, record[everything](&rs)))
		good := kind.Job(everything{})
		q.enqueue(good)
		letters := map[string]jobs.DeadLetter{}
		for _, letter := range q.awaitDead(len(tests)) {
			letters[letter.ID] = letter
		}
		for name, test := range tests {
			d := letters[ids[name]]
			if d.Reason != jobs.ReasonUndecodable || !strings.Contains(d.Error, fmt.Sprintf("field %q", test.field)) || len(d.Error) > 1000 {
				t.Errorf("%s: reason %q, error %q", name, d.Reason, d.Error)
			}
			if d.Attempts != 0 || d.Traceback != "" || d.RequestID != "r1" || !maps.Equal(d.Fields, jobs.Fields{test.field: test.value}) {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if all := rs.wait(t, 1); len(all) != 1 || all[0].ID != good.ID {
			t.Errorf("runs %+v", all)
		}
	})
}

func TestArgumentsOfAnyTypesOwnMethodsMayPanic(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		kind := jobs.NewKind[struct{ Text hostile }]("hostile", jobs.Policy{})
		var rs runs
		q.start(jobs.Config{}, handle(kind, record[struct{ Text hostile }](&rs)), handle(once, record[jobs.Fields](&rs)))
		q.add("jobs", "kind", "hostile", "text", "x")
		letter := q.awaitDead(1)[0]
		if !strings.Contains(letter.Error, "no text today") {
			t.Errorf("%+v", letter)
		}
		q.enqueue(once.Job(nil))
		rs.wait(t, 1)
	})
}

type hostile string

func (h hostile) MarshalText() ([]byte, error) { return []byte(h), nil }
func (h *hostile) UnmarshalText([]byte) error  { panic("no text today") }

func TestNewKindRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	define := func(name string, p jobs.Policy) func() {
		return func() { jobs.NewKind[jobs.None](name, p) }
	}
	tests := map[string]struct {
		define func()
		want   string
	}{
		"no name":      {define("", jobs.Policy{}), "without a name"},
		"a space":      {define("send tickets", jobs.Policy{}), `"send tickets"`},
		"a newline":    {define("a\n", jobs.Policy{}), `"a\n"`},
		"a C1 control": {define("a\u0085", jobs.Policy{}), `"a\u0085"`},
		"no width":     {define("a\u200b", jobs.Policy{}), `"a\u200b"`},
		"a line break": {define("a\u2028", jobs.Policy{}), `"a\u2028"`},
		"a wide space": {define("a\u3000b", jobs.Policy{}), `"a\u3000b"`},
		"unassigned":   {define("a\U000e0fff", jobs.Policy{}), `"a\U000e0fff"`},
		"a mark":       {define("\ufeffa", jobs.Policy{}), `"\ufeffa"`},
		"no UTF-8":     {define("a\xff", jobs.Policy{}), `"a\xff"`},
		"retries":      {define("a", jobs.Policy{Retries: -1}), `kind "a": Policy.Retries is -1`},
		"timeout":      {define("a", jobs.Policy{Timeout: -1}), `kind "a": Policy.Timeout`},
		"one delivery": {define("a", jobs.Policy{Deliveries: 1}), `kind "a": Policy.Deliveries is 1`},
		"no struct":    {func() { jobs.NewKind[int]("a", jobs.Policy{}) }, `kind "a": int is not a struct`},
		"another map":  {func() { jobs.NewKind[map[string]int]("a", jobs.Policy{}) }, `kind "a"`},
		"reserved":     {func() { jobs.NewKind[struct{ Trace string }]("a", jobs.Policy{}) }, `"trace" is reserved`},
		"reserved by tag": {func() {
			jobs.NewKind[struct {
				A int `job:"kind"`
			}]("a", jobs.Policy{})
		}, `"kind" is reserved`},
		"a channel": {func() { jobs.NewKind[struct{ C chan int }]("a", jobs.Policy{}) }, `C: unsupported type chan int`},
		"one name twice": {func() {
			jobs.NewKind[struct {
				A int
				B int `job:"a"`
			}]("a", jobs.Policy{})
		}, `"a" is taken`},
		"tag option": {func() {
			jobs.NewKind[struct {
				A int `job:"a,omitempty"`
			}]("a", jobs.Policy{})
		}, `"omitempty"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := panics(t, test.define); !strings.HasPrefix(text, "jobs: ") || !strings.Contains(text, test.want) {
				t.Errorf("panic %q, want %q", text, test.want)
			}
		})
	}
}

// here is this file and the line after the call, as panics name it.
func here() string {
	_, _, line, _ := runtime.Caller(1)
	return fmt.Sprintf("kind_test.go:%d", line+1)
}

func TestHandleRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nowhere(t), "")
	r := jobs.NewRunner(q.Client, jobs.Config{})
	var rs runs
	first := here()
	jobs.Handle(r, once, record[jobs.Fields](&rs))
	second := ""
	text := panics(t, func() {
		second = here()
		jobs.Handle(r, once, record[jobs.Fields](&rs))
	})
	if want := fmt.Sprintf(`jobs: kind "once" handled twice: %s and %s`, first, second); text != want {
		t.Errorf("panic %q, want %q", text, want)
	}
	for name, f := range map[string]func(){
		"no handler": func() { jobs.Handle(r, render, nil) },
		"no kind":    func() { jobs.Handle(r, jobs.Kind[jobs.None]{}, record[jobs.None](&rs)) },
		"no client":  func() { jobs.NewClient(nil, jobs.Options{}) },
		"slots":      func() { jobs.NewRunner(q.Client, jobs.Config{Slots: -1}) },
		"lease":      func() { jobs.NewRunner(q.Client, jobs.Config{Lease: time.Millisecond}) },
		"keep":       func() { jobs.NewRunner(q.Client, jobs.Config{KeepDead: -1}) },
	} {
		if text := panics(t, f); !strings.HasPrefix(text, "jobs: ") {
			t.Errorf("%s: panic %q", name, text)
		}
	}
}

func TestHandleComesBeforeRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		w := q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		q.enqueue(once.Job(nil))
		rs.wait(t, 1)
		if text := panics(t, func() { jobs.Handle(w.Runner, render, record[ticket](&rs)) }); !strings.Contains(text, "render_tickets") {
			t.Errorf("panic %q", text)
		}
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs once") {
			t.Errorf("a second Run: %v", err)
		}
	})
}

func TestArgumentsThatCannotBeWrittenAreAnError(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nowhere(t), "")
	kind := jobs.NewKind[struct{ Odds []float64 }]("odds", jobs.Policy{})
	err := q.Enqueue(t.Context(), kind.Job(struct{ Odds []float64 }{[]float64{math.NaN()}}))
	var failed *jobs.EnqueueError
	if !errors.As(err, &failed) || failed.Uncertain != 0 || !strings.Contains(err.Error(), `kind "odds"`) || !strings.Contains(err.Error(), `"odds"`) {
		t.Errorf("error %v", err)
	}
}
