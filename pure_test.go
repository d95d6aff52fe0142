package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	second := func(int) time.Duration { return time.Second }
	tests := map[string]struct {
		policy   Policy
		attempts int
		err      error
		want     next
	}{
		"success":                  {Policy{}, 0, nil, next{outcome: toDone}},
		"success, after too many":  {Policy{}, 99, nil, next{outcome: toDone}},
		"no retries":               {Policy{}, 0, boom, next{outcome: toDead}},
		"a retry left":             {Policy{Retries: 2, Backoff: second}, 1, boom, next{toRetry, time.Second}},
		"the last":                 {Policy{Retries: 2, Backoff: second}, 2, boom, next{outcome: toDead}},
		"more than the last":       {Policy{Retries: 2, Backoff: second}, math.MaxInt32 - 1, boom, next{outcome: toDead}},
		"permanent":                {Policy{Retries: 2}, 0, fmt.Errorf("x: %w", Permanent(boom)), next{outcome: toDead}},
		"retry after":              {Policy{Retries: 2, Backoff: second}, 0, RetryAfter(time.Minute, boom), next{toRetry, time.Minute}},
		"retry after, negative":    {Policy{Retries: 2, Backoff: second}, 0, RetryAfter(-1, boom), next{toRetry, 0}},
		"retry after, no retries":  {Policy{}, 0, RetryAfter(time.Minute, boom), next{outcome: toDead}},
		"permanent, retry after":   {Policy{Retries: 2}, 0, Permanent(RetryAfter(time.Minute, boom)), next{outcome: toDead}},
		"permanent, snooze":        {Policy{Retries: 2}, 0, Permanent(fmt.Errorf("x: %w", Snooze(time.Hour))), next{outcome: toDead}},
		"snooze":                   {Policy{}, 7, Snooze(time.Minute), next{toSnooze, time.Minute}},
		"snooze, too long":         {Policy{}, 0, Snooze(math.MaxInt64), next{toSnooze, 24 * time.Hour}},
		"snooze, negative":         {Policy{}, 0, Snooze(-1), next{toSnooze, time.Millisecond}},
		"undecodable":              {Policy{Retries: 9}, 0, &undecodable{boom}, next{outcome: toDead}},
		"a backoff below zero":     {Policy{Retries: 1, Backoff: func(int) time.Duration { return -1 }}, 0, boom, next{toRetry, 0}},
		"a panic":                  {Policy{Retries: 1, Backoff: second}, 0, &PanicError{Value: "x"}, next{toRetry, time.Second}},
		"a panic with a permanent": {Policy{Retries: 1, Backoff: second}, 0, &PanicError{Value: Permanent(boom)}, next{outcome: toDead}},
	}
	for name, test := range tests {
		if got := decide(test.policy, test.attempts, test.err); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// fragile is an error that cannot be unwrapped where it is nil.
type fragile struct{ err error }

func (*fragile) Error() string   { return "fragile" }
func (f *fragile) Unwrap() error { return f.err }

// A mark outside of an error that panics holds.
func TestConcludeMarksOfWhatPanics(t *testing.T) {
	t.Parallel()
	var broken *fragile
	p := Policy{Retries: 2, Backoff: func(int) time.Duration { return time.Second }}
	for name, test := range map[string]struct {
		err  error
		want next
	}{
		"none": {broken, next{toRetry, time.Second}}, "permanent": {Permanent(broken), next{outcome: toDead}},
		"retry after": {RetryAfter(time.Hour, broken), next{toRetry, time.Hour}},
	} {
		if c := conclude(p, 0, test.err, nil, "x"); c.next != test.want || c.text != "fragile" {
			t.Errorf("%s: %+v, %q", name, c.next, c.text)
		}
	}
}

func TestConcludeAtAShutdown(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, err := range []error{boom, Permanent(boom), Snooze(time.Hour), &PanicError{Value: 1}, context.Canceled} {
		if c := conclude(Policy{}, 0, err, ErrShutdown, "x"); c.outcome != toRelease {
			t.Errorf("%v: outcome %d", err, c.outcome)
		}
	}
	if c := conclude(Policy{}, 0, nil, ErrShutdown, "x"); c.outcome != toDone {
		t.Errorf("success: outcome %d", c.outcome)
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"": "", "short": "short", "bad \xff bytes": "bad \uFFFD bytes", strings.Repeat("x", 100): strings.Repeat("x", 100),
	}
	for text, want := range tests {
		if got := record.Bounded(text, 100); got != want {
			t.Errorf("%q is %q", text, got)
		}
	}
	for _, part := range []string{"x", "é", "\xff", "\xffx", "日本", "\U0001F3AB"} {
		for n := 80; n < 110; n++ {
			text := strings.Repeat(part, 200/len(part))
			got := record.Bounded(text, n)
			if len(got) > n || !utf8.ValidString(got) || !strings.HasSuffix(got, fmt.Sprintf("[cut, %d bytes]", len(text))) || part != "\xff" && len(got) < n-10 {
				t.Errorf("%q to %d bytes is %q", text, n, got)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fields Fields
		want   Job
		err    string
	}{
		"the least":      {Fields{"kind": "a"}, Job{ID: "1-0", Kind: "a"}, ""},
		"all":            {Fields{"kind": "a", "job_id": "j", "outbox_id": "o", "attempts": "2147483646", "request_id": "r", "trace": "t", "b": "c"}, Job{ID: "j", Kind: "a", Attempts: math.MaxInt32 - 1, RequestID: "r", Trace: "t"}, ""},
		"a tick":         {Fields{"kind": "a", "scheduled_at": "2026-11-29T04:00:00+01:00"}, Job{ID: "1-0", Kind: "a", Tick: time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)}, ""},
		"no tick":        {Fields{"kind": "a", "scheduled_at": "tomorrow"}, Job{ID: "1-0", Kind: "a"}, ""},
		"a bad count":    {Fields{"kind": "a", "attempts": "x"}, Job{ID: "1-0", Kind: "a"}, `field "attempts": "x" is not a count`},
		"no kind":        {Fields{"job_id": "j"}, Job{ID: "j"}, `field "kind": there is none`},
		"nothing at all": {Fields{}, Job{ID: "1-0"}, `field "kind": there is none`},
	}
	for name, test := range tests {
		got, err := parse("1-0", test.fields)
		if got.ID != test.want.ID || got.Kind != test.want.Kind || got.Attempts != test.want.Attempts || !got.Tick.Equal(test.want.Tick) ||
			got.RequestID != test.want.RequestID || got.Trace != test.want.Trace || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	p := Policy{Retries: 5, Backoff: FullJitter(time.Second, time.Hour)}
	failed := fmt.Errorf("render: %w", errors.New("no such seat"))
	for name, err := range map[string]error{"done": nil, "retry": failed, "dead": Permanent(failed)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide(p, 2, err)
			}
		})
	}
}

