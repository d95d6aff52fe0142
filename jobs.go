package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/handoff"
	"github.com/stagedoor/jobs/internal/loops"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/steps"
	"github.com/stagedoor/jobs/internal/store"
)

// Fields are a job's arguments as they travel: flat names and values, which are bytes.
type Fields = map[string]string

// None are the arguments of a kind that has none.
type None = struct{}

// A Kind is a sort of job: its name, its policy and the type of its arguments. It is a
// package variable of the application, made by NewKind.
type Kind[A any] struct {
	name   string
	policy Policy
	codec  *fields.Codec // nil for Kind[Fields]
}

// NewKind defines a kind. A is a struct whose fields become the entry's: strings,
// integers, bools, floats, []byte, time.Time, time.Duration and encoding.TextMarshalers as
// they are, pointers where they are optional, anything else as JSON; or A is Fields, and
// the handler takes what comes. The tag `job:"order_id,required"` names a field and
// refuses a job without it; without a tag OrderID is order_id.
//
// It panics on an empty or unprintable name, on a policy that cannot be meant, and on an A
// with an unsupported or reserved field.
func NewKind[A any](name string, p Policy) Kind[A] {
	if err := record.CheckKind(name); err != nil {
		panic("jobs: NewKind: " + err.Error())
	}
	if err := p.check(); err != nil {
		panic(fmt.Sprintf("jobs: kind %q: %s", name, err))
	}
	k := Kind[A]{name: name, policy: p}
	if t := reflect.TypeFor[A](); t != reflect.TypeFor[Fields]() {
		codec, err := fields.New(t, fields.Reserved)
		if err != nil {
			panic(fmt.Sprintf("jobs: kind %q: %s", name, err))
		}
		k.codec = codec
	}
	return k
}

// Name returns the kind's name.
func (k Kind[A]) Name() string { return k.name }

// Policy returns the kind's policy.
func (k Kind[A]) Policy() Policy { return k.policy }

// Job makes a job of this kind and mints its ID (UUIDv7). Arguments that cannot be written
// are reported by Enqueue.
func (k Kind[A]) Job(args A) Job {
	j := Job{ID: mint(), Kind: k.name}
	if k.codec == nil {
		j.Fields = maps.Clone(any(args).(Fields))
		return j
	}
	j.Fields, j.err = k.codec.Encode(args)
	return j
}

// decode reads a job's fields into arguments of its own.
func (k Kind[A]) decode(from Fields) (args A, err error) {
	if k.codec == nil {
		return any(record.Arguments(from)).(A), nil
	}
	err = k.codec.Decode(from, &args)
	return args, err
}

func mint() string { return uuid.Must(uuid.NewV7()).String() }

// A Job is one unit of work. It is a value: Enqueue neither keeps nor changes it.
type Job struct {
	ID       string // empty: Enqueue mints one
	Kind     string
	Fields   Fields    // the arguments
	Attempts int       // made before this run; Enqueue writes 0
	Tick     time.Time // the instant it was scheduled for; zero where it was not

	// RequestID and Trace are carried untouched. Where they are empty, Enqueue takes them
	// from Options.Annotate or from the job in its context.
	RequestID, Trace string

	when when
	at   time.Time
	in   time.Duration
	err  error // the arguments could not be written
}

type when int

const (
	atOnce when = iota
	afterWait
	atTime
)

// At returns the job, due at t by Redis's clock: never before, whatever the clocks of
// producer and worker. A time that is past means at once; the zero time is an error.
func (j Job) At(t time.Time) Job {
	j.when, j.at = atTime, t
	return j
}

// In returns the job, due d after Redis's now; d <= 0 means at once.
func (j Job) In(d time.Duration) Job {
	j.when, j.in = afterWait, d
	if d <= 0 {
		j.when = atOnce
	}
	return j
}

// LogValue is what every log line of the library says of a job: not its arguments, which
// may be private.
func (j Job) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("id", j.ID), slog.String("kind", j.Kind), slog.Int("attempts", j.Attempts)}
	if !j.Tick.IsZero() {
		attrs = append(attrs, slog.Time("tick", j.Tick))
	}
	if j.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", j.RequestID))
	}
	if j.Trace != "" {
		attrs = append(attrs, slog.String("trace", j.Trace))
	}
	return slog.GroupValue(attrs...)
}

// entry is the job as it is enqueued, names and values in the order of an entry, or why it
// cannot be.
func (j Job) entry() ([]string, error) {
	if j.err != nil {
		return nil, j.err
	}
	if err := record.CheckKind(j.Kind); err != nil {
		return nil, err
	}
	if j.when == atTime && j.at.IsZero() {
		return nil, errors.New("At was given the zero time")
	}
	var room [12]string
	library := append(room[:0], "kind", j.Kind, "job_id", j.ID)
	if !j.Tick.IsZero() {
		library = append(library, "scheduled_at", j.Tick.UTC().Format(time.RFC3339))
	}
	library = append(library, "attempts", "0")
	if j.RequestID != "" {
		library = append(library, "request_id", j.RequestID)
	}
	if j.Trace != "" {
		library = append(library, "trace", j.Trace)
	}
	all := fields.Entry(j.Fields, library...)
	return all, record.Check(j.Fields, len(all)/2)
}

