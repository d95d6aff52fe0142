package jobs

// A job in here is running. The wrapper runs its handler and never lets anything out but
// a conclusion: what to do with the job, decided by a pure function of policy, attempts
// and error. The consumer loop then writes it, and the job is gone, delayed or dead.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stagedoor/jobs/internal/loops"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// Causes of a handler's cancelled context, as context.Cause returns them.
var (
	// ErrShutdown: the Runner is leaving, and the grace time is over. A job that now
	// returns an error goes back to ready, its attempts unchanged.
	ErrShutdown = errors.New("the worker is shutting down")
	// ErrLeaseLost: the job belongs to another worker by now, or is gone. Whatever the
	// handler returns, nothing of this run is written.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrTimeout: the attempt took longer than its Timeout. A handler that does not
	// return within a second more is abandoned. (The handler's own context then says
	// context.DeadlineExceeded; one that was derived from it context.Canceled, with this cause.)
	ErrTimeout = errors.New("timeout")
)

var (
	errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit, as t.FailNow does)")
	errEnded  = errors.New("it ended its goroutine (runtime.Goexit, as t.FailNow does)")
)

// Permanent marks an error after which the job is never to be tried again: it goes to
// the dead letters, whatever its policy. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// RetryAfter marks an error with the wait before the next attempt, in place of the
// policy's backoff (a provider's Retry-After, say). How often remains the policy's.
// RetryAfter(d, nil) is nil; a negative d is 0.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfter{max(0, d), err}
}

// Snooze puts the job off without calling it a failure: no attempt is spent. At most a
// day, and at least a millisecond; a job may be put off again and again.
func Snooze(d time.Duration) error {
	return &snooze{min(max(d, time.Millisecond), 24*time.Hour)}
}

type (
	permanent  struct{ err error }
	retryAfter struct {
		wait time.Duration
		err  error
	}
	snooze      struct{ wait time.Duration }
	undecodable struct{ err error }
)

func (e *permanent) Error() string   { return e.err.Error() }
func (e *permanent) Unwrap() error   { return e.err }
func (e *retryAfter) Error() string  { return e.err.Error() }
func (e *retryAfter) Unwrap() error  { return e.err }
func (e *snooze) Error() string      { return "snoozed for " + e.wait.String() }
func (e *undecodable) Error() string { return string(ReasonUndecodable) + ": " + e.err.Error() }
func (e *undecodable) Unwrap() error { return e.err }

// PanicError is what a handler's panic becomes.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine, from the panic on
}

func (e *PanicError) Error() string { return "panic: " + safeText(e.Value) }

// Unwrap returns the value of the panic where it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// An outcome is where a job goes after a run.
type outcome int

const (
	toDone    outcome = iota // gone
	toRetry                  // delayed, one attempt more
	toSnooze                 // delayed, attempts unchanged
	toDead                   // dead
	toRelease                // ready, attempts unchanged
	toPark                   // delayed, attempts unchanged: its kind is not known here
	toOthers                 // still running when the process leaves
)

// next is a decision: where to, and after which wait.
type next struct {
	outcome outcome
	wait    time.Duration
}

// decide tells what becomes of a job that had made so many attempts before this one.
func decide(p Policy, attempts int, err error) next {
	if err == nil {
		return next{outcome: toDone}
	}
	if _, ok := errors.AsType[*permanent](err); ok { // before all else: never means never
		return next{outcome: toDead}
	}
	if _, ok := errors.AsType[*undecodable](err); ok {
		return next{outcome: toDead}
	}
	if s, ok := errors.AsType[*snooze](err); ok {
		return next{toSnooze, s.wait}
	}
	if attempts >= p.Retries {
		return next{outcome: toDead}
	}
	if r, ok := errors.AsType[*retryAfter](err); ok {
		return next{toRetry, r.wait}
	}
	return next{toRetry, p.wait(attempts)}
}

// A conclusion is all that is left of an attempt.
type conclusion struct {
	next
	err       error
	text      string // of the error, bounded
	traceback string // bounded; empty where no handler failed
	reason    Reason
	since     int64 // epoch seconds: its kind has not been known from then on
	took      time.Duration
}

