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
	c := t.command("audit", short, cobra.NoArgs, list)
	c.AddCommand(t.command("ls", short, cobra.NoArgs, list)) // as the other lists are called
	c.PersistentFlags().StringVar(&f.entry, "entry", "", "of this dead letter, gone or not")
	c.PersistentFlags().StringVar(&f.id, "id", "", "of the job with this ID")
	c.PersistentFlags().StringVar(&f.kind, "kind", "", "of this kind")
	c.PersistentFlags().StringVar(&f.since, "since", "", "at this `time` or later: 2h, yesterday, …")
	c.PersistentFlags().StringVar(&f.until, "until", "", "before this `time`")
	c.PersistentFlags().StringVar(&f.before, "before", "", "older than this `record`, of --json: to go on where a list ended")
	c.PersistentFlags().IntVar(&f.limit, "limit", usual, "at most so many; 0: all")
	return c
}

func (t *tool) listAudit(ctx context.Context, f jobs.Filter) error {
	var tab table
	tab.row("AT", "WHO", "WHAT", "KIND", "ID", "ON", "SET")
	n := 0
	for a, err := range t.client.Audit(ctx, f) {
		if err != nil {
			return err
		}
		n++
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
	return some(n)
}