// item is the job as the store takes it.
func (j Job) item() (item store.Item, err error) {
	item.Entry, err = j.entry()
	switch j.when {
	case afterWait:
		item.In = j.in
	case atTime:
		item.At = j.at
	}
	return item, err
}

// parse reads a job's record, all but its arguments; see record.Parse.
func parse(id string, m Fields) (Job, error) {
	h, err := record.Parse(id, m)
	return Job{ID: h.ID, Kind: h.Kind, Attempts: h.Attempts, Tick: h.Tick, RequestID: h.RequestID, Trace: h.Trace}, err
}

type contextKey struct{}

// FromContext returns the job whose handler runs under ctx. Its Fields are a copy.
func FromContext(ctx context.Context) (Job, bool) {
	job, ok := ctx.Value(contextKey{}).(func() Job)
	if !ok {
		return Job{}, false
	}
	return job(), true
}

// NewContext returns a context with a job in it, for the tests of a handler that looks for
// one.
func NewContext(ctx context.Context, j Job) context.Context {
	j.Fields = maps.Clone(j.Fields)
	return context.WithValue(ctx, contextKey{}, func() Job {
		job := j
		job.Fields = maps.Clone(j.Fields)
		return job
	})
}

// Options of a Client; the zero value is ready to use.
type Options struct {
	// Prefix stands in front of every key. One prefix belongs to one fleet of workers. With
	// Redis Cluster it carries a hash tag, as in "{stagedoor}:".
	Prefix string

	// Annotate may fill RequestID and Trace of a job that is about to be enqueued, from the
	// context of Enqueue. It is called from many goroutines; what else it changes of the job
	// is enqueued too.
	Annotate func(ctx context.Context, j *Job)
}

// A Client enqueues jobs and looks after those that wait or are dead. It is safe for
// concurrent use and owns nothing that is to be closed.
type Client struct {
	store    *store.Store
	rdb      redis.UniversalClient
	annotate func(ctx context.Context, j *Job)
}

// NewClient returns a Client on a connection of the application's: any options, Sentinel,
// TLS and ACL users are its business. The library opens no connection of its own, and none
// of its commands that add, move or settle a job is ever resent by the client, whatever its
// MaxRetries; plain reads may be.
func NewClient(rdb redis.UniversalClient, o Options) *Client {
	if rdb == nil {
		panic("jobs: NewClient without a redis client")
	}
	return &Client{store: store.New(rdb, o.Prefix), rdb: rdb, annotate: o.Annotate}
}

var (
	// ErrNotFound: there is no such dead letter or delayed job (any more).
	ErrNotFound = errors.New("not found")
	// ErrUncertain: what was asked for may have been carried out or not. It was sent and its
	// answer never came; or of the jobs of one Enqueue Redis has refused some and not others.
	ErrUncertain = errors.New("it may have been carried out, or not")
)

// EnqueueError says how far an Enqueue came: the first Queued jobs are in, the next
// Uncertain ones may be, some or all of them, the rest is not. errors.Is(err, ErrUncertain)
// where there are uncertain ones.
type EnqueueError struct {
	Queued, Uncertain int
	Err               error
}

func (e *EnqueueError) Error() string {
	text := "jobs: enqueue: " + e.Err.Error()
	if e.Queued > 0 {
		text += fmt.Sprintf(" (the first %d are in)", e.Queued)
	}
	if e.Uncertain > 0 {
		text += fmt.Sprintf(" (of %d it is not known whether they are in)", e.Uncertain)
	}
	return text
}

// Unwrap returns what went wrong, and ErrUncertain where it applies.
func (e *EnqueueError) Unwrap() []error {
	if e.Uncertain > 0 {
		return []error{e.Err, ErrUncertain}
	}
	return []error{e.Err}
}

// Enqueue adds jobs. One is one command; up to 1,000 are one transaction, all or none; more
// go 1,000 by 1,000, and the first that fails ends it. A job that cannot be is refused
// before anything is sent. The error is an *EnqueueError. (Where some jobs are for later and some
// are not, and one of the two keys has the wrong type or is forbidden, Redis may carry out half of
// a transaction: the error says so.)
//
// Enqueueing the same Job value again (after an uncertain answer, say) is harmless where it
// is delayed and still waits; else it may run twice, under the same ID.
func (c *Client) Enqueue(ctx context.Context, jobs ...Job) error {
	items := make([]store.Item, len(jobs))
	for i, j := range jobs {
		j.note(ctx, c.annotate)
		item, err := j.item()
		if err != nil {
			return &EnqueueError{Err: fmt.Errorf("job %d, kind %q: %w", i, j.Kind, err)}
		}
		items[i] = item
	}
	queued, uncertain, err := c.store.Enqueue(ctx, items)
	if err != nil {
		return &EnqueueError{Queued: queued, Uncertain: uncertain, Err: err}
	}
	return nil
}

