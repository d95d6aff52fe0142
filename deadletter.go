package jobs

// A job in here is dead: it may not be tried again, it could not be read, its kind is
// unknown, or it is poison. The workers put it here and never read it; people list it, fix
// what was wrong, and replay it.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/record"
	"github.com/stagedoor/jobs/internal/store"
)

// A Reason is why a job is dead.
type Reason string

const (
	ReasonFailed      Reason = "failed"       // its last permitted attempt, or a Permanent error
	ReasonUndecodable Reason = "undecodable"  // it cannot be read as a job of its kind
	ReasonUnknownKind Reason = "unknown kind" // for an hour
	ReasonPoison      Reason = "poison"       // its deliveries ended in silence
)

// A DeadLetter is a job in the stream of the dead.
type DeadLetter struct {
	Job              // Attempts is how often it was tried; for poison, silent deliveries included
	Entry     string // its stream ID, which names it
	Error     string // at most 8 KiB
	Traceback string // at most 32 KiB: the stack of a panic, the chain of a wrapped error
	Raw       string // what could not be read as a job at all
	Reason    Reason
	Died      time.Time

	wire Fields // all of it
}

// readLetter is a dead letter as people see it. What runners bury themselves has no
// traceback, and its error begins with the reason.
func readLetter(e store.Entry) DeadLetter {
	job, _ := parse(e.ID, e.Fields)
	job.Fields = record.Arguments(e.Fields)
	d := DeadLetter{
		Job: job, Entry: e.ID, Error: e.Fields["error"], Traceback: e.Fields["traceback"],
		Raw: e.Fields["raw"], Reason: ReasonFailed, Died: store.Time(e.ID), wire: e.Fields,
	}
	for _, reason := range [...]Reason{ReasonUndecodable, ReasonUnknownKind, ReasonPoison} {
		if d.Traceback == "" && strings.HasPrefix(d.Error, string(reason)+": ") {
			d.Reason = reason
		}
	}
	return d
}

// mournFor says that a job is dead.
func (r *Runner) mournFor(entry string, letter Fields, reason Reason, dropped int64) {
	job, _ := parse(entry, letter)
	r.cfg.Logger.Error("jobs: dead-lettered", "job", job, "reason", reason, "err", letter["error"], "entry", entry)
	if dropped > 0 {
		r.cfg.Logger.Warn("jobs: the oldest dead letters were dropped", "dropped", dropped, "kept", r.cfg.KeepDead)
	}
	if r.cfg.OnDead == nil {
		return
	}
	select {
	case r.dead <- readLetter(store.Entry{ID: entry, Fields: letter}):
	default:
		r.cfg.Logger.Warn("jobs: OnDead is too slow, and is not told", "job", job)
	}
}

// DeadLetters are the jobs that ran into their end.
type DeadLetters struct{ store *store.Store }

// DeadLetters returns the jobs that ran into their end.
func (c *Client) DeadLetters() *DeadLetters { return &DeadLetters{c.store} }

// A Filter chooses dead letters, or what the audit trail says of them; what is zero does not
// matter.
type Filter struct {
	Entry        string    // the dead letter's own stream ID
	ID           string    // the job's
	Kind         string    // exactly
	Error        string    // a part of the error's text
	Since, Until time.Time // when it died: from Since on, and before Until
	Before       string    // older than the dead letter with this Entry
	Limit        int       // at most so many
}

func (f Filter) matches(d DeadLetter) bool {
	return (f.Entry == "" || f.Entry == d.Entry) && (f.ID == "" || f.ID == d.ID) && (f.Kind == "" || f.Kind == d.Kind) &&
		strings.Contains(d.Error, f.Error)
}

