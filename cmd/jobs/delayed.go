package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

type delayedJSON struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Due       time.Time  `json:"due"`
	Attempts  int        `json:"attempts"`
	LastError string     `json:"last_error,omitempty"`
	Tick      *time.Time `json:"tick,omitempty"`
	RequestID string     `json:"request_id,omitempty"`
	Trace     string     `json:"trace,omitempty"`
	bytesOf
}

func (t *tool) delayedListCommand() *cobra.Command {
	const usual = 100
	var kind, from, until, after string
	var limit int
	c := t.command("ls", "List what is not due yet, the earliest first", noArgs, func(ctx context.Context, _ []string) error {
		if limit < 0 {
			return usage("--limit is negative")
		}
		now := t.now(ctx)
		first, last, err := between(bound{"--from", from}, bound{"--until", until}, now)
		if err != nil {
			return err
		}
		if after != "" && from != "" {
			return usage("--from and --after both say where to begin")
		}
		t.noteAgo("--from", from)
		t.noteAgo("--until", until)
		return t.listDelayed(ctx, now, wanted{first, last, after, kind, limit})
	})
	c.Flags().Var((*given)(&kind), "kind", "of this kind")
	c.Flags().Var((*given)(&from), "from", "due at this `time` or later: +2h, tomorrow, …")
	c.Flags().Var((*given)(&until), "until", "due before this `time`: +2h, tomorrow, …; now: what is overdue")
	c.Flags().Var((*given)(&after), "after", "go on where a list was ended by its limit: the `place` that it named")
	c.Flags().IntVar(&limit, "limit", usual, "at most so many; 0: all")
	return c
}

// noteAgo says so where a duration is past that was meant to come, most likely.
func (t *tool) noteAgo(flag, text string) {
	if d, err := duration(text); err == nil && !strings.HasPrefix(text, "+") {
		t.note(fmt.Sprintf("%s %s is %s ago; +%s is from now", flag, text, age(d), text))
	}
}

// wanted is what is to be listed of the delayed jobs.
type wanted struct {
	from, until time.Time
	after, kind string
	limit       int
}

func (w wanted) all() bool {
	return w.kind == "" && w.after == "" && w.from.IsZero() && w.until.IsZero()
}

// list is what is delayed from where it is to begin.
func (w wanted) list(ctx context.Context, d *jobs.Delayed) iter.Seq2[jobs.DelayedJob, error] {
	if w.after != "" {
		return d.ListAfter(ctx, w.after)
	}
	return d.ListFrom(ctx, w.from)
}

func (t *tool) listDelayed(ctx context.Context, now time.Time, w wanted) error {
	before := 0
	if w.all() {
		before = t.delayedMembers(ctx)
	}
	n, on, err := t.printDelayed(ctx, now, w)
	switch {
	case err != nil:
		return err
	case on != "":
		t.more(n, w.limit, on)
	case w.all(): // jobs come and go meanwhile
		t.noteNoJobs(min(before, t.delayedMembers(ctx)) - n)
	}
	return some(n)
}

// printDelayed returns how many it has printed and, where its limit has ended it, how to go on.
func (t *tool) printDelayed(ctx context.Context, now time.Time, w wanted) (n int, on string, err error) {
	var tab table
	last := ""
	tab.row("DUE", "IN", "KIND", "ID", "ATTEMPTS", "LAST ERROR")
	for j, err := range w.list(ctx, t.client.Delayed()) {
		if err != nil {
			return n, "", err
		}
		if !w.until.IsZero() && !j.Due.Before(w.until) {
			break
		}
		if w.limit > 0 && n >= w.limit {
			on = "--after " + last
			break
		}
		last = j.Cursor
		if w.kind != "" && j.Kind != w.kind {
			continue
		}
		n++
		if !t.json {
			tab.row(clock(j.Due), wait(j.Due, now, ""), kindName(j.Kind), cmp.Or(j.ID, "-"), fmt.Sprint(j.Attempts), firstLine(j.LastError))
			continue
		}
		if err := t.line(delayedOf(j)); err != nil {
			return n, "", err
		}
	}
	if !t.json && n > 0 {
		err = tab.print(t.out, width(t.out))
	}
	return n, on, err
}