// note fills what a job says of its origin.
func (j *Job) note(ctx context.Context, annotate func(context.Context, *Job)) {
	if j.ID == "" {
		j.ID = mint()
	}
	if annotate != nil {
		own := make(Fields, len(j.Fields)) // the caller's is not to be changed
		maps.Copy(own, j.Fields)
		j.Fields = own
		annotate(ctx, j)
	}
	if j.RequestID != "" && j.Trace != "" {
		return
	}
	parent, ok := ctx.Value(contextKey{}).(func() Job)
	if !ok {
		return
	}
	p := parent()
	if j.RequestID == "" {
		j.RequestID = p.RequestID
	}
	if j.Trace == "" {
		j.Trace = p.Trace
	}
}

// Stats are the depths of a queue.
type Stats struct {
	Ready   int64 // not fetched yet
	Running int64 // fetched by a worker and not settled
	Delayed int64 // not due yet
	Dead    int64
	// OldestReady is for how long the oldest ready entry has waited.
	OldestReady time.Duration
}

// Stats counts what is where. A queue that no worker has ever run counts as ready.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	st, err := c.store.Stats(ctx)
	if err != nil {
		return Stats{}, fmt.Errorf("jobs: stats: %w", err)
	}
	return Stats(st), nil
}

// A Handler runs a job. Kinds have typed ones (see Handle); a Middleware sees them as this.
type Handler func(ctx context.Context, job Job) error

// A Middleware wraps handlers. A panic in the handler reaches it as a *PanicError, so that
// it may count, trace or redact what is later stored: of an error the whole chain, so one
// that hides something has no Unwrap (it may have Is and As). It may pass on another job's
// Fields than it was given; a retry is written from what was enqueued.
type Middleware func(next Handler) Handler

// Config of a Runner; the zero value is ready to use.
type Config struct {
	Slots   int           // room for so many running jobs; 0: 8
	Lease   time.Duration // how long a silent worker keeps its jobs; one length for a fleet; 0: 12 s; at least 100 ms
	Grace   time.Duration // for running jobs, when Run's context ends; 0: 20 s
	Timeout time.Duration // of an attempt, where the kind's policy has none; 0: 30 min; NoTimeout
	Worker  string        // this worker's name; a random part is added; "": the host's name
	Logger  *slog.Logger  // nil: slog.Default()

	// Middleware wraps every handler; the first is outermost.
	Middleware []Middleware

	// OnDead is told of each job that this worker has dead-lettered, after it is written, one
	// at a time and beside the consumer loop. It is a notice and not a promise: a crash in
	// between loses it, and so does a burst of more than 1,000 that it cannot keep up with. At
	// shutdown its context ends a second after all else has; what it has not been told of by
	// then is only counted in the log, and Run waits a second more for it to return, at most.
	OnDead func(context.Context, DeadLetter)

	// KeepDead is how many dead letters are kept, the newest; 0: 10,000.
	KeepDead int

	// KeepDeadFor is for how long dead letters are kept, since they hold customers' data: what
	// died longer ago is dropped by the sweep, and its number logged. 0: for any time.
	KeepDeadFor time.Duration

	// Observe is told what a Middleware cannot see, for metrics. It is called from several
	// goroutines at once, in the middle of their work: it must be fast and not block, nor end
	// its goroutine (runtime.Goexit, as t.FailNow does): at EventDelivered and EventSettled that
	// is the worker's end, and Run's error. A panic in it is recovered. nil costs nothing.
	Observe func(Event)
}

