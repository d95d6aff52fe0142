package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

// choice is a filter as flags say it.
type choice struct {
	entry, id, kind, err, since, until, before string

	limit int
}

// given is a flag's text. An empty one is refused, for by --kind "$KIND" nobody means every kind, and so is a second, of
// which the first would mean nothing.
type given string

func (g *given) String() string { return string(*g) }
func (g *given) Type() string   { return "string" }

func (g *given) Set(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty; leave the flag away where nothing is meant")
	case *g != "":
		return errors.New("it is given twice")
	}
	*g = given(text)
	return nil
}

// flags adds them to c; usual is how many are listed without --limit.
func (f *choice) flags(c *cobra.Command, usual int) {
	c.Flags().Var((*given)(&f.id), "id", "of the job with this ID")
	c.Flags().Var((*given)(&f.kind), "kind", "of this kind")
	c.Flags().Var((*given)(&f.err), "error", "whose error has this text in it")
	c.Flags().Var((*given)(&f.since), "since", "that died at this `time` or later: 2h, yesterday, 2026-11-29T14:00:00Z, …")
	c.Flags().Var((*given)(&f.until), "until", "that died before this `time`")
	c.Flags().IntVar(&f.limit, "limit", usual, "at most so many; 0: all")
}

// filter reads the flags; what is relative counts from Redis's clock.
func (f choice) filter(ctx context.Context, t *tool) (jobs.Filter, error) {
	out := jobs.Filter{Entry: f.entry, ID: f.id, Kind: f.kind, Error: f.err, Before: f.before, Limit: f.limit}
	if f.limit < 0 {
		return out, usage("--limit is negative")
	}
	for flag, id := range map[string]string{"--before": f.before, "--entry": f.entry} {
		if id != "" && !entryID.MatchString(id) {
			return out, usage("%s: %q is not an entry, as in 1758203641877-0", flag, id)
		}
	}
	if f.since == "" && f.until == "" {
		return out, nil
	}
	var err error
	out.Since, out.Until, err = between(bound{"--since", f.since}, bound{"--until", f.until}, t.now(ctx))
	return out, err
}

