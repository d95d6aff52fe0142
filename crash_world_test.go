//go:build !race

package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/crashes"
)

// world is one run of a scenario on a queue of its own: the victim does its part and ends, others go on until
// everything is settled, and then it is judged.
type world struct {
	t      testing.TB
	name   string // of the scenario, and where the victim dies
	prefix string
	lease  time.Duration
	cfg    jobs.Config

	options *redis.Options // of a process' way to Redis
	rdb     *redis.Client  // the harness's own
	ending  sync.WaitGroup // of what goes on when the verdict is there
	ended   []func()       // called then, last first

	victim   *crashes.Process
	struck   func() bool          // at the point
	line     func() *redis.Client // the victim's way, where it is not the others'
	others   *crashes.Process
	client   *jobs.Client
	history  crashes.History
	known    sync.Mutex // guards the next three
	jobs     []crashes.Job
	entries  map[string]string          // of jobs, as they were planted
	held     map[string]crashes.Holding // what was pending when the victim was dead
	lossy    bool                       // the victim's replies get lost, and it lives
	far      int64                      // delayed jobs that nobody waits for
	later    func()                     // what happens when the victim is dead
	periodic []jobs.Periodic
	ticks    []string
	cancel   context.CancelFunc // ends the victim's Run
	left     chan error         // what it returns
}

// The kinds of the scenarios. What a handler does is in its job's field "do".
var (
	act       = jobs.NewKind[jobs.Fields]("act", jobs.Policy{Retries: 1, Backoff: soon})
	strict    = jobs.NewKind[ticket]("strict", jobs.Policy{})
	elsewhere = jobs.NewKind[jobs.Fields]("elsewhere", jobs.Policy{}) // the victim does not know it
)

// check ends this run of the scenario where there is an error. It may be called on any goroutine.
func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Errorf("%s: %v", w.name, err)
		runtime.Goexit()
	}
}

func (w *world) dial() *redis.Client {
	o := *w.options
	rdb := redis.NewClient(&o)
	w.ended = append(w.ended, func() { _ = rdb.Close() })
	return rdb
}

// clear waits for what still goes on, and closes everything.
func (w *world) clear() {
	w.ending.Wait()
	for _, f := range slices.Backward(w.ended) {
		f()
	}
}

func (w *world) key(name string) string { return w.prefix + name }

// process is a client of a process.
func (w *world) process(p *crashes.Process, line func() *redis.Client) *jobs.Client {
	rdb := line()
	rdb.AddHook(p)
	return jobs.NewClient(rdb, jobs.Options{Prefix: w.prefix})
}

// runner is a worker in a process.
func (w *world) runner(p *crashes.Process, line func() *redis.Client, name string) *jobs.Runner {
	cfg := w.cfg
	cfg.Worker, cfg.Lease, cfg.Logger = name, w.lease, slog.New(slog.DiscardHandler)
	if cfg.Grace == 0 {
		cfg.Grace = 50 * time.Millisecond
	}
	r := jobs.NewRunner(w.process(p, line), cfg)
	jobs.Handle(r, act, w.handler(p))
	jobs.Handle(r, strict, func(ctx context.Context, _ ticket) error { return w.handler(p)(ctx, nil) })
	if p != w.victim {
		jobs.Handle(r, elsewhere, w.handler(p))
	}
	for _, periodic := range w.periodic {
		r.Schedule(periodic)
	}
	return r
}

// start lets the victim be a worker.
func (w *world) start() {
	r := w.runner(w.victim, w.line, "victim")
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	w.left = make(chan error, 1)
	w.ending.Go(func() { w.left <- r.Run(ctx) })
}

// work lets the victim be a worker until there is nothing left to do.
func (w *world) work() {
	w.start()
	w.await("the victim's work is done", w.settled)
}

// leave tells the victim to, and waits until it has.
func (w *world) leave() {
	w.cancel()
	select {
	case <-w.left:
	case <-w.victim.Over():
	}
}

// await waits until ok says so or the victim is dead.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !w.victim.Dead() && !ok(); w.rest(w.victim, w.lease/40) {
		if time.Now().After(end) {
			w.check(fmt.Errorf("not within %s: %s: %v", patience, what, w.look()))
		}
	}
}

// rest waits for d or until the process is dead.
func (w *world) rest(p *crashes.Process, d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.Over():
	}
}

// settled says that nothing is ready, running or about to be due.
func (w *world) settled() bool {
	ctx := context.Background()
	pipe := w.rdb.TxPipeline() // or a job is missed that moves meanwhile
	ready, delayed := pipe.XLen(ctx, w.key("jobs")), pipe.ZCard(ctx, w.key("delayed"))
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: w.key("jobs"), Group: "workers", Start: "-", End: "+", Count: 1})
	_, err := pipe.Exec(ctx)
	if err != nil && !strings.Contains(err.Error(), "NOGROUP") {
		w.check(err)
	}
	return ready.Val() == 0 && delayed.Val() == w.far && len(pending.Val()) == 0
}