// bounds are the stream IDs between which a dead letter must lie.
func (f Filter) bounds() (from, to string, err error) {
	from, to = "-", "+"
	if !f.Since.IsZero() {
		from = fmt.Sprintf("%d-0", max(0, f.Since.Add(time.Millisecond-1).UnixMilli()))
	}
	if !f.Until.IsZero() {
		to = store.LastOf(f.Until.Add(-1))
	}
	if f.Before == "" {
		return from, to, nil
	}
	if !streamID.MatchString(f.Before) {
		return "", "", fmt.Errorf("Filter.Before: %w", errNoStreamID)
	}
	if last := store.Before(f.Before); to == "+" || store.Older(last, to) {
		to = last
	}
	return from, to, nil
}

// List yields what the filter chooses, oldest first. What dies meanwhile may come too. An
// error is the last thing it yields.
func (d *DeadLetters) List(ctx context.Context, f Filter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		from, to, err := f.bounds()
		if err == nil {
			err = d.store.Dead(ctx, from, to, f.choose(each(yield)))
		}
		if err != nil {
			yield(DeadLetter{}, fmt.Errorf("jobs: list dead letters: %w", err))
		}
	}
}

// Newest yields what the filter chooses, newest first, in small pages: the first letters
// come at once, however many there are. To go on later, give Filter.Before the last one's
// Entry. An error is the last thing it yields.
func (d *DeadLetters) Newest(ctx context.Context, f Filter) iter.Seq2[DeadLetter, error] {
	const size = 50 // of letters with long tracebacks, about 2 MiB
	return func(yield func(DeadLetter, error) bool) {
		from, to, err := f.bounds()
		if err == nil {
			err = d.store.DeadBefore(ctx, from, to, size, f.choose(each(yield)))
		}
		if err != nil {
			yield(DeadLetter{}, fmt.Errorf("jobs: list dead letters: %w", err))
		}
	}
}

// each yields a page's letters.
func each(yield func(DeadLetter, error) bool) func([]DeadLetter) bool {
	return func(letters []DeadLetter) bool {
		for _, letter := range letters {
			if !yield(letter, nil) {
				return false
			}
		}
		return true
	}
}

// choose shows what the filter chooses of each page, until its limit is reached.
func (f Filter) choose(see func([]DeadLetter) bool) func([]store.Entry) bool {
	n := 0
	return func(page []store.Entry) bool {
		var chosen []DeadLetter
		for _, e := range page {
			letter := readLetter(e)
			if !f.matches(letter) || f.Limit > 0 && n >= f.Limit {
				continue
			}
			chosen = append(chosen, letter)
			n++
		}
		return see(chosen) && (f.Limit <= 0 || n < f.Limit)
	}
}

// Get returns one dead letter by its stream ID, or ErrNotFound.
func (d *DeadLetters) Get(ctx context.Context, entry string) (DeadLetter, error) {
	e, err := d.get(ctx, entry)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("jobs: dead letter %q: %w", entry, err)
	}
	return readLetter(e), nil
}