var entryID = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}$`)

// entries are arguments that name dead letters.
func entries(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if !entryID.MatchString(arg) {
			return usage("%q is not an ENTRY, as in 1758203641877-0: jobs dead ls lists them", arg)
		}
	}
	return nil
}

// letter is a dead letter; of one that is gone, the error says by whose hand.
func (t *tool) letter(ctx context.Context, entry string) (jobs.DeadLetter, error) {
	d, err := t.client.DeadLetters().Get(ctx, entry)
	if errors.Is(err, jobs.ErrNotFound) {
		for a, failed := range t.client.Audit(ctx, jobs.Filter{Entry: entry, Limit: 1}) {
			if failed == nil {
				err = fmt.Errorf("%w (%s by %s, %s)", err, a.What, cmp.Or(a.Who, "?"), clock(a.At))
			}
		}
	}
	return d, err
}

// narrow reports whether the flags choose anything.
func (f choice) narrow() bool {
	return f.id+f.kind+f.err+f.since+f.until != ""
}

type letterJSON struct {
	Entry     string     `json:"entry"`
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Died      time.Time  `json:"died"`
	Attempts  int        `json:"attempts"`
	Reason    string     `json:"reason"`
	Error     string     `json:"error"`
	Traceback string     `json:"traceback,omitempty"`
	Tick      *time.Time `json:"tick,omitempty"`
	RequestID string     `json:"request_id,omitempty"`
	Trace     string     `json:"trace,omitempty"`
	bytesOf
	Raw    string `json:"raw,omitempty"`
	Raw64  []byte `json:"raw_base64,omitempty"`
	Replay string `json:"replay,omitempty"` // of a dry run
}

// letterOf is all of a letter.
func letterOf(d jobs.DeadLetter) letterJSON {
	out := letterJSON{
		Entry: d.Entry, ID: d.ID, Kind: d.Kind, Died: instantOf(d.Died), Attempts: d.Attempts, Reason: string(d.Reason),
		Error: d.Error, Traceback: d.Traceback, Tick: utc(d.Tick), RequestID: d.RequestID, Trace: d.Trace,
		bytesOf: fieldsOf(d.Fields), Raw: d.Raw,
	}
	if !utf8.ValidString(d.Raw) {
		out.Raw, out.Raw64 = "", []byte(d.Raw)
	}
	return out
}

func (t *tool) deadListCommand() *cobra.Command {
	const usual = 100
	var f choice
	c := t.command("ls", "List dead letters, the newest first", noArgs, func(ctx context.Context, _ []string) error {
		filter, err := f.filter(ctx, t)
		if err != nil {
			return err
		}
		return t.listDead(ctx, filter)
	})
	f.flags(c, usual)
	c.Flags().Var((*given)(&f.before), "before", "older than this `entry`: to go on where a list ended")
	return c
}

func (t *tool) listDead(ctx context.Context, f jobs.Filter) error {
	var list letterTable
	n, last := 0, ""
	for d, err := range t.client.DeadLetters().Newest(ctx, f) {
		switch {
		case err != nil:
		case t.json:
			err = t.line(letterOf(d))
		default:
			list.add(d)
		}
		if err != nil {
			return err
		}
		n, last = n+1, d.Entry
	}
	if err := list.print(t.out, width(t.out)); err != nil {
		return err
	}
	t.more(n, f.Limit, "--before "+last)
	return some(n)
}

// more says beside a list that its limit has ended it, and how to go on: a program's user would not know either.
func (t *tool) more(n, limit int, on string) {
	if n > 0 && n == limit {
		fmt.Fprintf(t.err, "There may be more: %s, or --limit 0 for all.\n", on)
	}
}

// some is errNothing for 0.
func some(n int) error {
	if n <= 0 {
		return errNothing
	}
	return nil
}

// letterTable lists letters; without one it prints nothing. IDs, which are long, would leave
// no room for the error; show and --json have them.
type letterTable struct{ table }

func (l *letterTable) add(d jobs.DeadLetter) {
	if len(l.rows) == 0 {
		l.row("ENTRY", "DIED", "KIND", "TRIED", "ERROR")
	}
	l.row(d.Entry, clock(d.Died), kindName(d.Kind), fmt.Sprint(d.Attempts), firstLine(d.Error))
}

func (t *tool) deadShowCommand() *cobra.Command {
	return t.command("show ENTRY…", "Show dead letters: fields, error, traceback, and what was done by hand", cobra.MatchAll(atLeastOne, entries),
		func(ctx context.Context, entries []string) error {
			return t.each(ctx, entries, func(entry string) error {
				d, err := t.letter(ctx, entry)
				switch {
				case err != nil:
					return err
				case t.json:
					return t.line(letterOf(d))
				}
				return t.showDead(ctx, d)
			})
		})
}

// each acts on each argument, once. What is not there is said, and the others go on.
func (t *tool) each(ctx context.Context, args []string, act func(string) error) error {
	args = once(args)
	missed := 0
	for _, arg := range args {
		err := act(arg)
		if err != nil && exitOf(err) == exitRedis {
			return err
		}
		if err != nil {
			missed++
			fmt.Fprintln(t.err, "jobs: "+safe(trimmed(err)))
		}
	}
	if missed == 0 {
		return nil
	}
	if missed == len(args) {
		t.note(t.strange(ctx))
	}
	return errSaid
}

// once are arguments without those that stand further left already.
func once(args []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		before := seen[arg]
		seen[arg] = true
		return before
	})
}

func (t *tool) showDead(ctx context.Context, d jobs.DeadLetter) error {
	var b strings.Builder
	var tab table
	tab.row("entry", d.Entry)
	tab.row("id", d.ID)
	tab.row("kind", kindName(d.Kind))
	tab.row("died", clock(d.Died)+", "+age(t.now(ctx).Sub(d.Died))+" ago")
	tab.row("tried", fmt.Sprint(d.Attempts))
	tab.row("reason", string(d.Reason))
	tab.about(d.Job)
	_ = tab.print(&b, 0) // a Builder takes everything
	section(&b, "fields", t.fieldLines(d.Fields))
	section(&b, "raw", t.short(d.Raw))
	section(&b, "error", d.Error)
	section(&b, "traceback", d.Traceback)
	section(&b, "by hand", t.history(ctx, d))
	_, err := io.WriteString(t.out, b.String()+"\n")
	return err
}

func section(b *strings.Builder, title, text string) {
	if text != "" {
		b.WriteString("\n" + title + "\n" + safeLines(text, "  "))
	}
}

// fieldLines are fields, one a line.
func (t *tool) fieldLines(m jobs.Fields) string {
	const widest = 30
	var b strings.Builder
	wide := 0
	for name := range m {
		wide = min(widest, max(wide, columns(safe(name))))
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		shown := safe(name)
		fill := strings.Repeat(" ", max(0, wide-columns(shown)))
		b.WriteString(shown + fill + "  " + safe(t.short(m[name])) + "\n")
	}
	return b.String()
}

// short is a value as a person wants it on a terminal, which a megabyte would fill for long.
func (t *tool) short(s string) string {
	const most = 4096
	if width(t.out) == 0 || len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s … [%d bytes; --json has all]", s[:most], len(s))
}

// history is what was done by hand to a letter's job.
func (t *tool) history(ctx context.Context, d jobs.DeadLetter) string {
	var b strings.Builder
	for a, err := range t.client.Audit(ctx, jobs.Filter{ID: d.ID, Kind: d.Kind}) {
		if err != nil || d.ID == "" {
			break // the letter is what was asked for
		}
		fmt.Fprintf(&b, "%s  %s  %s %s\n", clock(a.At), safe(cmp.Or(a.Who, "?")), a.What, safe(strings.Join(a.Set, " ")))
	}
	return b.String()
}

func (t *tool) deadExportCommand() *cobra.Command {
	var f choice
	var path string
	c := t.command("export", "Write dead letters, the oldest first, as JSON, one a line", noArgs,
		func(ctx context.Context, _ []string) error {
			filter, err := f.filter(ctx, t)
			if err != nil {
				return err
			}
			if path == "" {
				return t.export(ctx, filter)
			}
			// The letters hold customers' data.
			file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return usage("--output: %w", err)
			}
			to := *t
			to.out = file
			err = cmp.Or(to.export(ctx, filter), file.Close())
			if info, failed := os.Stat(path); err != nil && failed == nil && info.Size() == 0 {
				_ = os.Remove(path) // or the same command would be refused the next time
			}
			return err
		})
	f.flags(c, 0)
	c.Flags().VarP((*given)(&path), "output", "o", "a new `file`, readable by you alone; else the standard output")
	c.Long = `Write dead letters, the oldest first, as JSON, one a line: all that is known of them. Fields are
an object of strings, or fields_base64, names and values in base64, where something is no UTF-8.`
	return c
}

func (t *tool) export(ctx context.Context, f jobs.Filter) error {
	n := 0
	bar := t.progress("exported", 0)
	defer bar.end()
	for d, err := range t.client.DeadLetters().List(ctx, f) {
		if err == nil {
			err = t.line(letterOf(d))
		}
		if err != nil {
			return err
		}
		n++
		bar.at(n)
	}
	return some(n)
}
