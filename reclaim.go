package jobs

// A job in here is running, or was running where a worker has died. A worker keeps the
// leases of what it runs; the sweep finds entries whose lease ran out and hands them to the
// consumer loop, which takes them into free slots; what has gone three deliveries without
// an outcome is poison. An entry that would be delivered for the last time, a suspect, is
// run alone, so that no innocent dies with it.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stagedoor/jobs/internal/loops"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// leases are the entries that this worker runs, or has run and not settled yet.
type leases struct {
	mu   sync.Mutex
	runs map[string]*run
	lost []*run // their entry came anew, and they have not ended yet
}

// add begins a lease, unless the same entry runs here already and is still ours: then that
// run goes on as the owner of the new delivery.
func (ls *leases) add(run *run) (isNew bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if old := ls.runs[run.entry.ID]; old != nil {
		if !old.lost.Load() {
			return false
		}
		ls.lost = append(ls.lost, old)
	}
	ls.runs[run.entry.ID] = run
	return true
}

func (ls *leases) drop(gone *run) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.runs[gone.entry.ID] == gone {
		delete(ls.runs, gone.entry.ID)
		return
	}
	ls.lost = slices.DeleteFunc(ls.lost, func(run *run) bool { return run == gone })
}

// has says whether an entry runs here, and is still ours.
func (ls *leases) has(id string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	run := ls.runs[id]
	return run != nil && !run.lost.Load()
}

func (ls *leases) all() []*run {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := slices.Clone(ls.lost)
	for _, run := range ls.runs {
		all = append(all, run)
	}
	return all
}

// cancel tells all handlers to end.
func (ls *leases) cancel(cause error) {
	for _, run := range ls.all() {
		run.cancel(cause)
	}
}

// heard notes an answer of Redis.
func (r *Runner) heard() { r.contact.Heard(r.cfg.Lease / 2) }

// steady says whether Redis has answered all along of late. If not, leases that look out of
// date may be those of workers that could not renew them either.
func (r *Runner) steady() bool { return r.contact.Length(r.cfg.Lease/2) >= r.cfg.Lease }

// renew is a step of the loop that keeps the leases. It asks Redis even where nothing runs,
// so that the contact is known, unless another loop has just had an answer: until the next
// step there is then no gap.
func (r *Runner) renew(ctx context.Context) (time.Duration, error) {
	runs := r.leases.all()
	ids := make([]string, 0, len(runs))
	mine := make(map[string]*run, len(runs))
	for _, run := range runs {
		if !run.lost.Load() {
			ids, mine[run.entry.ID] = append(ids, run.entry.ID), run
		}
	}
	news := r.news()
	if len(ids) == 0 && news.Empty() && r.contact.Length(r.cfg.Lease/(2*renewals)) > 0 {
		return r.cfg.Lease / renewals, nil
	}
	lost, err := r.tell(ctx, ids, news)
	if err != nil {
		return 0, err
	}
	r.heard()
	for _, id := range lost {
		r.lose(mine[id])
	}
	return r.cfg.Lease / renewals, nil
}

// renewals are how many there are in a lease. An entry is taken over when none has come for
// a lease and the time between two: so a worker may fall silent at any moment, and be back
// within a lease, and keeps what it runs.
const renewals = 8

// overdue is for how long an entry must have been idle.
func (c *Config) overdue() time.Duration { return c.Lease + c.Lease/renewals }

// lose gives up a run whose entry is no longer ours. What has ended and is about to be
// settled asks for itself.
func (r *Runner) lose(run *run) {
	if run == nil || run.over.Load() || run.lost.Swap(true) {
		return
	}
	r.cfg.Logger.Warn("jobs: lease lost, another worker has the job or it is gone", "job", run.view())
	run.cancel(ErrLeaseLost)
	r.observe(Event{What: EventLeaseLost, Job: run.job})
}

// fate is what a sweep does about a pending entry.
type fate int

const (
	leave   fate = iota // not now; ask again after the wait that goes with it
	claim               // into a free slot
	isolate             // alone
	drop                // its body is gone
	poison              // dead: delivered as often as permitted
	unknown             // dead: its kind has not been known for an hour
)

