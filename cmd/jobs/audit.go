package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

type actionJSON struct {
	Record   string    `json:"record"`
	At       time.Time `json:"at"`
	Who      string    `json:"who"`
	What     string    `json:"what"`
	ID       string    `json:"id,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Entry    string    `json:"entry,omitempty"`
	Schedule string    `json:"schedule,omitempty"`
	Set      []string  `json:"set,omitempty"`
}

func (t *tool) auditCommand() *cobra.Command {
	const usual = 100
	var f choice
	list := func(ctx context.Context, _ []string) error {
		filter, err := f.filter(ctx, t)
		if err != nil {
			return err
		}
		return t.listAudit(ctx, filter)
	}
	const short = "Who replayed, corrected, discarded or cancelled what, the newest first"
	c := t.command("audit", short, noArgs, list)
	c.AddCommand(t.command("ls", short, noArgs, list)) // as the other lists are called
	c.PersistentFlags().Var((*given)(&f.entry), "entry", "of this dead letter, gone or not")
	c.PersistentFlags().Var((*given)(&f.id), "id", "of the job with this ID")
	c.PersistentFlags().Var((*given)(&f.kind), "kind", "of this kind")
	c.PersistentFlags().Var((*given)(&f.since), "since", "at this `time` or later: 2h, yesterday, …")
	c.PersistentFlags().Var((*given)(&f.until), "until", "before this `time`")
	c.PersistentFlags().Var((*given)(&f.before), "before", "older than this `record`, of --json: to go on where a list ended")
	c.PersistentFlags().IntVar(&f.limit, "limit", usual, "at most so many; 0: all")
	return c
}

func (t *tool) listAudit(ctx context.Context, f jobs.Filter) error {
	var tab table
	tab.row("AT", "WHO", "WHAT", "KIND", "ID", "ON", "SET")
	n, last := 0, ""
	for a, err := range t.client.Audit(ctx, f) {
		if err != nil {
			return err
		}
		n, last = n+1, a.Record
		if t.json {
			if err := t.line(actionJSON{a.Record, instantOf(a.At), a.Who, a.What, a.ID, a.Kind, a.Entry, a.Schedule, a.Set}); err != nil {
				return err
			}
			continue
		}
		tab.row(clock(a.At), cmp.Or(a.Who, "?"), a.What, a.Kind, cmp.Or(a.ID, "-"), cmp.Or(a.Entry, a.Schedule, "-"), strings.Join(a.Set, " "))
	}
	if !t.json && n > 0 {
		if err := tab.print(t.out, width(t.out)); err != nil {
			return err
		}
	}
	t.more(n, f.Limit, "--before "+last)
	return some(n)
}