func (c *Config) fill() error {
	for name, d := range map[string]time.Duration{"Lease": c.Lease, "Grace": c.Grace, "Timeout": c.Timeout, "KeepDeadFor": c.KeepDeadFor} {
		if d < 0 {
			return fmt.Errorf("negative Config.%s: %s", name, d)
		}
	}
	if c.Slots < 0 || c.KeepDead < 0 {
		return fmt.Errorf("negative Config.Slots or Config.KeepDead: %d, %d", c.Slots, c.KeepDead)
	}
	if c.Lease > 0 && c.Lease < 100*time.Millisecond {
		return fmt.Errorf("Config.Lease is %s, and must be at least 100ms", c.Lease)
	}
	c.Slots = or(c.Slots, 8)
	c.Lease = or(c.Lease, 12*time.Second)
	c.Grace = min(or(c.Grace, 20*time.Second), NoTimeout-time.Hour) // something is added to it
	c.Timeout = or(c.Timeout, 30*time.Minute)
	c.KeepDead = or(c.KeepDead, 10_000)
	if c.Worker == "" {
		c.Worker, _ = os.Hostname()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

func or[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}

// A Runner is a worker: it runs the jobs of the kinds that it was given handlers for, and
// takes its part in reclaiming, promoting and scheduling. Handle and Schedule come before
// Run.
type Runner struct {
	cfg      Config
	client   *Client
	store    *store.Store
	consumer string
	handlers map[string]*handler
	periodic []*periodic

	leases    leases
	queue     queue
	alarm     alarm
	contact   loops.Contact
	ended     chan *run       // runs that have come to a conclusion
	found     chan finds      // of the sweep, for the loop
	forgot    time.Time       // when silent consumers were last removed; the sweep's own
	dead      chan DeadLetter // for OnDead
	abandoned atomic.Int64    // handlers that outlived their timeout and still run
	teller    teller
	strangers outcomes // of kinds that are not known here
	loops     map[string]*loops.Loop
	started   atomic.Bool
}

// handler is a kind as a Runner knows it.
type handler struct {
	name    string
	policy  Policy
	timeout time.Duration
	run     Handler
	copies  bool // what runs could change the fields
	ended   outcomes
	where   string // it was handled, in source
	what    string // the function that handles it
}

// NewRunner returns a Runner on c's queue. It panics on a Config that cannot be meant.
func NewRunner(c *Client, cfg Config) *Runner {
	if c == nil {
		panic("jobs: NewRunner without a Client")
	}
	if err := cfg.fill(); err != nil {
		panic("jobs: NewRunner: " + err.Error())
	}
	consumer := cfg.Worker + "-" + uuid.NewString()[:8]
	r := &Runner{
		cfg: cfg, client: c, consumer: consumer, store: c.store.As(consumer),
		handlers: map[string]*handler{},
		ended:    make(chan *run, cfg.Slots),
		found:    make(chan finds, 1),
		dead:     make(chan DeadLetter, 1000),
		loops:    map[string]*loops.Loop{},
		alarm:    alarm{earlier: make(chan struct{}, 1)},
	}
	r.leases.runs = map[string]*run{}
	for _, loop := range []string{"fetch", "renew", "sweep", "promote", "tick", "start"} {
		r.loops[loop] = loops.New(loop, cfg.Logger.With("worker", consumer))
		r.loops[loop].Trouble = r.troubled(loop)
	}
	renew := r.loops["renew"]
	renew.Hurry(cfg.Lease / 6) // once Redis is back others wait for a lease, and no longer
	for _, other := range []string{"fetch", "sweep", "promote", "tick"} {
		r.loops[other].Follow(renew)
	}
	return r
}

// Handle gives the handler of a kind to r: h is a function of the application's domain and
// knows nothing of queues; what it needs of its job it finds by FromContext. Its goroutine is
// not for it alone: what it does to it (runtime.LockOSThread, pprof labels) it undoes. Of
// several middlewares the first is outermost, and all are inside of Config.Middleware.
//
// It panics where the kind has a handler already, and names both places.
func Handle[A any](r *Runner, k Kind[A], h func(ctx context.Context, args A) error, mw ...Middleware) {
	if h == nil || k.name == "" {
		panic("jobs: Handle needs a kind made by NewKind and a handler")
	}
	typed := guarded(func(ctx context.Context, job Job) error {
		args, err := k.decode(job.Fields)
		if err != nil {
			return &undecodable{err}
		}
		return h(ctx, args)
	})
	mw = append(slices.Clone(r.cfg.Middleware), mw...)
	outer := typed
	for _, m := range slices.Backward(mw) {
		outer = m(outer)
	}
	_, file, line, _ := runtime.Caller(1)
	r.handle(&handler{
		name: k.name, policy: k.policy, timeout: or(k.policy.Timeout, r.cfg.Timeout),
		run: outer, copies: len(mw) > 0,
		where: fmt.Sprintf("%s:%d", filepath.Base(file), line), what: funcName(h),
	})
}

func (r *Runner) handle(h *handler) {
	if r.started.Load() {
		panic(fmt.Sprintf("jobs: kind %q handled at %s after Run", h.name, h.where))
	}
	if first := r.handlers[h.name]; first != nil {
		panic(fmt.Sprintf("jobs: kind %q handled twice: %s and %s", h.name, first.where, h.where))
	}
	r.handlers[h.name] = h
}

// funcName says which function h is, and where it begins.
func funcName(h any) string {
	f := runtime.FuncForPC(reflect.ValueOf(h).Pointer())
	if f == nil {
		return "?"
	}
	name := strings.TrimSuffix(f.Name(), "-fm") // a method value
	file, line := f.FileLine(f.Entry())
	if strings.HasPrefix(file, "<") {
		return name
	}
	return fmt.Sprintf("%s (%s:%d)", name, file, line)
}

// Run works until ctx ends, and then lets running jobs finish: it fetches no more, keeps
// the leases and waits for Config.Grace, cancels what is left with ErrShutdown and waits a
// second more. What then returns nil is done, what returns an error is ready again at once
// with its attempts unchanged, and what does not return is handed to other workers as it
// is; of the last Run's error tells the number. After a clean drain it is nil.
//
// Then Redis has five seconds for what is to be written, and OnDead up to two. Where Redis
// holds its connections and does not answer, what was asked before ctx ended and what is
// still asked after those seconds may outlive Run, until the client's own timeouts end it.
// A round trip of the consumer loop that is under way when ctx ends is waited for.
//
// Before it has worked for the first time Run returns at once for what waiting does not
// mend: a missing right, a wrong password, Redis older than 6.2, a prefix without hash tag
// on a cluster, a key of the wrong type. All else, at any time, it waits out: Redis may be
// down when Run is called and go away at any time.
//
// A Runner runs once. With several Runners in one process a job that kills it takes their
// jobs along: then the promise that no innocent is dead-lettered does not hold.
func (r *Runner) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return errors.New("jobs: a Runner runs once")
	}
	if ready, err := r.prepare(ctx); !ready {
		return err
	}
	err := errors.New("jobs: Run: the consumer loop's goroutine was ended (runtime.Goexit, as t.FailNow does), by Config.Observe perhaps")
	var work sync.WaitGroup // not on the caller's goroutine, so that Run returns then too
	work.Go(func() { err = r.live(ctx) })
	work.Wait()
	return err
}