// conclude reads an error of the handler's, which may be hostile: its methods panic, its
// text is endless. Of a run that was cut off by a shutdown only success counts.
// what names the handler, for the traceback.
func conclude(p Policy, attempts int, err, cause error, what string) conclusion {
	if err == nil {
		return conclusion{}
	}
	if errors.Is(cause, ErrShutdown) {
		return conclusion{next: next{outcome: toRelease}, err: err, text: record.Bounded(safeText(err), maxError)}
	}
	c := conclusion{err: err, reason: ReasonFailed}
	if v := try(func() { c.next = decide(p, attempts, err) }); v != nil {
		c.next = decide(p, attempts, unreadable(err))
	}
	c.text = record.Bounded(safeText(err), maxError)
	if c.outcome == toDead || c.outcome == toRetry {
		c.traceback = record.Bounded("handler "+what+"\n"+traceback(err), maxTraceback)
	}
	if try(func() {
		if _, ok := errors.AsType[*undecodable](err); ok {
			c.reason, c.traceback = ReasonUndecodable, ""
		}
	}) != nil {
		c.reason = ReasonFailed
	}
	return c
}

// unreadable is what remains of an error whose methods panic: how long to wait, where its
// outermost says so.
func unreadable(err error) error {
	blank := errors.New("an error that cannot be read")
	if r, ok := err.(*retryAfter); ok {
		return &retryAfter{r.wait, blank}
	}
	return blank
}

// try calls f and returns what it panicked with.
func try(f func()) (panicked *PanicError) {
	defer func() {
		if v := recover(); v != nil {
			panicked = &PanicError{Value: v, Stack: stack()}
		}
	}()
	f()
	return nil
}

// apart is try on a goroutine of its own, as a handler's is, for a function of the application's
// that is called where ours has to go on: it may end its goroutine, or not come back.
func apart(f func()) <-chan *PanicError {
	ended := make(chan *PanicError, 1)
	go func() {
		panicked := &PanicError{Value: errEnded}
		defer func() { ended <- panicked }()
		panicked = try(f)
	}()
	return ended
}

// guarded makes a panic an error. (A runtime.Goexit cannot be held up; it is noticed
// where the goroutine ends.)
func guarded(h Handler) Handler {
	return func(ctx context.Context, job Job) (err error) {
		if p := try(func() { err = h(ctx, job) }); p != nil {
			return p
		}
		return err
	}
}

// stack is the present goroutine's, without what lies above the panic.
func stack() []byte {
	full := debug.Stack()
	if _, below, ok := strings.Cut(string(full), "\npanic("); ok {
		if _, below, ok = strings.Cut(below, "\n\t"); ok { // the file of panic itself
			_, below, _ = strings.Cut(below, "\n")
			return []byte(below)
		}
	}
	return full
}

// What is kept of an error, in bytes. What is longer is cut, and says so.
const (
	maxError     = 8 << 10
	maxTraceback = 32 << 10
	maxLastError = 256
)

// safeText is what v says of itself, or that it cannot.
func safeText(v any) (text string) {
	if p := try(func() {
		if err, ok := v.(error); ok {
			text = err.Error()
			return
		}
		text = fmt.Sprint(v)
	}); p != nil {
		return fmt.Sprintf("an error of type %T whose Error method panics", v)
	}
	return text
}

// traceback is the chain of a wrapped error, outermost first, each with its type; of a
// panic the stack.
func traceback(err error) string {
	var b strings.Builder
	if p := try(func() { trace(&b, err, 0) }); p != nil {
		fmt.Fprintf(&b, "(the chain ends here: %T panicked)\n", err)
	}
	return b.String()
}

func trace(b *strings.Builder, err error, depth int) {
	const deepest, longest = 32, 1 << 10
	if err == nil || depth > deepest || b.Len() > maxTraceback {
		return
	}
	fmt.Fprintf(b, "%s%T: %s\n", strings.Repeat("  ", depth), err, record.Bounded(safeText(err), longest))
	switch e := err.(type) {
	case *PanicError:
		b.Write(e.Stack)
	case interface{ Unwrap() error }:
		trace(b, e.Unwrap(), depth+1)
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			trace(b, wrapped, depth+1)
		}
	}
}

// overtime is how long a handler may go on after its timeout before it is abandoned.
const overtime = time.Second

// A run is one delivery in a slot, and the context of its handler.
type run struct {
	context.Context // cancelled with a cause; the other methods are below
	cancel          context.CancelCauseFunc

	entry    store.Entry // as it came, and never shown to a handler
	delivery int
	job      Job
	bad      error    // it cannot be read as a job
	handler  *handler // nil: its kind is not known here
	began    time.Time
	deadline time.Time
	warned   time.Time   // when it was cancelled with ErrTimeout; the watch's own
	overdue  bool        // it is being abandoned; the watch's own
	over     atomic.Bool // a conclusion is drawn, and later ones do not count
	lost     atomic.Bool // the lease: nothing is written any more
	conclusion
	letter Fields      // where the job is dead
	reply  store.Reply // none where the lease is lost
	unsure bool        // an answer to it was lost: it may have been written then; the loop's own
}