// delayedMembers is how many members delayed has; 0 where that cannot be asked.
func (t *tool) delayedMembers(ctx context.Context) int {
	s, _ := t.client.Stats(ctx)
	return int(s.Delayed)
}

// noteNoJobs says why a list of all has fewer than there are: n, where it is more than 0.
func (t *tool) noteNoJobs(n int) {
	switch {
	case n == 1:
		t.note("1 delayed member is no job and is not shown: it is dead-lettered when it is due")
	case n > 1:
		t.note(fmt.Sprintf("%d delayed members are no jobs and are not shown: they are dead-lettered when they are due", n))
	}
}

func delayedOf(j jobs.DelayedJob) delayedJSON {
	return delayedJSON{
		ID: j.ID, Kind: j.Kind, Due: instantOf(j.Due), Attempts: j.Attempts, LastError: j.LastError, Tick: utc(j.Tick),
		RequestID: j.RequestID, Trace: j.Trace, bytesOf: fieldsOf(j.Fields),
	}
}

func (t *tool) delayedShowCommand() *cobra.Command {
	return t.command("show ID…", "Show delayed jobs: when they are due, fields, last error", atLeastOne, func(ctx context.Context, ids []string) error {
		return t.each(ctx, ids, func(id string) error {
			all, err := t.client.Delayed().Get(ctx, id)
			for _, j := range all {
				if err == nil {
					err = t.showDelayed(ctx, j)
				}
			}
			return err
		})
	})
}

func (t *tool) showDelayed(ctx context.Context, j jobs.DelayedJob) error {
	if t.json {
		return t.line(delayedOf(j))
	}
	var b strings.Builder
	var tab table
	tab.row("id", j.ID)
	tab.row("kind", kindName(j.Kind))
	tab.row("due", clock(j.Due)+", "+wait(j.Due, t.now(ctx), "in "))
	tab.row("attempts", fmt.Sprint(j.Attempts))
	tab.about(j.Job)
	_ = tab.print(&b, 0) // a Builder takes everything
	section(&b, "fields", t.fieldLines(j.Fields))
	section(&b, "last error", j.LastError)
	_, err := io.WriteString(t.out, b.String()+"\n")
	return err
}

// about adds what a job carries with it.
func (tab *table) about(j jobs.Job) {
	for _, f := range [...][2]string{{"request", j.RequestID}, {"trace", j.Trace}} {
		if f[1] != "" {
			tab.row(f[0], f[1])
		}
	}
	if !j.Tick.IsZero() {
		tab.row("tick", clock(j.Tick))
	}
}

func (t *tool) delayedRunNowCommand() *cobra.Command {
	c := t.command("run-now ID…", "Make delayed jobs ready at once", atLeastOne, func(ctx context.Context, ids []string) error {
		return t.eachJob(ctx, ids, "ready", func(id string) error { return t.client.Delayed().RunNow(ctx, id) })
	})
	c.Long = "Make delayed jobs ready at once.\n\n" + byID
	return c
}

const byID = `Of several jobs that share an ID (of different kinds) all are meant. For each ID all that is delayed is read,
so it takes as long as there are jobs. Each is recorded in the audit trail.`

func (t *tool) delayedCancelCommand() *cobra.Command {
	c := t.command("cancel ID…", "Take delayed jobs away, so that they never run", atLeastOne, func(ctx context.Context, ids []string) error {
		if err := t.ask(ctx, "Cancel "+plural(len(once(ids)), "delayed job")+" for good?"); err != nil {
			return err
		}
		return t.eachJob(ctx, ids, "cancelled", func(id string) error { return t.client.Delayed().Cancel(ctx, id) })
	})
	c.Long = "Take delayed jobs away, so that they never run. It asks first.\n\n" + byID
	return c
}

// eachJob acts on each job and says of each that it has.
func (t *tool) eachJob(ctx context.Context, ids []string, done string, act func(id string) error) error {
	return t.each(ctx, ids, func(id string) error {
		if err := act(id); err != nil {
			return err
		}
		return t.say(done, id)
	})
}

// say says what was done to what.
func (t *tool) say(what, id string) error {
	if t.json {
		return t.line(map[string]string{"id": id, "done": what})
	}
	_, err := fmt.Fprintln(t.out, what, safe(id))
	return err
}