// live is Run, once Redis is as a worker needs it.
func (r *Runner) live(ctx context.Context) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	// What outlives ctx: outcomes are written and leases kept until the last job has ended.
	after, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	dying, over := context.WithCancel(context.WithoutCancel(ctx)) // over: no more jobs die
	defer over()
	defer func() {
		for _, run := range r.leases.all() {
			r.lose(run) // nobody keeps its lease any more
		}
	}()
	l := newLoop(r, context.WithoutCancel(ctx))

	var seekers, keepers, mourner sync.WaitGroup
	keepers.Go(func() { l.read(after) })
	keepers.Go(func() { r.watch(after) })
	keepers.Go(func() { r.loops["renew"].Every(after, r.renew) })
	seekers.Go(func() { r.loops["sweep"].Every(ctx, r.sweep) })
	seekers.Go(func() { r.loops["promote"].Every(ctx, r.promote) })
	seekers.Go(func() { r.loops["tick"].Every(ctx, r.tick) })
	mourner.Go(func() { r.mourn(dying) })

	l.work(ctx)
	left := leftovers{running: l.finish(after)}
	last, end := context.WithTimeout(context.WithoutCancel(ctx), redisHas)
	defer end()
	left.unwritten = l.drain(last)
	stop()
	if within(last, seekers.Wait) && within(last, keepers.Wait) {
		r.leave(last)
	}
	over()
	r.endMourning(mourner.Wait)
	return left.err(r.cfg.Grace)
}

// redisHas is how long Redis has, once no job runs any more, for what is still to be asked.
const redisHas = 5 * time.Second

// within calls f, and waits for it until ctx ends and a moment more, for what has only to
// see that it is over. It says whether f has returned; else that goes on by itself.
func within(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// prepare waits until Redis is there and as a worker needs it, or until ctx ends.
func (r *Runner) prepare(ctx context.Context) (ready bool, err error) {
	start := r.loops["start"]
	for ctx.Err() == nil {
		err := r.store.Prepare(ctx)
		if err == nil {
			start.Over()
			r.heard()
			return true, nil
		}
		if final, ok := errors.AsType[*store.FinalError](err); ok {
			return false, fmt.Errorf("jobs: Run: %w", final)
		}
		loops.Sleep(ctx, start.Met(err))
	}
	return false, nil
}

// leave takes the consumer away where it owns nothing. Who is gone without leave is removed
// by the others' sweep.
func (r *Runner) leave(ctx context.Context) {
	news := r.lastNews()
	within(ctx, func() { _ = r.store.Leave(ctx, news...) })
}

// Healthy is for a liveness probe: nil while every loop of a running Runner goes round, else
// it names the loop that has stood still for a minute. A Redis that is away is no reason to
// restart a worker, and none of Healthy's.
func (r *Runner) Healthy() error {
	for _, l := range r.loops {
		if l.Stands() {
			return fmt.Errorf("jobs: worker %s: the %s loop stands still", r.consumer, l.Name())
		}
	}
	return nil
}

// mourn tells OnDead. When ctx ends no more jobs die, and it has a second for what it has not
// been told of yet.
func (r *Runner) mourn(ctx context.Context) {
	telling, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, end) })()
	for telling.Err() == nil {
		select {
		case letter := <-r.dead:
			if p := <-apart(func() { r.cfg.OnDead(telling, letter) }); p != nil {
				r.cfg.Logger.Error("jobs: OnDead panicked", "job", letter.Job, "err", p, "stack", string(p.Stack))
			}
		case <-ctx.Done():
			if len(r.dead) == 0 {
				return
			}
		}
	}
}