var (
	streamID      = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}$`)
	errNoStreamID = errors.New("not a stream ID, as in 1758203641877-0")
)

func (d *DeadLetters) get(ctx context.Context, entry string) (store.Entry, error) {
	if !streamID.MatchString(entry) {
		return store.Entry{}, errNoStreamID
	}
	e, ok, err := d.store.DeadLetter(ctx, entry)
	if err == nil && !ok {
		err = ErrNotFound
	}
	return e, err
}

// ReplayOptions of a replay.
type ReplayOptions struct {
	// Set corrects arguments on the way: a label that was mistyped, say.
	Set Fields
}

// replayed is a dead letter as it goes back: the original fields, no attempts.
func (o ReplayOptions) replayed(ctx context.Context, e store.Entry) (store.Replayed, error) {
	none := store.Replayed{}
	if _, ok := e.Fields["raw"]; ok {
		return none, errors.New("it could never be read as a job, and cannot be replayed")
	}
	m := record.Original(e.Fields)
	for name, value := range o.Set {
		if fields.Reserved(name) {
			return none, fmt.Errorf("the field name %q is reserved", name)
		}
		m[name] = value
	}
	m["attempts"] = "0"
	job, err := parse(e.ID, m)
	if err != nil {
		return none, fmt.Errorf("it cannot be replayed: %w", err)
	}
	by := action(ctx, ActionReplay, job)
	by.Entry, by.Set = e.ID, slices.Sorted(maps.Keys(o.Set))
	return store.Replayed{Entry: store.Entry{ID: e.ID, Fields: m}, Record: by}, nil
}

// Replay puts a dead letter back on the stream, with its original fields, under its ID and
// with no attempts made, and takes it away from here, in one step: two people who replay it
// replay it once, the other gets ErrNotFound. Where Redis refuses, nothing has changed; an
// answer that never came is ErrUncertain.
func (d *DeadLetters) Replay(ctx context.Context, entry string, o ReplayOptions) error {
	e, err := d.get(ctx, entry)
	if err == nil {
		err = d.replay(ctx, e, o)
	}
	if err != nil {
		return fmt.Errorf("jobs: replay dead letter %q: %w", entry, err)
	}
	return nil
}

func (d *DeadLetters) replay(ctx context.Context, e store.Entry, o ReplayOptions) error {
	letter, err := o.replayed(ctx, e)
	if err != nil {
		return err
	}
	replayed, err := d.store.Replay(ctx, []store.Replayed{letter})
	switch {
	case err != nil:
		return unsure(err)
	case !replayed[0]:
		return ErrNotFound
	}
	return nil
}

// ReplayAll replays what the filter chooses of the dead letters that were there before the
// call, so that it ends even where they fail again at once. It returns how many it has
// replayed, and goes on past those that cannot be; the error is then that of the first.
func (d *DeadLetters) ReplayAll(ctx context.Context, f Filter, o ReplayOptions) (int, error) {
	from, to, err := f.bounds()
	newest := ""
	if err == nil {
		newest, err = d.store.NewestDead(ctx)
	}
	if err != nil || newest == "" {
		return 0, wrap("jobs: replay dead letters", err)
	}
	if to == "+" || store.Older(newest, to) {
		to = newest
	}
	total := 0
	var first, broken error
	err = d.store.Dead(ctx, from, to, f.choose(func(letters []DeadLetter) bool {
		var page []store.Replayed
		for _, letter := range letters {
			e, err := o.replayed(ctx, store.Entry{ID: letter.Entry, Fields: letter.wire})
			if err != nil {
				first = or(first, fmt.Errorf("dead letter %s: %w", letter.Entry, err))
				continue
			}
			page = append(page, e)
		}
		n, err := d.replayPage(ctx, page)
		total, broken = total+n, err
		return err == nil
	}))
	return total, wrap("jobs: replay dead letters", or(err, or(broken, first)))
}

func (d *DeadLetters) replayPage(ctx context.Context, page []store.Replayed) (int, error) {
	if len(page) == 0 {
		return 0, nil
	}
	n := 0
	replayed, err := d.store.Replay(ctx, page)
	for _, ok := range replayed {
		if ok {
			n++
		}
	}
	return n, unsure(err)
}

// unsure is err, marked where an answer never came: what was asked may have been done.
func unsure(err error) error {
	if err != nil && !store.Refused(err) && !store.Unsent(err) {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Discard deletes a dead letter, in one step with its record in the audit trail, or returns
// ErrNotFound: somebody else has discarded or replayed it, or it has fallen out. An answer
// that never came is ErrUncertain.
func (d *DeadLetters) Discard(ctx context.Context, entry string) error {
	e, err := d.get(ctx, entry)
	if err == nil {
		err = d.discard(ctx, e)
	}
	return wrap(fmt.Sprintf("jobs: discard dead letter %q", entry), err)
}

func (d *DeadLetters) discard(ctx context.Context, e store.Entry) error {
	job, _ := parse(e.ID, e.Fields) // what cannot be read is discarded too
	by := action(ctx, ActionDiscard, job)
	by.Entry = e.ID
	gone, err := d.store.Discard(ctx, e.ID, by)
	if err == nil && !gone {
		return ErrNotFound
	}
	return unsure(err)
}