func (r *Runner) newRun(base context.Context, e store.Entry, delivery int) *run {
	run := &run{entry: e, delivery: delivery, began: time.Now()}
	run.job, run.bad = parse(e.ID, e.Fields)
	run.handler = r.handlers[run.job.Kind]
	if run.handler != nil && run.handler.timeout < NoTimeout {
		run.deadline = run.began.Add(run.handler.timeout)
	}
	run.Context, run.cancel = context.WithCancelCause(base)
	return run
}

// Deadline is when the attempt's timeout is over.
func (run *run) Deadline() (time.Time, bool) { return run.deadline, !run.deadline.IsZero() }

// Err is context.DeadlineExceeded after the timeout, as everybody expects.
func (run *run) Err() error {
	if err := run.Context.Err(); err == nil || context.Cause(run.Context) != ErrTimeout {
		return err
	}
	return context.DeadlineExceeded
}

// Value finds the job, for FromContext, and the decision on it, for OutcomeOf.
func (run *run) Value(key any) any {
	switch key {
	case contextKey{}:
		return run.view
	case outcomeKey{}:
		return run.outcomeOf
	}
	return run.Context.Value(key)
}

// view is the job as a handler sees it: with a copy of its arguments.
func (run *run) view() Job {
	j := run.job
	j.Fields = record.Arguments(run.entry.Fields)
	return j
}

// work comes to a conclusion, on a goroutine that is not of Run's. Each run ends in r.ended, once.
func (run *run) work(r *Runner) {
	switch {
	case run.bad != nil:
		run.end(r, run.rejected())
	case run.handler == nil:
		run.end(r, r.park(run))
	default:
		if r.alarm.before(run.deadline) {
			r.alarm.ring()
		}
		run.handle(r)
	}
}

// A queue are runs that nobody works at yet. While there are any, a goroutine is on its way
// that has nothing else to do: so none waits for another's handler. But one whose handler
// has come back goes on with the next, since a goroutine costs more than a short job.
type queue struct {
	mu     sync.Mutex
	runs   []*run
	coming bool // that goroutine
}

func (q *queue) put(r *Runner, runs ...*run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs = append(q.runs, runs...)
	q.call(r)
}

// call sees to it that a goroutine is on its way.
func (q *queue) call(r *Runner) {
	if len(q.runs) > 0 && !q.coming {
		q.coming = true
		go q.work(r)
	}
}

// work works at runs until there are no more.
func (q *queue) work(r *Runner) {
	for run := q.take(r, true); run != nil; run = q.take(r, false) {
		run.work(r)
	}
}

// take takes the first run there is, for a goroutine that has come just now, or has not.
func (q *queue) take(r *Runner, came bool) *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	if came {
		q.coming = false
	}
	if len(q.runs) == 0 {
		return nil
	}
	first := q.runs[0]
	q.runs[0] = nil
	q.runs = q.runs[1:]
	q.call(r)
	return first
}

// handle runs the handler. It comes to a conclusion whatever the handler does, also where
// that ends this goroutine.
func (run *run) handle(r *Runner) {
	h, job := run.handler, run.job
	if job.Fields = run.entry.Fields; h.copies {
		job.Fields = record.Arguments(job.Fields)
	}
	var c conclusion
	drawn := false
	defer func() {
		if !drawn {
			c = run.concluding(errGoexit)
		}
		run.end(r, c)
	}()
	var err error
	if p := try(func() { err = run.timely(h.run(run, job)) }); p != nil {
		err = p
	}
	c = run.concluding(err)
	drawn = true
}

// rejected is the conclusion on an entry that cannot be read as a job.
func (run *run) rejected() conclusion { return conclude(Policy{}, 0, &undecodable{run.bad}, nil, "") }

// concluding is the conclusion if the handler ends now, with err.
func (run *run) concluding(err error) conclusion {
	return conclude(run.handler.policy, run.job.Attempts, err, context.Cause(run), run.handler.what)
}

// An alarm is when the next timeout may be over: one clock for all runs, since most end
// long before theirs.
type alarm struct {
	due     atomic.Int64 // nanoseconds since epoch; 0: none
	earlier chan struct{}
}

var epoch = time.Now()