// endMourning waits for the end of mourn, and a second longer than OnDead has, and says what was
// left undone.
func (r *Runner) endMourning(wait func()) {
	ctx, end := context.WithTimeout(context.Background(), 2*time.Second)
	defer end()
	if ended := within(ctx, wait); !ended || len(r.dead) > 0 {
		r.cfg.Logger.Warn("jobs: OnDead is not waited for any longer", "worker", r.consumer, "untold", len(r.dead), "returned", ended)
	}
}

// loop is the consumer loop: the one goroutine that fills slots. What is in here is its own.
type loop struct {
	*Runner
	base      context.Context // of the handlers
	busy      int             // slots with a running handler
	unsettled []*run          // concluded, and not written yet
	stuck     int             // of these, how many were tried in vain
	others    []string        // entries that were handed over
	estranged time.Time       // when it last told of a kind that is not known here
	asked     int             // slots kept for what the blocked read may bring
	awaited   time.Time       // when it should have come back
	dry       bool            // it has brought less than that
	asks      chan int        // to the blocked read
	arrived   chan arrival    // from it
	finds                     // to be claimed
	isolation isolation
	pace      *loops.Loop
}

type arrival struct {
	entries []store.Entry
	err     error
}

func newLoop(r *Runner, base context.Context) *loop {
	return &loop{Runner: r, base: base, asks: make(chan int), arrived: make(chan arrival, 1), pace: r.loops["fetch"], isolation: newIsolation(r)}
}

// work fetches jobs and settles them. It knows no special case: what comes from a producer,
// a relay, the schedule, a retry or a replay are all just entries.
func (l *loop) work(ctx context.Context) {
	for ctx.Err() == nil {
		l.pace.Beat()
		l.collect()
		err := l.takeOver(ctx)
		fetched, tripErr := l.trip(ctx, l.wanted())
		switch err := errors.Join(err, tripErr); {
		case err != nil:
			l.suffer(ctx, err)
		case fetched == 0:
			l.wait(ctx)
		}
	}
}

// free is for how many entries there is room.
func (l *loop) free() int {
	if l.asked > 0 || !l.isolation.open() {
		return 0
	}
	return max(0, l.cfg.Slots-l.busy-l.stuck)
}

// wanted is how many entries to fetch at once: none where a blocked read has just shown that
// there are no more.
func (l *loop) wanted() int {
	if l.dry {
		l.dry = false
		return 0
	}
	return l.free()
}

// collect takes what has ended so far, without waiting. Others are let go first: what ends
// in this moment can travel along.
func (l *loop) collect() {
	runtime.Gosched()
	for {
		select {
		case run := <-l.ended:
			l.take(run)
		default:
			return
		}
	}
}

// take frees the slot of a run that has ended.
func (l *loop) take(run *run) {
	l.busy--
	l.unsettled = append(l.unsettled, run)
}

// trip writes the outcomes there are, and fetches up to n entries in the same round trip.
func (l *loop) trip(ctx context.Context, n int) (int, error) {
	if n == 0 && len(l.unsettled) == 0 {
		return 0, nil
	}
	t := l.pack(context.WithoutCancel(ctx))
	if n > 0 {
		t.Fetch(n)
	}
	asked := time.Now()
	entries, err := t.Go()
	err = l.unpack(err)
	l.receive(ctx, asked, 1, entries...)
	return len(entries), err
}

// lastTrip writes the outcomes there are, at shutdown, and waits for Redis until ctx ends. What
// is answered later counts as a lost reply: the outcomes are to be written again.
func (l *loop) lastTrip(ctx context.Context) error {
	if len(l.unsettled) == 0 {
		return nil
	}
	t := l.pack(ctx)
	var err error
	if !within(ctx, func() { _, err = t.Go() }) {
		for _, run := range l.unsettled {
			run.unsure = true
		}
		return errors.New("no answer at shutdown")
	}
	return l.unpack(err)
}

// pack begins a trip with the outcomes there are.
func (l *loop) pack(ctx context.Context) *store.Trip {
	t := l.store.Trip(ctx)
	for _, run := range l.unsettled {
		run.write(t, l.cfg)
	}
	return t
}

// unpack sees what became of the outcomes of a trip that ended with err.
func (l *loop) unpack(err error) error {
	if err == nil {
		l.heard()
	}
	if err = errors.Join(err, l.settle()); err == nil {
		l.pace.Over()
	}
	return err
}

// settle lets go of what is written, or not ours to write; the rest is tried again.
func (l *loop) settle() error {
	var failed error
	letters := sync.OnceValue(l.newestLetters)
	kept, soonest := l.unsettled[:0], time.Hour
	for _, run := range l.unsettled {
		if err := l.written(run, letters); err != nil {
			kept, failed = append(kept, run), err
			run.unsure = run.unsure || !store.Refused(err) && !store.Unsent(err)
			continue
		}
		l.leases.drop(run)
		if run.outcome == toRetry || run.outcome == toSnooze {
			soonest = min(soonest, run.wait)
		}
	}
	if soonest < promoteWake {
		l.loops["promote"].Wake(soonest)
	}
	clear(l.unsettled[len(kept):])
	l.unsettled, l.stuck = kept, len(kept)
	return failed
}

