package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/fields"
	"github.com/stagedoor/jobs/internal/store"
)

// marked is a letter that is to be acted on.
type marked struct {
	entry, kind string
	never       bool // it was never readable as a job, and cannot be replayed
}

// picked are the letters that arguments or flags choose, of those that are dead now, the
// oldest first. It sees them all before anything is done to one, so that what dies again
// meanwhile is not among them.
func (t *tool) picked(ctx context.Context, entries []string, f choice, all bool, see func(jobs.DeadLetter)) ([]marked, error) {
	switch {
	case len(entries) > 0 && (f.narrow() || f.limit != 0 || all):
		return nil, usage("name entries or choose by flags, not both")
	case len(entries) == 0 && !f.narrow() && !all:
		return nil, usage("which? Name entries, choose by flags (--kind, --error, --since, …), or say --all")
	}
	var found []marked
	add := func(d jobs.DeadLetter) {
		see(d)
		found = append(found, marked{d.Entry, d.Kind, d.Raw != "" || d.Kind == ""})
	}
	if len(entries) > 0 {
		err := t.each(ctx, entries, func(entry string) error {
			d, err := t.letter(ctx, entry)
			if err == nil {
				add(d)
			}
			return err
		})
		return found, err
	}
	filter, err := f.filter(ctx, t)
	if err != nil {
		return nil, err
	}
	newest := ""
	for d, err := range t.client.DeadLetters().Newest(ctx, jobs.Filter{Limit: 1}) {
		if err != nil {
			return nil, err
		}
		newest = d.Entry
	}
	for d, err := range t.client.DeadLetters().List(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if store.Older(newest, d.Entry) {
			break
		}
		add(d)
	}
	return found, some(len(found))
}

const replayHelp = `Put dead letters back on the stream, with their original fields, under their IDs and with no attempts
made: those that are named, or those that the flags choose of what is dead now, the oldest first. What dies
again meanwhile is not replayed again. Each is recorded in the audit trail.

Of two people who replay a letter one does; the other is told that it is gone. Ctrl-C ends it between two
letters and says how far it came: the same command then goes on with the rest.`

func (t *tool) deadReplayCommand() *cobra.Command {
	var f choice
	r := replay{added: map[string]int{}}
	var rate string
	var set []string
	var all bool
	c := t.command("replay [ENTRY…]", "Put dead letters back on the stream", entries,
		func(ctx context.Context, entries []string) (err error) {
			if r.every, err = pace(rate); err != nil {
				return err
			}
			if r.set, err = assignments(set); err != nil {
				return err
			}
			return t.replay(ctx, r, func(see func(jobs.DeadLetter)) ([]marked, error) {
				return t.picked(ctx, entries, f, all, see)
			})
		})
	c.Long = replayHelp
	f.flags(c, 0)
	c.Flags().BoolVar(&all, "all", false, "every one")
	c.Flags().BoolVar(&r.dry, "dry-run", false, "only say which it would be")
	c.Flags().Var((*given)(&rate), "rate", "how fast: 50/s or 50, 600/m, 100/h; else as fast as it goes")
	c.Flags().StringArrayVar(&set, "set", nil, "correct a field: `name=value`; may be repeated")
	return c
}

// assignments are the arguments field=value.
func assignments(list []string) (jobs.Fields, error) {
	m := jobs.Fields{}
	for _, a := range list {
		name, value, ok := strings.Cut(a, "=")
		switch {
		case !ok || name == "":
			return nil, usage("%q is not field=value", a)
		case fields.Reserved(name):
			return nil, usage("the field name %q is reserved", name)
		}
		if _, twice := m[name]; twice {
			return nil, usage("the field %q is given twice", name)
		}
		m[name] = value
	}
	return m, nil
}

// replay is how.
type replay struct {
	every time.Duration
	set   jobs.Fields
	added map[string]int // how many letters have no such field to correct: a slip, perhaps
	dry   bool
}

// look notes what of r is new to a letter.
func (r replay) look(d jobs.DeadLetter) {
	for name := range r.set {
		if _, ok := d.Fields[name]; !ok {
			r.added[name]++
		}
	}
}

func (t *tool) replay(ctx context.Context, r replay, pick func(func(jobs.DeadLetter)) ([]marked, error)) error {
	if r.dry {
		return t.dryRun(r, pick)
	}
	letters, err := pick(r.look)
	if missed := errors.Is(err, errSaid); err != nil && (!missed || len(letters) == 0) {
		return err
	}
	if len(letters) > 1 {
		if err := t.ask(ctx, r.question(letters)); err != nil {
			return err
		}
	}
	if len(r.added) > 0 && (len(letters) == 1 || t.yes) {
		t.note("replaying " + counted(letters) + r.corrections(len(letters)))
	}
	d := t.client.DeadLetters()
	return orSaid(t.all(ctx, letters, r.every, "replayed", func(ctx context.Context, m marked) error {
		return d.Replay(ctx, m.entry, jobs.ReplayOptions{Set: r.set})
	}), err)
}

// orSaid is what a run ended with, or else what its choice did.
func orSaid(err, before error) error {
	if err != nil {
		return err
	}
	return before
}

func (r replay) question(letters []marked) string {
	return "Replay " + counted(letters) + r.corrections(len(letters)) + "?"
}

// corrections are what is set in so many letters, as text.
func (r replay) corrections(letters int) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(r.set)) {
		text += fmt.Sprintf(", with %s=%s", name, r.set[name])
		if n := r.added[name]; n > 0 {
			text += fmt.Sprintf(" (a field that %d of %d did not have)", n, letters)
		}
	}
	return text
}