// judgement is what judge goes by, beside the entry.
type judgement struct {
	own       bool // it is this consumer's
	here      bool // and runs here, or its outcome is still to be written
	known     bool // its kind
	permitted int  // deliveries
	lease     time.Duration
	overdue   time.Duration
}

// poisonLeases is for how many leases the last holder of an entry must have been silent
// before it counts as dead with it: a paused process may yet come back.
const poisonLeases = 5

// judge tells what becomes of a pending entry, and where that is nothing, when to ask again.
func judge(p store.Pending, j judgement) (fate, time.Duration) {
	last := p.Deliveries >= j.permitted
	switch {
	case j.own && j.here:
		return leave, j.lease
	case p.Gone:
		return drop, 0
	case j.own && last:
		return isolate, 0
	case j.own:
		return claim, 0
	case p.Idle < j.overdue:
		return leave, j.overdue - p.Idle
	case !j.known && p.Idle < unknownFor:
		return leave, j.lease
	case !j.known:
		return unknown, 0
	case last && p.Idle < poisonLeases*j.lease:
		return leave, poisonLeases*j.lease - p.Idle
	case last:
		return poison, 0
	case p.Deliveries == j.permitted-1:
		return isolate, 0
	}
	return claim, 0
}

// finds are what a sweep has found for the loop.
type finds struct {
	claims, suspects []store.Claim
	refused          error // what Redis says to taking an entry off the stream
}

// sweep is a step of the loop that looks for entries whose lease ran out.
func (r *Runner) sweep(ctx context.Context) (time.Duration, error) {
	quarter := r.cfg.Lease / 4
	again := quarter - rand.N(quarter/8+1)
	if _, err := r.store.Now(ctx); err != nil {
		return 0, err
	}
	if !r.steady() || r.store.Leapt(r.cfg.Lease) { // by which entries look idle
		return min(again, quarter/2), nil
	}
	var found finds
	err := r.store.Idle(ctx, r.cfg.Lease/2, func(page []store.Pending) error {
		for _, p := range page {
			wait, err := r.see(ctx, p, &found)
			if err != nil {
				return err
			}
			again = min(again, max(wait, time.Millisecond))
		}
		return nil
	})
	if err == nil || store.NoGroup(err) { // the consumer loop makes it again
		select {
		case <-r.found: // an older one
		default:
		}
		r.found <- found
		err = r.forget(ctx)
	}
	return again, errors.Join(found.refused, err)
}

// see acts on one entry of a sweep, or leaves it to the loop. It returns when to look again.
func (r *Runner) see(ctx context.Context, p store.Pending, found *finds) (time.Duration, error) {
	j := judgement{
		own: p.Owner == r.consumer, here: r.leases.has(p.ID),
		known: p.Kind == "", permitted: defaultDeliveries, lease: r.cfg.Lease, overdue: r.cfg.overdue(),
	}
	if h := r.handlers[p.Kind]; h != nil {
		j.known, j.permitted = true, h.policy.deliveries()
	}
	c := store.Claim{Pending: p, Least: r.cfg.overdue(), Own: j.own}
	switch fate, wait := judge(p, j); fate {
	case leave:
		return wait, nil
	case claim:
		found.claims = append(found.claims, c)
	case isolate:
		c.Alone = true
		found.suspects = append(found.suspects, c)
	default:
		return r.cfg.Lease, r.remove(ctx, p, fate, found)
	}
	return r.cfg.Lease, nil
}

// remove takes an entry off the stream that nobody is to run. What Redis has refused once, it is
// not asked again in this sweep: the others are still to be found.
func (r *Runner) remove(ctx context.Context, p store.Pending, f fate, found *finds) (err error) {
	if found.refused != nil {
		return nil
	}
	switch f {
	case drop:
		err = r.drop(ctx, p)
	case poison:
		err = r.bury(ctx, p, poisonLeases*r.cfg.Lease, poisoned(p))
	case unknown:
		err = r.bury(ctx, p, unknownFor, unknownKind(p.Kind))
	}
	if store.Refused(err) && !store.NoGroup(err) {
		found.refused, err = fmt.Errorf("entry %s: %w", p.ID, err), nil
	}
	return err
}

