package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

type scheduleJSON struct {
	Name       string     `json:"name"`
	Kind       string     `json:"kind"`
	Expression string     `json:"expression"`
	Next       *time.Time `json:"next,omitempty"`
	Last       *time.Time `json:"last,omitempty"`
	By         string     `json:"by,omitempty"`
	Workers    int        `json:"workers"`
}

// enqueued is the last tick that somebody enqueued: not one before which the schedule was new.
func enqueued(s jobs.ScheduleState) time.Time {
	if s.New {
		return time.Time{}
	}
	return s.Last
}

func (t *tool) scheduleListCommand() *cobra.Command {
	return t.command("ls", "List the schedules that living workers follow", noArgs, func(ctx context.Context, _ []string) error {
		all, err := t.client.Schedules(ctx)
		if err != nil {
			return err
		}
		var tab table
		tab.row("NAME", "KIND", "EXPRESSION", "NEXT", "LAST", "ENQUEUED BY", "WORKERS")
		for _, s := range all {
			if t.json {
				err := t.line(scheduleJSON{s.Name, s.Kind, s.Expression, utc(s.Next), utc(enqueued(s)), s.By, s.Workers})
				if err != nil {
					return err
				}
				continue
			}
			tab.row(s.Name, s.Kind, s.Expression, clock(s.Next), clock(enqueued(s)), cmp.Or(s.By, "-"), fmt.Sprint(s.Workers))
		}
		if !t.json && len(all) > 0 {
			if err := tab.print(t.out, width(t.out)); err != nil {
				return err
			}
		}
		return some(len(all))
	})
}

func (t *tool) scheduleRunNowCommand() *cobra.Command {
	return t.command("run-now NAME…", "Enqueue a schedule's job now, beside its ticks", atLeastOne,
		func(ctx context.Context, names []string) error {
			return t.eachJob(ctx, names, "enqueued", func(name string) error { return t.client.RunSchedule(ctx, name) })
		})
}
