package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/jobstest"
)

func TestY01_Goexit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		for range 8 {
			q.enqueue(ends.Job(jobs.None{}))
		}
		w := q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), handle(ends, goexits))
		for _, letter := range q.awaitDead(8) {
			if !strings.Contains(letter.Error, "Goexit") || letter.Attempts != 1 || letter.Traceback == "" {
				t.Errorf("%+v", letter)
			}
		}
		q.enqueue(many(9)...)
		within(t, prompt, "all slots are back", func() bool { return len(rs.all()) == 9 })
		q.idle()
		start := time.Now()
		must(t, w.stop())
		if took := time.Since(start); took > prompt {
			t.Errorf("Run ended after %s", took)
		}
	})
}

var ends = jobs.NewKind[jobs.None]("ends", jobs.Policy{})

// goexits is a handler that ends its goroutine.
func goexits(context.Context, jobs.None) error {
	runtime.Goexit()
	return nil
}

type spiteful struct{}

func (spiteful) Error() string  { panic("no error text") }
func (spiteful) String() string { panic("no text") }

type boomerang struct{ error }

func (b boomerang) Unwrap() error { panic("no chain") }
func (b boomerang) As(any) bool   { panic("no other type") }

// Handlers that end badly, each by the name that its traceback must show.
func panicsNil(context.Context, jobs.None) error   { panic(nil) }
func panicsError(context.Context, jobs.None) error { panic(fmt.Errorf("render: %w", errSeat)) }
func panicsSpite(context.Context, jobs.None) error { panic(spiteful{}) }
func returnsSpite(context.Context, jobs.None) error {
	return fmt.Errorf("wrapped: %w", errors.Join(spiteful{}))
}
func returnsBare(context.Context, jobs.None) error      { return spiteful{} }
func returnsBoomerang(context.Context, jobs.None) error { return boomerang{errSeat} }
func panicsLate(context.Context, jobs.None) error {
	defer panic("in a deferred call, after success")
	return nil
}

var nilMap map[string]int

func writesNilMap(context.Context, jobs.None) error {
	nilMap["a"]++
	return nil
}

func readsNilPointer(context.Context, jobs.None) error {
	var p *ticket
	_ = p.Seat
	return nil
}
func panicsTwice(context.Context, jobs.None) error {
	defer func() { panic("again") }()
	panic("once")
}
func returnsTypedNil(context.Context, jobs.None) error {
	var err *jobs.PanicError
	return err
}

func TestY02_EveryKindOfPanic(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler func(context.Context, jobs.None) error
		want    string // in the error
	}{
		"panicsNil":        {panicsNil, "panic: "},
		"panicsError":      {panicsError, "panic: render: " + errSeat.Error()},
		"panicsSpite":      {panicsSpite, "spiteful"},
		"returnsSpite":     {returnsSpite, ""},
		"returnsBare":      {returnsBare, "spiteful"},
		"returnsBoomerang": {returnsBoomerang, errSeat.Error()},
		"panicsLate":       {panicsLate, "in a deferred call, after success"},
		"writesNilMap":     {writesNilMap, "assignment to entry in nil map"},
		"readsNilPointer":  {readsNilPointer, "nil pointer dereference"},
		"panicsTwice":      {panicsTwice, "again"},
		"returnsTypedNil":  {returnsTypedNil, ""},
	}
	each(t, func(t *testing.T, q *queue) {
		var register []func(*jobs.Runner)
		for name, test := range tests {
			kind := jobs.NewKind[jobs.None](name, jobs.Policy{})
			register = append(register, handle(kind, test.handler))
			q.enqueue(kind.Job(jobs.None{}))
		}
		var rs runs
		q.start(jobs.Config{}, append(register, handle(once, record[jobs.Fields](&rs)))...)
		for _, d := range q.awaitDead(len(tests)) {
			if d.Error == "" || !strings.Contains(d.Error, tests[d.Kind].want) || d.Reason != jobs.ReasonFailed || d.Attempts != 1 {
				t.Errorf("%s: %+v", d.Kind, d.Error)
			}
			if !strings.Contains(d.Traceback, "jobs_test."+d.Kind) || !strings.Contains(d.Traceback, "wrapper_test.go:") {
				t.Errorf("%s: traceback %q", d.Kind, d.Traceback)
			}
		}
		q.enqueue(once.Job(nil))
		rs.wait(t, 1)
		q.idle()
	})
}

func TestATracebackNamesTheLineOfThePanic(t *testing.T) {
	t.Parallel()
	line := 0
	a := jobstest.Run(t, ends, func(context.Context, jobs.None) error {
		_, _, line, _ = runtime.Caller(0)
		panic(errSeat)
	}, jobs.None{})
	p, ok := errors.AsType[*jobs.PanicError](a.Err)
	if !ok || !errors.Is(a.Err, errSeat) || !strings.Contains(a.Traceback, string(p.Stack)) {
		t.Fatalf("%v\n%s", a.Err, a.Traceback)
	}
	where := fmt.Sprintf("wrapper_test.go:%d", line+1)
	if top := strings.Join(strings.SplitN(string(p.Stack), "\n", 3)[:2], "\n"); !strings.Contains(top, "TestATracebackNamesTheLineOfThePanic") || !strings.Contains(top, where) {
		t.Errorf("the stack does not begin with the panic at %s:\n%s", where, p.Stack)
	}
}