func (r *Runner) drop(ctx context.Context, p store.Pending) error {
	gone, err := r.store.Gone(ctx, p.ID)
	if gone {
		r.cfg.Logger.Warn("jobs: a running job was deleted from the stream", "entry", p.ID, "owner", p.Owner)
	}
	return err
}

func poisoned(p store.Pending) conclusion {
	text := fmt.Sprintf("%s: %d deliveries ended in silence, the last at %s: the process died or lost its contact each time",
		ReasonPoison, p.Deliveries, p.Owner)
	return conclusion{next: next{outcome: toDead}, text: text, reason: ReasonPoison}
}

// bury dead-letters an entry that nobody runs.
func (r *Runner) bury(ctx context.Context, p store.Pending, least time.Duration, c conclusion) error {
	e, ok, err := r.store.Body(ctx, p.ID)
	if err != nil || !ok {
		return err
	}
	job, _ := parse(e.ID, e.Fields) // what cannot be read has no attempts
	tried := job.Attempts
	if c.reason == ReasonPoison {
		tried += p.Deliveries
	}
	dead := record.Letter(e, tried, c.text, "")
	entry, dropped, err := r.store.BuryAs(ctx, p, least, r.cfg.KeepDead, dead)
	if err == nil && entry != "" {
		r.mournFor(entry, dead, c.reason, dropped)
		r.buried(job, c.reason, p.Deliveries)
	}
	return err
}

// forget drops dead letters that are too old, and removes consumers that own nothing and
// have been silent for as long as a last delivery's.
func (r *Runner) forget(ctx context.Context) error {
	if time.Since(r.forgot) < r.cfg.Lease {
		return nil
	}
	r.forgot = time.Now()
	if err := r.trim(ctx); err != nil {
		return err
	}
	silent, err := r.store.Silent(ctx, poisonLeases*r.cfg.Lease)
	for _, consumer := range silent {
		if err := r.store.Forget(ctx, consumer); err != nil {
			return err
		}
	}
	return err
}

func (r *Runner) trim(ctx context.Context) error {
	if r.cfg.KeepDeadFor == 0 {
		return nil
	}
	dropped, err := r.store.TrimDead(ctx, r.cfg.KeepDeadFor)
	if dropped > 0 {
		r.cfg.Logger.Warn("jobs: dead letters were dropped for their age", "dropped", dropped, "kept", r.cfg.KeepDeadFor)
	}
	return err
}

// takeOver fills free slots with what the sweep has found.
func (l *loop) takeOver(ctx context.Context) error {
	select {
	case l.finds = <-l.found:
	default:
	}
	if !l.steady() {
		l.finds = finds{} // what was found before a pause or an outage says nothing any more
	}
	if err := l.isolate(ctx); err != nil {
		return err
	}
	for len(l.claims) > 0 && l.free() > 0 {
		err := l.claim(ctx, l.claims[0])
		if err != nil {
			return err // and ask again: the reply may be lost
		}
		l.claims = l.claims[1:]
	}
	return nil
}

// claim takes one entry over, where it is still to be had.
func (l *loop) claim(ctx context.Context, c store.Claim) error {
	if l.leases.has(c.ID) {
		return nil
	}
	asked := time.Now()
	e, delivery, err := l.store.Claim(context.WithoutCancel(ctx), c)
	if err != nil || delivery == 0 {
		return err
	}
	job, _ := parse(e.ID, e.Fields) // what cannot be read is taken over to be dead-lettered
	l.cfg.Logger.Warn("jobs: taken over", "job", job, "entry", c.ID, "from", c.Owner, "delivery", delivery, "alone", c.Alone)
	l.receive(ctx, asked, delivery, e)
	return nil
}

// isolation is how far a worker is with running a suspect alone.
type isolation struct {
	state    state
	who      store.Claim
	began    time.Time     // the emptying
	renewed  time.Time     // the right to it
	patience time.Duration // how long to wait until the worker is empty
	rest     time.Time     // until then it fetches like any other
	pace     *loops.Loop   // tells of what Redis has refused
}

func newIsolation(r *Runner) isolation {
	pace := loops.New("isolate", r.cfg.Logger.With("worker", r.consumer))
	pace.Trouble = r.troubled("isolate")
	return isolation{patience: r.cfg.Lease, pace: pace}
}

type state int