// before says whether the alarm has to go off earlier than it would have, to be in time
// for t.
func (a *alarm) before(t time.Time) bool {
	at := int64(t.Sub(epoch))
	for {
		due := a.due.Load()
		if t.IsZero() || due != 0 && due <= at {
			return false
		}
		if a.due.CompareAndSwap(due, at) {
			return true
		}
	}
}

// ring wakes the watch.
func (a *alarm) ring() {
	select {
	case a.earlier <- struct{}{}:
	default:
	}
}

// watch cancels handlers whose timeout is over, and abandons those that do not heed it.
func (r *Runner) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.alarm.earlier:
		case <-timer.C:
		}
		r.alarm.due.Store(0)
		r.enforce(time.Now())
		if due := r.alarm.due.Load(); due != 0 {
			timer.Reset(time.Until(epoch.Add(time.Duration(due))))
		}
	}
}

func (r *Runner) enforce(now time.Time) {
	for _, run := range r.leases.all() {
		late := run.warned.Add(overtime) // not of the deadline: this process may have been paused
		switch {
		case run.deadline.IsZero() || run.over.Load():
		case now.Before(run.deadline):
			r.alarm.before(run.deadline)
		case run.warned.IsZero():
			run.warned = now
			run.cancel(ErrTimeout)
			r.alarm.before(now.Add(overtime))
		case now.Before(late):
			r.alarm.before(late)
		case !run.overdue:
			run.overdue = true
			go run.abandon(r) // beside the watch, since it asks the policy's Backoff, Observe and the log
		}
	}
}

// timely says of an error that came after the timeout that it did.
func (run *run) timely(err error) error {
	if err != nil && context.Cause(run) == ErrTimeout {
		return fmt.Errorf("%w after %s: %w", ErrTimeout, run.handler.timeout, err)
	}
	return err
}

// abandon gives up on a handler that does not heed its context: it may go on, its slot is
// free, and what it returns is ignored.
func (run *run) abandon(r *Runner) {
	err := fmt.Errorf("%w after %s, and the handler does not return: abandoned", ErrTimeout, run.handler.timeout)
	c := conclude(run.handler.policy, run.job.Attempts, err, nil, run.handler.what)
	if run.leave(r, c) {
		r.ended <- run
		r.cfg.Logger.Error("jobs: handler abandoned", "job", run.job, "err", err, "handler", run.handler.what)
	}
}

// leave concludes a run whose handler goes on.
func (run *run) leave(r *Runner, c conclusion) bool {
	r.abandoned.Add(1)
	c.took = time.Since(run.began)
	if run.conclude(c) {
		r.observe(Event{What: EventAbandoned, Job: run.job, Took: c.took})
		return true
	}
	r.abandoned.Add(-1)
	return false
}

// end concludes a run whose handler has ended.
func (run *run) end(r *Runner, c conclusion) {
	run.cancel(nil)
	if r.cfg.Observe != nil && run.handler != nil && run.bad == nil {
		c.took = time.Since(run.began)
	}
	if run.conclude(c) {
		r.ended <- run
		return
	}
	r.abandoned.Add(-1)
	r.observe(Event{What: EventReturned, Job: run.job, Took: c.took})
}

// conclude draws the conclusion, and says whether it was the first.
func (run *run) conclude(c conclusion) bool {
	if !run.over.CompareAndSwap(false, true) {
		return false
	}
	run.conclusion = c
	return true
}

// park is the conclusion for a kind that is not known here. That is no fault of the job: a
// deploy is rolling, and elsewhere it may be known. It waits in delayed for as long as it
// has been unknown, from one second to fifteen, and for an hour in all.
func (r *Runner) park(run *run) conclusion {
	const longest = 15 * time.Second
	clock, err := r.store.Now(run)
	for ; err != nil; clock, err = r.store.Now(run) {
		if run.Err() != nil {
			return conclusion{next: next{outcome: toRelease}}
		}
		loops.Sleep(run, longest/10)
	}
	since, bad := strconv.ParseInt(run.entry.Fields["unknown_since"], 10, 64)
	if bad != nil {
		since = clock.Unix()
	}
	age := max(0, clock.Sub(time.Unix(since, 0)))
	if age >= unknownFor {
		return unknownKind(run.job.Kind)
	}
	if bad != nil {
		age = 0
	}
	return conclusion{next: next{toPark, min(age+time.Second, longest)}, since: since}
}

// unknownFor is how long a kind may be unknown before its job is dead-lettered.
const unknownFor = time.Hour

