package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// yard is one Redis with asynq's queues and ours.
type yard struct {
	t      *testing.T
	rdb    *redis.Client
	asynq  *asynq.Client
	source *asynq.Inspector
	client *jobs.Client
}

func newYard(t *testing.T) *yard {
	rdb := servers.NewRedis(t).Client(t)
	return &yard{t, rdb, asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb), jobs.NewClient(rdb, jobs.Options{Prefix: "new:"})}
}

func (y *yard) bridge() *Bridge { return NewBridge(y.source, y.rdb, "new:", kinds) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (y *yard) enqueue(id string, payload any, o ...asynq.Option) {
	y.t.Helper()
	kind, text := "email:tickets", []byte(nil)
	if m, ok := payload.(map[string]any); ok {
		kind, text = "image:resize", marshal(m)
	} else {
		text = marshal(payload)
	}
	_, err := y.asynq.Enqueue(asynq.NewTask(kind, text), append(o, asynq.TaskID(id))...)
	must(y.t, err)
}

func marshal(v any) []byte {
	text, _ := json.Marshal(v) // of the tests' own values
	return text
}

// work runs asynq's own server on a queue, until stopped.
func (y *yard) work(queue string, h asynq.HandlerFunc) (stop func()) {
	y.t.Helper()
	s := asynq.NewServerFromRedisClient(y.rdb, asynq.Config{
		Concurrency: 4, LogLevel: asynq.FatalLevel, Queues: map[string]int{queue: 1},
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	must(y.t, s.Start(h))
	return s.Shutdown
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); !ok(); {
		select {
		case <-deadline:
			t.Fatalf("not so after 30 s: %s", what)
		case <-tick.C:
		}
	}
}

var doors = time.Date(2027, 1, 2, 20, 0, 0, 0, time.UTC)

// fill leaves a task in each state: one that waits for a retry and one that is archived have really failed.
func (y *yard) fill() (due time.Time) {
	t := y.t
	t.Helper()
	y.enqueue("retried", Tickets{3, "c@example.com", doors})
	y.enqueue("archived", Tickets{4, "d@example.com", doors})
	stop := y.work("default", func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "archived" {
			return fmt.Errorf("550 no such mailbox: %w", asynq.SkipRetry)
		}
		return errors.New("503 busy")
	})
	eventually(t, "both have failed", func() bool {
		info, err := y.source.GetQueueInfo("default")
		return err == nil && info.Retry == 1 && info.Archived == 1
	})
	stop()
	due = time.Now().Add(3 * time.Hour).Truncate(time.Second)
	y.enqueue("pending", Tickets{1, "a@example.com", doors})
	y.enqueue("scheduled", Tickets{2, "b@example.com", doors}, asynq.ProcessAt(due))
	y.enqueue("resize", map[string]any{"width": 640, "file": "a.png", "crop": []int{1, 2}, "none": nil}, asynq.Unique(time.Hour))
	return due
}

func TestEveryStateMoves(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	due := y.fill()
	_, err := y.asynq.Enqueue(asynq.NewTask("unheard:of", nil))
	must(t, err)
	y.enqueue("bad", "no object")

	dry := y.bridge()
	dry.dry = true
	report, err := dry.Pass(t.Context(), "default")
	must(t, err)
	if got := report.String(); !strings.HasPrefix(got, "would move 1 archived, 1 retry, 1 scheduled, 2 pending\n") {
		t.Errorf("the dry run says %s", got)
	}
	if n, err := y.rdb.Exists(t.Context(), "new:jobs", "new:delayed", "new:jobs:dead").Result(); n != 0 || err != nil {
		t.Fatalf("a dry run has moved something: %d, %v", n, err)
	}
	report, err = y.bridge().Pass(t.Context(), "default")
	must(t, err)
	if got := report.String(); !strings.HasPrefix(got, "moved 1 archived, 1 retry, 1 scheduled, 2 pending\n") || report.Left["unheard:of"] != 1 || report.Failed["bad"] == nil {
		t.Errorf("it says %s", got)
	}
	y.arrived(due)
	info, err := y.source.GetQueueInfo("default")
	must(t, err)
	if info.Size != 2 { // what is left
		t.Errorf("asynq has %+v", info)
	}
	y.enqueue("resize", map[string]any{}, asynq.Unique(time.Hour)) // the unique lock went with the task
	again, err := y.bridge().Pass(t.Context(), "default")
	if must(t, err); again.Moved["pending"] != 1 || len(again.Moved) != 1 {
		t.Errorf("a second pass moves %v", again.Moved)
	}
	if left, err := y.rdb.Keys(t.Context(), "new:from-asynq:*").Result(); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// arrived checks that all of fill is ours by now.
func (y *yard) arrived(due time.Time) {
	t := y.t
	t.Helper()
	want := map[string]time.Time{"scheduled": due, "retried": time.Now().Add(time.Hour)}
	for j, err := range y.client.Delayed().List(t.Context()) {
		must(t, err)
		if off := j.Due.Sub(want[j.ID]).Abs(); off > 10*time.Second || j.ID == "scheduled" && off != 0 {
			t.Errorf("%s is due at %s, %s off", j.ID, j.Due, off)
		}
		if j.Kind != "send_tickets" || j.Fields["doors"] == "" {
			t.Errorf("delayed is %v", j.Job)
		}
		delete(want, j.ID)
	}
	if len(want) > 0 {
		t.Errorf("%v are not in delayed", want)
	}
	dead := 0
	for d, err := range y.client.DeadLetters().List(t.Context(), jobs.Filter{}) {
		must(t, err)
		dead++
		if d.ID != "archived" || d.Kind != "send_tickets" || d.Attempts != 1 || d.Fields["order_id"] != "4" || d.Reason != jobs.ReasonFailed {
			t.Errorf("dead is %+v", d)
		}
		if !strings.Contains(d.Error, "550 no such mailbox") || !strings.Contains(d.Traceback, "queue \"default\" after 0 of 25 retries") {
			t.Errorf("it says %q, %q", d.Error, d.Traceback)
		}
		must(t, y.client.DeadLetters().Replay(t.Context(), d.Entry, jobs.ReplayOptions{}))
	}
	if dead != 1 {
		t.Errorf("%d dead letters", dead)
	}
	y.ran("pending", "archived", "resize")
}

// What is typed wrong is an error, and no "moved 0": somebody would take asynq away.
func TestQueuesAreNamedAsAsynqHasThem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	for _, queue := range []string{"default", "critical", "low"} {
		y.enqueue("in "+queue, map[string]any{}, asynq.Queue(queue))
	}
	url := "redis://" + y.rdb.Options().Addr
	run := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), &out, append([]string{"-asynq", url, "-redis", url, "-prefix", "new:"}, args...))
		return out.String(), err
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-queues", "critical, defualt"}, `asynq has no queue "defualt", only "critical", "default", "low"`},
		{[]string{"-queues", "critical,"}, `asynq has no queue ""`},
		{[]string{"default", "-dry-run"}, `["default" "-dry-run"]`},
		{[]string{"-dry-run", "default"}, `["default"]`},
	} {
		if out, err := run(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s; it says %s", c.args, err, c.want, out)
		}
	}
	if n, err := y.rdb.Exists(t.Context(), "new:jobs").Result(); n != 0 || err != nil {
		t.Fatalf("something has moved all the same: %d, %v", n, err)
	}
	for _, c := range []struct{ args, want string }{
		{"-dry-run", "would move 0 archived, 0 retry, 0 scheduled, 2 pending\n  not named, and left: low\n"},
		{"-dry-run=false", "moved 0 archived, 0 retry, 0 scheduled, 2 pending\n  not named, and left: low\n"},
	} {
		out, err := run(c.args, "-queues", "default, critical")
		if must(t, err); out != c.want {
			t.Errorf("%s: it says %s", c.args, out)
		}
	}
	out, err := run("-queues", "default,critical,low")
	if must(t, err); out != "moved 0 archived, 0 retry, 0 scheduled, 1 pending\n" {
		t.Errorf("it says %s", out)
	}
}