// counted is how many letters of which kind.
func counted(letters []marked) string {
	kinds := map[string]bool{}
	for _, m := range letters {
		kinds[m.kind] = true
	}
	if len(kinds) == 1 {
		return plural(len(letters), "dead letter") + " of " + kindName(letters[0].kind)
	}
	return plural(len(letters), "dead letter") + " of " + plural(len(kinds), "kind")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (t *tool) dryRun(r replay, pick func(func(jobs.DeadLetter)) ([]marked, error)) error {
	var list letterTable
	var failed error
	letters, err := pick(func(d jobs.DeadLetter) {
		r.look(d)
		if !t.json {
			list.add(d)
			return
		}
		out := letterOf(d)
		out.Replay = "would"
		if d.Raw != "" || d.Kind == "" {
			out.Replay = "cannot"
		}
		if err := t.line(out); failed == nil {
			failed = err
		}
	})
	if failed != nil || err != nil && !errors.Is(err, errSaid) || len(letters) == 0 {
		return orSaid(failed, err)
	}
	if t.json {
		return err
	}
	if err := list.print(t.out, width(t.out)); err != nil {
		return err
	}
	return orSaid(r.sayDry(t.out, letters), err)
}

func (r replay) sayDry(w io.Writer, letters []marked) error {
	never := 0
	for _, m := range letters {
		if m.never {
			never++
		}
	}
	text := "Would replay " + counted(letters) + r.corrections(len(letters))
	if r.every > 0 {
		text += ", in about " + age(r.every*time.Duration(len(letters)))
	}
	if never > 0 {
		text += fmt.Sprintf("; %d of them cannot be, since they were never readable as a job", never)
	}
	_, err := fmt.Fprintln(w, "\n"+safe(text)+". Nothing was done.")
	return err
}

func (t *tool) deadDiscardCommand() *cobra.Command {
	var f choice
	var all bool
	c := t.command("discard [ENTRY…]", "Delete dead letters for good", entries,
		func(ctx context.Context, entries []string) error {
			letters, err := t.picked(ctx, entries, f, all, func(jobs.DeadLetter) {})
			if missed := errors.Is(err, errSaid); err != nil && (!missed || len(letters) == 0) {
				return err
			}
			if err := t.ask(ctx, "Discard "+counted(letters)+" for good?"); err != nil {
				return err
			}
			return orSaid(t.all(ctx, letters, 0, "discarded", func(ctx context.Context, m marked) error {
				return t.client.DeadLetters().Discard(ctx, m.entry)
			}), err)
		})
	f.flags(c, 0)
	c.Flags().BoolVar(&all, "all", false, "every one")
	return c
}

// all acts on letter after letter, at a pace, until it is interrupted or Redis fails, and
// says how far it came. What one letter alone refuses, or somebody else did first, does not
// end it.
func (t *tool) all(ctx context.Context, letters []marked, every time.Duration, verb string, act func(context.Context, marked) error) error {
	n := tally{total: len(letters)}
	bar := t.progress(verb, len(letters))
	next := time.Now()
	var broken error
	for i, m := range letters {
		if next = waited(ctx, next, every); ctx.Err() != nil {
			broken = ctx.Err()
			break
		}
		// One that has begun is not cut off: its answer would be missing.
		err := act(context.WithoutCancel(ctx), m)
		n.count(err)
		if broken = stops(err); broken != nil {
			break
		}
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			bar.end()
			fmt.Fprintln(t.err, "jobs: "+safe(trimmed(err)))
		}
		bar.at(i + 1)
	}
	bar.end()
	if err := t.sayHow(verb, n); err != nil {
		return err
	}
	switch {
	case broken != nil:
		return broken
	case n.gone+n.refused > 0:
		return errSaid
	}
	return nil
}

// waited waits until it is next's turn, or ctx ends, and returns whose turn it is after that.
// What came late is not made up for.
func waited(ctx context.Context, next time.Time, every time.Duration) time.Time {
	if wait := time.Until(next); every > 0 && wait > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	if now := time.Now(); next.Before(now.Add(-every)) {
		next = now
	}
	return next.Add(every)
}

// tally is what became of so many letters; those that are counted nowhere are as they were.
type tally struct{ total, done, gone, refused, uncertain int }

// count counts a letter by what acting on it came to.
func (n *tally) count(err error) {
	switch {
	case err == nil:
		n.done++
	case errors.Is(err, jobs.ErrNotFound):
		n.gone++
	case errors.Is(err, jobs.ErrUncertain):
		n.uncertain++
	case stops(err) == nil:
		n.refused++
	}
}

func (n tally) left() int { return n.total - n.done - n.gone - n.refused - n.uncertain }

func (t *tool) sayHow(verb string, n tally) error {
	if t.json {
		return t.line(map[string]int{verb: n.done, "gone": n.gone, "refused": n.refused, "uncertain": n.uncertain, "left": n.left()})
	}
	text := fmt.Sprintf("%s %d of %d", verb, n.done, n.total)
	if n.gone > 0 {
		text += fmt.Sprintf("; gone already: %d", n.gone)
	}
	if n.refused > 0 {
		text += fmt.Sprintf("; %d could not be", n.refused)
	}
	if n.uncertain > 0 {
		text += fmt.Sprintf("; %d may have been, since no answer came", n.uncertain)
	}
	switch left := n.left(); {
	case left == 1:
		text += "; 1 is left as it was"
	case left > 1:
		text += fmt.Sprintf("; %d are left as they were", left)
	}
	_, err := fmt.Fprintln(t.out, text)
	return err
}

// stops is err where it is not about one letter: Redis is away, or refuses.
func stops(err error) error {
	if err != nil && exitOf(err) == exitRedis {
		return err
	}
	return nil
}