// receive starts entries, unless their answer is so long overdue that they may be another
// worker's by now: then it asks first. What is ours for want of an answer the sweep takes up.
func (l *loop) receive(ctx context.Context, asked time.Time, delivery int, entries ...store.Entry) {
	if len(entries) > 0 && time.Since(asked) > l.cfg.Lease/2 {
		entries = l.stillOurs(ctx, entries)
	}
	runs := make([]*run, 0, len(entries))
	for _, e := range entries {
		if run := l.admit(e, delivery); run != nil {
			runs = append(runs, run)
		}
	}
	l.queue.put(l.Runner, runs...)
}

func (l *loop) stillOurs(ctx context.Context, entries []store.Entry) []store.Entry {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	asked := time.Now()
	lost, err := l.store.Renew(context.WithoutCancel(ctx), ids)
	if err != nil || time.Since(asked) > l.cfg.Lease/2 { // this answer says nothing any more either
		return nil
	}
	return slices.DeleteFunc(entries, func(e store.Entry) bool { return slices.Contains(lost, e.ID) })
}

// admit gives an entry a slot. What already runs here, nil, goes on as the owner of the new
// delivery: the group was made again, or Redis has lost writes.
func (l *loop) admit(e store.Entry, delivery int) *run {
	run := l.newRun(l.base, e, delivery)
	if !l.leases.add(run) {
		return nil
	}
	l.busy++
	l.delivered(run)
	return run
}

// wait waits for news: an entry, an end, or candidates of the sweep. There is one blocked
// read at a time, for no more than there is room for.
func (l *loop) wait(ctx context.Context) {
	if l.mayIsolate() {
		return
	}
	if n := l.free(); n > 0 {
		l.asked, l.awaited = n, time.Now().Add(block)
		l.asks <- n
	}
	if l.asked == 0 {
		l.pace.Rest() // every slot is busy, for as long as it takes
	}
	var soon <-chan time.Time
	if !l.isolation.open() {
		soon = time.After(l.cfg.Lease / 4)
	}
	select {
	case a := <-l.arrived:
		l.arrive(ctx, a)
	case run := <-l.ended:
		l.take(run)
	case l.finds = <-l.found:
	case <-soon:
	case <-ctx.Done():
	}
}

func (l *loop) arrive(ctx context.Context, a arrival) {
	l.dry = a.err == nil && len(a.entries) < l.asked
	l.asked = 0
	if a.err != nil {
		l.suffer(ctx, a.err)
		return
	}
	l.heard()
	l.receive(ctx, l.awaited, 1, a.entries...)
}

// block is for how long a read waits for entries: a cancelled context does not end it.
const block = 500 * time.Millisecond

// read is the blocked read. It is not the loop's own, so that what ends meanwhile is
// settled at once.
func (l *loop) read(ctx context.Context) {
	for {
		select {
		case n := <-l.asks:
			entries, err := l.store.Wait(ctx, n, block)
			l.arrived <- arrival{entries, err}
		case <-ctx.Done():
			return
		}
	}
}

// suffer mends what can be mended, and waits a while.
func (l *loop) suffer(ctx context.Context, err error) {
	if store.NoGroup(err) && l.store.MakeGroup(ctx) == nil {
		l.cfg.Logger.Warn("jobs: the stream or its group was gone, and is made again", "worker", l.consumer)
		return
	}
	loops.Sleep(ctx, l.pace.Met(err))
	l.pace.Await(ctx)
}

// leftovers are what a shutdown could not bring to an end.
type leftovers struct{ running, unwritten int }

func (left leftovers) err(grace time.Duration) error {
	if left == (leftovers{}) {
		return nil
	}
	return fmt.Errorf("jobs: Run: after the grace time of %s %d jobs still ran, %d outcomes could not be written", grace, left.running, left.unwritten)
}