// A process that was paused looks at its timeouts late. A handler has its second all the same.
func TestATimeoutThatIsSeenLate(t *testing.T) {
	t.Parallel()
	r := NewRunner(NewClient(redis.NewClient(&redis.Options{}), Options{}), Config{Logger: slog.New(slog.DiscardHandler)})
	Handle(r, NewKind[Fields]("hangs", Policy{Timeout: time.Second}), func(context.Context, Fields) error { return nil })
	run := r.newRun(t.Context(), store.Entry{ID: "1-1", Fields: Fields{"kind": "hangs"}}, 1)
	r.leases.add(run)
	late := run.deadline.Add(time.Hour)
	for _, now := range []time.Time{late, late.Add(overtime - 1)} {
		if r.enforce(now); context.Cause(run) != ErrTimeout || run.overdue {
			t.Fatalf("%s late: cause %v, abandoned %v", now.Sub(run.deadline), context.Cause(run), run.overdue)
		}
	}
	r.enforce(late.Add(overtime))
	r.enforce(late.Add(2 * overtime)) // it is being abandoned already
	if ended := <-r.ended; ended != run || run.outcome != toDead {
		t.Errorf("%v, outcome %v", ended == run, run.outcome)
	}
}

// A new job is written in the one order in which entries are, whatever it has.
func TestANewJobsOrder(t *testing.T) {
	t.Parallel()
	for _, own := range []Fields{nil, {}, {"b": "2", "a": "1", "Kind": "", "": "x"}} {
		for i := range 8 {
			j := Job{ID: "88210", Kind: "render", Fields: own}
			if i&1 != 0 {
				j.Tick = time.Unix(1758286400, 0)
			}
			if i&2 != 0 {
				j.RequestID = "7f3a"
			}
			if i&4 != 0 {
				j.Trace = "4bf9"
			}
			entry, err := j.entry()
			all := fields.Map(entry)
			if err != nil || !slices.Equal(entry, fields.Flatten(all)) || len(entry) != 2*len(all) {
				t.Errorf("%q, %v, and should be %q", entry, err, fields.Flatten(all))
			}
		}
	}
}