// play runs a scenario and judges it.
func (w *world) play(a arrow, at crashes.Point) crashes.Verdict {
	defer w.bury()
	a.act(w)
	if at.Nth > 0 && !w.struck() {
		w.rest(w.victim, w.lease) // the point may be one that comes again and again
	}
	w.bury()
	cut := w.look()
	if w.later != nil {
		w.later()
	}
	w.holds(w.look().Pending)
	w.survive()
	return crashes.Case{Jobs: w.jobs, Ticks: w.ticks, History: &w.history, Cut: cut, End: w.look(), Victim: "victim"}.Judge()
}

// bury ends the victim, where it is still alive.
func (w *world) bury() {
	w.victim.Kill()
	if w.cancel != nil {
		w.cancel()
	}
}

func (w *world) look() *crashes.State {
	s, err := crashes.Look(context.Background(), w.rdb, w.prefix)
	w.check(err)
	return s
}

// survive lets another worker go on until everything is settled.
func (w *world) survive() {
	w.cfg.Grace = 10 * time.Second
	r := w.runner(w.others, w.dial, "other")
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	w.ending.Go(func() { ran <- r.Run(ctx) })
	defer cancel()
	for end := time.Now().Add(patience); len(w.periodic) > 0 && w.others.Answered("tick.lua") == 0 || !w.settled(); w.rest(w.others, w.lease/40) {
		if time.Now().After(end) {
			w.t.Errorf("%s: not settled within %s: %v", w.name, patience, w.look())
			break
		}
	}
	cancel()
	w.check(<-ran)
}

// handler runs a job in a process. What happens when that is dead has not happened.
func (w *world) handler(p *crashes.Process) func(context.Context, jobs.Fields) error {
	return func(ctx context.Context, _ jobs.Fields) error {
		job, _ := jobs.FromContext(ctx)
		var run *crashes.Run
		record := crashes.Run{Job: job.ID, Attempts: job.Attempts, Victim: p == w.victim}
		if !job.Tick.IsZero() {
			record.Tick = job.Fields["schedule"] + "@" + job.Tick.UTC().Format(time.RFC3339)
		}
		if !p.Alive(func() { run = w.history.Begin(record) }) {
			return errors.New("dead")
		}
		if w.lossy {
			w.counted(job.ID)
		}
		end, err := w.do(ctx, p, job)
		p.Alive(func() { w.history.Conclude(run, end) })
		return err
	}
}

var errDo = errors.New("it does not work")

// do does what a job says: it waits, and then it ends.
func (w *world) do(ctx context.Context, p *crashes.Process, job jobs.Job) (crashes.End, error) {
	switch what := job.Fields["do"]; {
	case what == "long":
		w.rest(p, w.lease*6/10)
	case what == "longer":
		w.rest(p, w.lease*19/10)
	case what == "heed" && p == w.victim && !w.history.Has(job.ID, crashes.CutOff):
		select {
		case <-ctx.Done():
		case <-p.Over():
		}
		return crashes.CutOff, context.Cause(ctx)
	case what == "stubborn" && p == w.victim:
		<-p.Over()
	}
	if job.Fields["brief"] != "" {
		w.rest(p, 5*time.Millisecond) // what ends in one moment is written in one trip
	}
	if job.Fields["wait"] == "" || p != w.victim || w.history.Has(job.ID, crashes.CutOff) {
		return w.finish(job)
	}
	for !p.Dead() && !w.stolen(job.ID) {
		w.rest(p, w.lease/200)
	}
	_, err := w.finish(job)
	return crashes.CutOff, err // which is not to be written
}

func (w *world) finish(job jobs.Job) (crashes.End, error) {
	what := job.Fields["do"]
	switch {
	case what == "fail" && job.Attempts == 0, what == "die" && job.Attempts == 0:
		return crashes.Retried, errDo
	case what == "die":
		return crashes.Expired, errDo
	case what == "permanent":
		return crashes.Expired, jobs.Permanent(errDo)
	case what == "snooze" && !w.history.Has(job.ID, crashes.Snoozed):
		return crashes.Snoozed, jobs.Snooze(time.Millisecond)
	}
	return crashes.Finished, nil
}

// stolen says that a job is a worker's who has died before.
func (w *world) stolen(id string) bool { return w.look().Pending[id].Owner == "ghost" }

// counted looks whether this delivery is the one that it should be: those in silence, and this one. What was rewritten
// since is another entry.
func (w *world) counted(id string) {
	silent, entry := w.planted(id)
	if entry == "" {
		return
	}
	page, err := w.rdb.XPendingExt(context.Background(), &redis.XPendingExtArgs{
		Stream: w.key("jobs"), Group: "workers", Start: entry, End: entry, Count: 1,
	}).Result()
	w.check(err)
	if len(page) == 1 && page[0].RetryCount != silent+1 {
		w.t.Errorf("%s: %s runs at delivery %d, after %d in silence", w.name, id, page[0].RetryCount, silent)
	}
}

// planted is how many deliveries of a job have ended in silence, that of a victim included which has died with it, and
// its entry; "" where it was none.
func (w *world) planted(id string) (silent int64, entry string) {
	w.known.Lock()
	defer w.known.Unlock()
	for _, job := range w.jobs {
		if job.ID == id {
			return max(int64(job.Deliveries), w.held[id].Deliveries), w.entries[id]
		}
	}
	return 0, ""
}

func (w *world) holds(held map[string]crashes.Holding) {
	w.known.Lock()
	defer w.known.Unlock()
	w.held = held
}