// ran checks that a worker runs exactly these, as they were meant.
func (y *yard) ran(ids ...string) {
	t := y.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	seen := map[string]int{}
	watch := func(next jobs.Handler) jobs.Handler {
		return func(ctx context.Context, j jobs.Job) error {
			mu.Lock()
			seen[j.ID]++
			mu.Unlock()
			return next(ctx, j)
		}
	}
	r := jobs.NewRunner(y.client, jobs.Config{Logger: slog.New(slog.DiscardHandler), Middleware: []jobs.Middleware{watch}})
	jobs.Handle(r, sendTickets, func(ctx context.Context, args Tickets) error {
		if j, _ := jobs.FromContext(ctx); !args.Doors.Equal(doors) || args.OrderID == 0 {
			t.Errorf("%s ran with %+v", j.ID, args)
		}
		return nil
	})
	jobs.Handle(r, jobs.NewKind[jobs.Fields]("resize_image", jobs.Policy{}), func(_ context.Context, f jobs.Fields) error {
		if len(f) != 3 || f["width"] != "640" || f["file"] != "a.png" || f["crop"] != "[1,2]" {
			t.Errorf("resize_image ran with %v", f)
		}
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	eventually(t, "all is run", func() bool {
		s, err := y.client.Stats(ctx)
		return err == nil && s.Ready+s.Running == 0
	})
	cancel()
	must(t, <-ended)
	if s, err := y.client.Stats(context.Background()); err != nil || s.Dead != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, id := range ids {
		if seen[id] != 1 {
			t.Errorf("%s ran %d times", id, seen[id])
		}
	}
	if len(seen) != len(ids) {
		t.Errorf("ran: %v", seen)
	}
}

// Workers of asynq run while the bridge works: each task runs once, here or there.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const total = 400
	for i := range total {
		y.enqueue(fmt.Sprint(i), map[string]any{"n": i})
	}
	var mu sync.Mutex
	ran := map[string]int{}
	note := func(id string) { mu.Lock(); ran[id]++; mu.Unlock() }
	var old, ours atomic.Int64
	begun := make(chan struct{}) // ours: else asynq would be through before
	stop := y.work("default", func(ctx context.Context, _ *asynq.Task) error {
		<-begun
		id, _ := asynq.GetTaskID(ctx)
		old.Add(1)
		note(id)
		return nil
	})
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	r := jobs.NewRunner(y.client, jobs.Config{Logger: slog.New(slog.DiscardHandler)})
	jobs.Handle(r, jobs.NewKind[jobs.Fields]("resize_image", jobs.Policy{}), func(ctx context.Context, _ jobs.Fields) error {
		j, _ := jobs.FromContext(ctx)
		if ours.Add(1) == total/4 {
			close(begun)
		}
		note(j.ID)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	_, err := y.bridge().Pass(ctx, "default")
	must(t, err)
	eventually(t, "all have run", func() bool { return old.Load()+ours.Load() >= total })
	cancel()
	must(t, <-ended)
	if old.Load() == 0 || len(ran) != total || old.Load()+ours.Load() != total {
		t.Errorf("%d of %d tasks ran, %d times there and %d times here", len(ran), total, old.Load(), ours.Load())
	}
	t.Logf("%d there, %d here", old.Load(), ours.Load())
}

// cut is a hook that lets so many commands through and then none, as if the process had died: of the first that is
// refused, the command is carried out or not.
type cut struct {
	left    *atomic.Int64
	carried bool
}

var errDied = errors.New("the bridge has died")

func (c cut) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := c.left.Add(-1)
		if n >= 0 {
			return next(ctx, cmd)
		}
		if n == -1 && c.carried {
			_ = next(ctx, cmd) // and nobody hears what came of it
		}
		cmd.SetErr(errDied)
		return errDied
	}
}

func (c cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The bridge dies at each of its commands, before and after it is carried out. Nothing is lost, archived and delayed ones
// are not doubled, and what is ready at most once.
func TestTheBridgeDies(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	points := 0
	for _, carried := range []bool{false, true} {
		for n := int64(0); ; n++ {
			must(t, y.rdb.FlushAll(t.Context()).Err())
			y.asynq = asynq.NewClientFromRedisClient(y.rdb) // the old one remembers which queues there were
			for _, id := range []string{"pending", "scheduled", "archived"} {
				o := []asynq.Option{}
				if id == "scheduled" {
					o = append(o, asynq.ProcessIn(time.Hour))
				}
				y.enqueue(id, map[string]any{"n": 1}, o...)
			}
			must(t, y.source.ArchiveTask("default", "archived"))
			if !y.dieAt(n, carried) {
				break
			}
			points++
			eventually(t, "the lock is free", func() bool { return y.rdb.Exists(t.Context(), "new:from-asynq:lock").Val() == 0 })
			_, err := y.bridge().Pass(t.Context(), "default")
			must(t, err)
			y.nothingLost(fmt.Sprintf("died at command %d, carried out: %v", n, carried))
		}
	}
	if points < 30 {
		t.Errorf("only %d points", points)
	}
	t.Logf("%d points", points)
}

// dieAt runs a bridge that dies at its command n, and says whether it came so far.
func (y *yard) dieAt(n int64, carried bool) bool {
	left := new(atomic.Int64)
	left.Store(n)
	rdb := redis.NewClient(&redis.Options{Addr: y.rdb.Options().Addr, MaxRetries: -1})
	defer rdb.Close()
	rdb.AddHook(cut{left, carried})
	b := NewBridge(asynq.NewInspectorFromRedisClient(rdb), rdb, "new:", kinds)
	b.lease = 50 * time.Millisecond // so long does the next one wait
	_, err := b.Pass(y.t.Context(), "default")
	return err != nil || left.Load() < 0
}

func (y *yard) nothingLost(when string) {
	t := y.t
	t.Helper()
	s, err := y.client.Stats(t.Context())
	must(t, err)
	if s.Ready < 1 || s.Ready > 2 || s.Delayed != 1 || s.Dead != 1 {
		t.Errorf("%s: %+v", when, s)
	}
	entries, err := y.rdb.XRange(t.Context(), "new:jobs", "-", "+").Result()
	must(t, err)
	for _, e := range entries {
		if e.Values["job_id"] != "pending" {
			t.Errorf("%s: %v", when, e)
		}
	}
	if info, err := y.source.GetQueueInfo("default"); err != nil || info.Size != 0 {
		t.Errorf("%s: asynq has %+v, %v", when, info, err)
	}
	if n := y.rdb.Exists(t.Context(), "new:from-asynq:notes").Val(); n != 0 {
		t.Errorf("%s: notes are left", when)
	}
}

func TestOneBridgeAtATime(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	must(t, y.rdb.Set(t.Context(), "new:from-asynq:lock", "another", 0).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := y.bridge().Pass(ctx, "default"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it worked beside another: %v", err)
	}
	if y.rdb.Get(t.Context(), "new:from-asynq:lock").Val() != "another" {
		t.Error("another's lock is gone")
	}
}

// A bridge that was silent for longer than its lease finds another at work, and leaves it alone.
func TestALostLock(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.enqueue("one", map[string]any{})
	b := y.bridge()
	b.kinds = map[string]Convert{"image:resize": func(t *asynq.TaskInfo) (jobs.Job, error) {
		return jobs.Job{Kind: "resize_image"}, y.rdb.Set(context.Background(), "new:from-asynq:lock", "another", 0).Err()
	}}
	if _, err := b.Pass(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "another bridge has begun") {
		t.Errorf("it went on: %v", err)
	}
	if got := y.rdb.Get(t.Context(), "new:from-asynq:lock").Val(); got != "another" {
		t.Errorf("the lock is %q's", got)
	}
	if info, err := y.source.GetQueueInfo("default"); err != nil || info.Pending != 1 {
		t.Errorf("asynq has %+v, %v", info, err)
	}
}

// Whatever asynq has to set and to call is in the tables of docs/from-asynq.md, so that nobody finds out later.
func TestTheTablesAreWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/from-asynq.md")
	must(t, err)
	words := map[string]bool{}
	for word := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		words[word] = true
	}
	names := strings.Fields("MaxRetry Queue TaskID Timeout Deadline Unique ProcessAt ProcessIn Retention Group") // the options
	for _, of := range []reflect.Type{reflect.TypeFor[asynq.Config](), reflect.TypeFor[asynq.SchedulerOpts](), reflect.TypeFor[asynq.PeriodicTaskManagerOpts]()} {
		for i := range of.NumField() {
			names = append(names, of.Field(i).Name)
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*asynq.Inspector](), reflect.TypeFor[*asynq.Server](), reflect.TypeFor[*asynq.Scheduler](), reflect.TypeFor[*asynq.Client]()} {
		for i := range of.NumMethod() {
			names = append(names, of.Method(i).Name)
		}
	}
	plain := []string{"RedisConnOpt", "RedisUniversalClient", "SchedulerOpts", "Close"} // how to connect, and to leave
	for _, name := range names {
		if !words[name] && !slices.Contains(plain, name) {
			t.Errorf("docs/from-asynq.md says nothing of %s", name)
		}
	}
}

func TestFlat(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		``:                                    "map[]",
		`{"a":"x","b":1.50,"c":true}`:         "map[a:x b:1.50 c:true]",
		`{"a":null,"b":{"c":[1]},"d":""}`:     `map[b:{"c":[1]} d:]`,
		`{"n":12345678901234567890,"s":"\n"}`: "map[n:12345678901234567890 s:\n]",
	} {
		if got, err := flat([]byte(payload)); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", payload, got, err, want)
		}
	}
	for _, payload := range []string{`[1]`, `"x"`, `{"kind":"x"}`, `{"raw":1}`, `{"":1}`, `\xff`} {
		if got, err := flat([]byte(payload)); err == nil {
			t.Errorf("%s is %v", payload, got)
		}
	}
}
