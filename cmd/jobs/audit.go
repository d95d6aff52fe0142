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
	ls := t.command("ls", "List who replayed, corrected, discarded or cancelled what, the newest first", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			filter, err := f.filter(ctx, t)
			if err != nil {
				return err
			}
			return t.listAudit(ctx, filter)
		})
	ls.Flags().StringVar(&f.id, "id", "", "of the job with this ID")
	ls.Flags().StringVar(&f.kind, "kind", "", "of this kind")
	ls.Flags().StringVar(&f.since, "since", "", "at this `time` or later: 2h, yesterday, …")
	ls.Flags().StringVar(&f.until, "until", "", "before this `time`")
	ls.Flags().StringVar(&f.before, "before", "", "older than this `record`, of --json: to go on where a list ended")
	ls.Flags().IntVar(&f.limit, "limit", usual, "at most so many; 0: all")
	return group("audit", "What was done by hand", ls)
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
			if err := t.line(actionJSON{a.Record, a.At.UTC(), a.Who, a.What, a.ID, a.Kind, a.Entry, a.Schedule, a.Set}); err != nil {
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