func unknownKind(kind string) conclusion {
	text := fmt.Sprintf("%s: no worker has known %q for %s", ReasonUnknownKind, record.Bounded(kind, 64), unknownFor)
	return conclusion{next: next{outcome: toDead}, text: text, reason: ReasonUnknownKind}
}

// write puts the run's outcome into a trip.
func (run *run) write(t *store.Trip, cfg Config) {
	run.reply = store.Reply{}
	if run.lost.Load() {
		return
	}
	switch id := run.entry.ID; run.outcome {
	case toDone:
		run.reply = t.Done(id)
	case toDead:
		if run.letter == nil {
			run.letter = record.Letter(run.entry, run.tried(), run.text, run.traceback)
		}
		run.reply = t.Bury(id, run.letter, cfg.KeepDead)
	case toRelease:
		run.reply = t.Release(id, run.again())
	case toOthers:
		run.reply = t.HandOver(id, run.delivery, cfg.overdue())
	default:
		run.reply = t.Retry(id, run.later(), run.wait)
	}
}

// tried is how often the job was tried, this run included where it came that far.
func (run *run) tried() int {
	if run.reason == ReasonFailed {
		return run.job.Attempts + 1
	}
	return run.job.Attempts
}

// again is the job as it goes back. Where its kind is known, it was unknown before at most: else
// the next worker that does not know it would count from then.
func (run *run) again() Fields {
	m := record.Rewritten(run.entry)
	if run.handler != nil {
		delete(m, "unknown_since")
	}
	return m
}

// later is the job as it waits in delayed.
func (run *run) later() Fields {
	m := run.again()
	switch run.outcome {
	case toRetry:
		m["attempts"] = strconv.Itoa(run.job.Attempts + 1)
		m["last_error"] = record.Bounded(run.text, maxLastError)
	case toPark:
		m["unknown_since"] = strconv.FormatInt(run.since, 10)
	}
	return m
}

// written learns what became of an outcome. An error says that it is to be written again. letters
// asks for the newest dead letters, which is done once for all of a trip.
func (l *loop) written(run *run, letters func() []store.Entry) error {
	if run.reply == (store.Reply{}) {
		return nil // the lease is lost
	}
	if run.outcome == toDead {
		return l.mourned(run, letters)
	}
	ours, err := run.reply.Written()
	if err != nil {
		return err
	}
	if ours || run.unsure {
		l.settled(run)
	}
	log := l.cfg.Logger
	switch {
	case !ours && run.unsure:
		log.Info("jobs: the outcome was written when its answer was lost, or the job is another worker's", "job", run.job, "err", run.text)
	case !ours:
		log.Warn("jobs: the outcome is not written, since the job is another worker's", "job", run.job, "err", run.text)
	case run.outcome == toRetry:
		log.Warn("jobs: attempt failed, will retry", "job", run.job, "err", run.text, "wait", run.wait)
	case run.outcome == toRelease, run.outcome == toOthers:
		log.Info("jobs: given back at shutdown", "job", run.job)
	case run.outcome == toPark && time.Since(l.estranged) > time.Minute:
		l.estranged = time.Now()
		log.Warn("jobs: put off, since no handler for its kind is here", "job", run.job, "since", time.Unix(run.since, 0).UTC())
	}
	return nil
}

// mourned is written for a dead letter. Where it was written when the answer was lost, it is among
// the newest letters.
func (l *loop) mourned(run *run, letters func() []store.Entry) error {
	entry, dropped, err := run.reply.Buried()
	if err != nil {
		return err
	}
	if entry == "" && run.unsure {
		for _, letter := range letters() {
			if maps.Equal(letter.Fields, run.letter) {
				entry = letter.ID
			}
		}
	}
	if entry == "" {
		l.cfg.Logger.Warn("jobs: the outcome is not written, since the job is another worker's", "job", run.job, "err", run.text)
		return nil
	}
	l.mournFor(entry, run.letter, run.reason, dropped)
	l.settled(run)
	return nil
}

// newestLetters are the dead letters of late, as far as Redis tells them at once.
func (l *loop) newestLetters() (letters []store.Entry) {
	ctx, end := context.WithTimeout(l.base, time.Second)
	defer end()
	page := make(chan []store.Entry, 1)
	within(ctx, func() {
		_ = l.store.DeadBefore(ctx, "-", "+", 100, func(newest []store.Entry) bool {
			page <- newest
			return false
		})
	})
	select {
	case letters = <-page:
	default:
	}
	return letters
}