const (
	working  state = iota // no suspect
	emptying              // fetches nothing, waits for what runs
	alone                 // runs a suspect
)

func (i *isolation) open() bool { return i.state == working }

// empty says whether nothing runs here, nor is on its way here, nor is to be written.
func (l *loop) empty() bool { return l.busy == 0 && l.asked == 0 && len(l.unsettled) == 0 }

// mayIsolate says whether the next step towards a suspect, or away from it, waits for
// nothing any more.
func (l *loop) mayIsolate() bool {
	switch l.isolation.state {
	case emptying:
		return l.empty() && l.abandoned.Load() == 0
	case alone:
		return l.empty()
	}
	return false
}

// isolate goes one step on the way to running a suspect alone. Where Redis refuses that, to a user
// without the right, say, the suspect waits, and all else goes on.
func (l *loop) isolate(ctx context.Context) error {
	err := l.approach(ctx)
	if !store.Refused(err) || store.NoGroup(err) {
		return err
	}
	_ = l.isolation.pace.Met(err)
	if l.isolation.state == emptying {
		l.giveUp(ctx)
	}
	l.reopen(l.cfg.Lease)
	return nil
}

// approach is that step.
func (l *loop) approach(ctx context.Context) error {
	i := &l.isolation
	switch {
	case i.state == working && len(l.suspects) > 0:
		return l.beginEmptying(ctx)
	case i.state == emptying && l.mayIsolate():
		return l.runAlone(ctx)
	case i.state == emptying:
		return l.keepEmptying(ctx)
	case i.state == alone && l.mayIsolate():
		l.reopen(l.cfg.Lease)
		i.patience = l.cfg.Lease
	}
	return nil
}

// beginEmptying asks for the right to be the one worker that does.
func (l *loop) beginEmptying(ctx context.Context) error {
	i := &l.isolation
	if time.Now().Before(i.rest) || l.abandoned.Load() > 0 {
		return nil
	}
	suspect := l.suspects[0]
	ok, err := l.store.Isolate(ctx, suspect, l.cfg.Lease)
	if err != nil {
		return err
	}
	i.pace.Over()
	l.suspects = l.suspects[1:]
	if !ok { // another worker has the right, or the suspect
		i.rest = time.Now().Add(l.cfg.Lease / 4)
		return nil
	}
	i.state, i.who = emptying, suspect
	i.began, i.renewed = time.Now(), time.Now()
	return nil
}

// keepEmptying renews that right, and gives it up where what runs takes too long.
func (l *loop) keepEmptying(ctx context.Context) error {
	i := &l.isolation
	stopped := time.Since(i.began)
	if stopped > i.patience && l.asked == 0 { // the last read comes back by itself
		i.patience = min(2*i.patience, max(l.longest(), l.cfg.Lease))
		l.giveUp(ctx)
		l.reopen(stopped)
		return nil
	}
	if time.Since(i.renewed) < l.cfg.Lease/4 {
		return nil
	}
	ok, err := l.store.Isolate(ctx, i.who, l.cfg.Lease)
	if err == nil && !ok {
		l.reopen(stopped)
	}
	if err == nil {
		i.renewed = time.Now()
	}
	return err
}

// longest is the longest timeout of what runs.
func (l *loop) longest() time.Duration {
	longest := time.Duration(0)
	for _, run := range l.leases.all() {
		if run.handler != nil {
			longest = max(longest, run.handler.timeout)
		}
	}
	return longest
}

// runAlone claims the suspect. While the answer is missing the worker stays empty.
func (l *loop) runAlone(ctx context.Context) error {
	i := &l.isolation
	if err := l.claim(ctx, i.who); err != nil {
		return err // and ask again: the reply may be lost
	}
	i.state = alone
	if l.busy == 0 { // it was not to be had
		l.giveUp(ctx)
		l.reopen(0)
	}
	return nil
}

// giveUp gives the right back. Where that fails it lasts for a lease.
func (l *loop) giveUp(ctx context.Context) { _, _ = l.store.Isolate(ctx, store.Claim{}, 0) }

// reopen goes back to work, for at least so long.
func (l *loop) reopen(d time.Duration) {
	l.isolation.state, l.isolation.rest = working, time.Now().Add(d)
}