// drain writes what has ended, and gives back what the last blocked read brings, until ctx
// ends. It returns how many outcomes it could not write. What a read brings later is not run:
// its lease runs out.
func (l *loop) drain(ctx context.Context) (unwritten int) {
	for ctx.Err() == nil && (l.asked > 0 || len(l.unsettled) > 0) {
		wait := redisHas
		if err := l.lastTrip(ctx); err != nil {
			wait = l.pace.Met(err)
		} else if l.asked == 0 {
			break
		}
		select {
		case a := <-l.arrived:
			l.giveBack(a)
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	if l.asked == 0 && len(l.unsettled) == 0 {
		within(ctx, func() { l.disown(ctx) })
	}
	return len(l.unsettled)
}

// disown hands over what is this consumer's and never came here: the reply that brought it
// was lost. No process has died under it. Where this fails, the others' sweep finds it.
func (l *loop) disown(ctx context.Context) {
	t := l.store.Trip(ctx)
	_ = l.store.Idle(ctx, 0, func(page []store.Pending) error {
		for _, p := range page {
			if p.Owner == l.consumer && !slices.Contains(l.others, p.ID) {
				t.HandOver(p.ID, p.Deliveries, l.cfg.overdue())
			}
		}
		return nil
	})
	_, _ = t.Go()
}

// finish waits for what runs, as Run promises: for the grace time, and for a second after it
// was cancelled, whether Redis answers or not. It returns how many had to be handed over.
func (l *loop) finish(ctx context.Context) (left int) {
	l.pace.Rest()
	ctx, end := context.WithTimeout(ctx, l.cfg.Grace+time.Second)
	defer end()
	defer time.AfterFunc(l.cfg.Grace, func() { l.leases.cancel(ErrShutdown) }).Stop()
	if l.isolation.state == emptying {
		within(ctx, func() { l.giveUp(ctx) })
	}
	for l.busy > 0 {
		if err := l.lastTrip(ctx); err != nil {
			_ = l.pace.Met(err) // written again when the next one ends
		}
		select {
		case run := <-l.ended:
			l.take(run)
			l.collect()
		case a := <-l.arrived:
			l.giveBack(a)
		case <-ctx.Done():
			return l.handOver()
		}
	}
	return 0
}

// giveBack puts what the last blocked read brought back to ready, unrun. What cannot be read as
// a job is dead-lettered at once: it may have too many fields to be written again.
func (l *loop) giveBack(a arrival) {
	l.asked = 0
	for _, e := range a.entries {
		if run := l.newRun(l.base, e, 1); l.leases.add(run) {
			c := conclusion{next: next{outcome: toRelease}}
			if run.bad != nil {
				c = run.rejected()
			}
			run.conclude(c)
			l.unsettled = append(l.unsettled, run)
		}
	}
}

// handOver lets go of what still runs, and returns how many that are.
func (l *loop) handOver() int {
	left, coming := 0, 0
	for _, run := range l.leases.all() {
		switch {
		case run.leave(l.Runner, conclusion{next: next{outcome: toOthers}}):
			l.unsettled, l.others = append(l.unsettled, run), append(l.others, run.entry.ID)
			left++
		case !slices.Contains(l.unsettled, run):
			coming++ // it has ended in this moment
		}
	}
	for ; coming > 0; coming-- {
		l.take(<-l.ended)
	}
	l.busy = 0
	return left
}

func init() {
	handoff.Item = func(ctx context.Context, job any, annotate any) (store.Item, error) {
		j := job.(Job)
		j.note(ctx, annotate.(func(context.Context, *Job)))
		return j.item()
	}
	handoff.Store = func(client any) *store.Store { return client.(*Client).store }
	steps.Of = func(r any) any { return &driver{loop: newLoop(r.(*Runner), context.Background())} }
}

// driver is a Runner that goes only when told to, for package jobstest.
type driver struct{ loop *loop }

// Begin does what Run does before anything else.
func (d *driver) Begin(ctx context.Context) error { return d.loop.store.Prepare(ctx) }

// Tick enqueues the ticks that are due.
func (d *driver) Tick(ctx context.Context) error {
	_, err := d.loop.tick(ctx)
	for _, p := range d.loop.periodic {
		err = or(err, p.broken)
	}
	return err
}

// NextTick is when the next tick is due; zero where none is.
func (d *driver) NextTick() (next time.Time) {
	for _, p := range d.loop.periodic {
		if next.IsZero() || !p.next.IsZero() && p.next.Before(next) {
			next = p.next
		}
	}
	return next
}

// Promote moves due jobs to the stream.
func (d *driver) Promote(ctx context.Context) error {
	_, err := d.loop.promote(ctx)
	return err
}

// Drain runs what is ready until nothing is.
func (d *driver) Drain(ctx context.Context) error {
	l := d.loop
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { l.watch(watched) })
	defer watch.Wait()
	defer stop()
	for {
		fetched, err := l.trip(ctx, l.free())
		if err != nil || fetched == 0 && l.busy == 0 {
			return err
		}
		l.take(<-l.ended)
	}
}

// Ready returns the jobs that are ready, in their order.
func (d *driver) Ready(ctx context.Context) ([]Job, error) {
	entries, err := d.loop.store.Ready(ctx)
	jobs := make([]Job, len(entries))
	for i, e := range entries {
		jobs[i], _ = parse(e.ID, e.Fields)
		jobs[i].Fields = record.Arguments(e.Fields)
	}
	return jobs, err
}

// Dead tells OnDead of what died.
func (d *driver) Dead(ctx context.Context) {
	for len(d.loop.dead) > 0 {
		d.loop.cfg.OnDead(ctx, <-d.loop.dead)
	}
}