func TestATracebackShowsTheChainOfAWrappedError(t *testing.T) {
	t.Parallel()
	a := jobstest.Run(t, ends, func(context.Context, jobs.None) error {
		return fmt.Errorf("order 4471: %w", errors.Join(fmt.Errorf("render: %w", errSeat), context.Canceled))
	}, jobs.None{})
	for _, want := range []string{"*fmt.wrapError: order 4471: ", "*fmt.wrapError: render: ", "*errors.errorString: " + errSeat.Error(), "context canceled"} {
		if !strings.Contains(a.Traceback, want) {
			t.Errorf("no %q in:\n%s", want, a.Traceback)
		}
	}
}

func deep(n int) int {
	if n == 0 {
		panic("at the bottom")
	}
	return deep(n-1) + 1
}

func TestY11_EnormousErrorText(t *testing.T) {
	t.Parallel()
	odd := strings.Repeat("line\n\x00\x1b[31m\xff\"", 8<<20/12)
	kind := jobs.NewKind[jobs.Fields]("enormous", jobs.Policy{})
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		var used int64
		if !isMini(t) {
			used = usedMemory(t, q.rdb)
		}
		q.start(jobs.Config{Logger: slog.New(slog.DiscardHandler)}, handle(kind, func(_ context.Context, f jobs.Fields) error {
			if f["deep"] != "" {
				deep(100_000)
			}
			if f["bad"] != "" {
				return errors.New(strings.Repeat("\xff", 1<<20))
			}
			return fmt.Errorf("mail: %w", errors.New(odd))
		}))
		for range 50 {
			q.enqueue(kind.Job(jobs.Fields{"a": "\xff"}))
		}
		q.enqueue(kind.Job(jobs.Fields{"deep": "yes"}), kind.Job(jobs.Fields{"bad": "yes"}))
		for _, d := range q.awaitDead(52) {
			switch {
			case len(d.Error) > 8<<10 || len(d.Traceback) > 32<<10:
				t.Errorf("error of %d bytes, traceback of %d", len(d.Error), len(d.Traceback))
			case d.Fields["deep"] == "yes":
				if !strings.Contains(d.Error, "at the bottom") || !strings.Contains(d.Traceback, "jobs_test.deep") {
					t.Errorf("%q\n%q", d.Error, d.Traceback)
				}
			case d.Fields["bad"] == "yes":
				if !strings.Contains(d.Error, "cut, 1048576 bytes") {
					t.Errorf("%q", d.Error)
				}
			case d.Fields["a"] != "\xff" || !strings.Contains(d.Error, "cut") || !strings.Contains(d.Traceback, "cut") || !strings.HasPrefix(d.Error, "mail: line\n\x00\x1b[31m\uFFFD"):
				t.Errorf("%q %.100q %.100q", d.Fields, d.Error, d.Traceback)
			}
		}
		q.idle()
		if isMini(t) {
			return
		}
		if grown := usedMemory(t, q.rdb) - used; grown > 20<<20 {
			t.Errorf("memory grown by %d bytes", grown)
		}
	})
}

func TestAHandlerThatOutlivesItsTimeoutIsAbandoned(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var log journal
		forever := make(chan struct{})
		kind := jobs.NewKind[jobs.None]("hangs", jobs.Policy{Timeout: 100 * time.Millisecond, Retries: 1, Backoff: jobs.FullJitter(time.Hour, time.Hour)})
		returned := make(chan struct{})
		var running atomic.Int32
		q.start(jobs.Config{Slots: 1, Logger: log.logger(t)}, handle(once, func(ctx context.Context, _ jobs.Fields) error {
			rs.add(ctx)
			if n := running.Add(1); n > 1 {
				t.Errorf("%d at once, in one slot", n)
			}
			time.Sleep(5 * time.Millisecond)
			running.Add(-1)
			return nil
		}),
			handle(kind, func(ctx context.Context, _ jobs.None) error {
				defer close(returned)
				rs.add(ctx)
				<-forever
				return nil
			}))
		hangs, normal := kind.Job(jobs.None{}), once.Job(nil)
		q.enqueue(hangs, normal)
		all := rs.wait(t, 2)
		if all[0].ID != hangs.ID || all[1].ID != normal.ID {
			t.Errorf("runs %+v", all)
		}
		waits := q.delayed()
		if len(waits) != 1 || waits[0].Attempts != 1 || !strings.HasPrefix(waits[0].LastError, "timeout after 100ms") {
			t.Errorf("recorded as %+v", waits)
		}
		close(forever)
		receive(t, returned)
		q.enqueue(many(8)...) // the slot has not come back twice
		rs.wait(t, 10)
		q.idle()
		if now := q.delayed(); len(now) != 1 || now[0].Due != waits[0].Due {
			t.Errorf("after the late result: %+v", now)
		}
		if all := log.lines(t, ""); len(all) != 2 || len(log.lines(t, "abandoned")) != 1 || len(log.lines(t, "will retry")) != 1 {
			t.Errorf("logged %v", all)
		}
	})
}

func TestALateErrorIsATimeout(t *testing.T) {
	t.Parallel()
	kind := jobs.NewKind[jobs.None]("slow", jobs.Policy{Timeout: 20 * time.Millisecond})
	for name, err := range map[string]error{"an error": errMail, "its context's": context.DeadlineExceeded} {
		a := jobstest.Run(t, kind, func(ctx context.Context, _ jobs.None) error {
			<-ctx.Done()
			return err
		}, jobs.None{})
		if want := "timeout after 20ms: " + err.Error(); a.Outcome != jobstest.Dead || a.Error != want {
			t.Errorf("%s: %s, want %q", name, a, want)
		}
	}
	a := jobstest.Run(t, kind, func(ctx context.Context, _ jobs.None) error {
		<-ctx.Done()
		return nil
	}, jobs.None{})
	if a.Outcome != jobstest.Done {
		t.Errorf("what was done late is done: %s", a)
	}
}
