package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

type statsJSON struct {
	At      *time.Time `json:"at,omitempty"`
	Kind    *string    `json:"kind,omitempty"`
	Ready   int64      `json:"ready"`
	Running int64      `json:"running"`
	Delayed int64      `json:"delayed"`
	Dead    int64      `json:"dead"`
	Oldest  float64    `json:"oldest_ready_seconds"`
}

func statsOf(s jobs.Stats) statsJSON {
	return statsJSON{Ready: s.Ready, Running: s.Running, Delayed: s.Delayed, Dead: s.Dead, Oldest: s.OldestReady.Seconds()}
}

func (t *tool) statsCommand() *cobra.Command {
	const usual = 2 * time.Second
	var watch, byKind bool
	var every time.Duration
	c := t.command("stats", "How many jobs are where, and how long the oldest has waited", noArgs,
		func(ctx context.Context, _ []string) error {
			if every < 0 {
				return usage("--every is negative")
			}
			show := t.stats
			if byKind {
				show = t.statsByKind
			}
			if watch || every > 0 {
				return t.watch(ctx, max(cmp.Or(every, usual), 100*time.Millisecond), show)
			}
			err := show(ctx, t.out)
			if err == nil {
				t.note(t.strange(ctx))
			}
			return err
		})
	c.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until interrupted")
	c.Flags().DurationVar(&every, "every", 0, "how often to watch (2s)")
	c.Flags().BoolVar(&byKind, "by-kind", false, "for each kind: reads all there is, so it takes as long as there are jobs")
	return c
}

// watch shows again and again; on a terminal, in the same place. An outage ends it no more
// than it ends a worker.
func (t *tool) watch(ctx context.Context, every time.Duration, show func(context.Context, io.Writer) error) error {
	screen := width(t.out) > 0 && !t.json
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		var b strings.Builder
		err := show(ctx, &b)
		if err != nil && first {
			return err
		}
		text := b.String()
		switch failed := err != nil && ctx.Err() == nil; {
		case failed && t.json:
			t.note(trimmed(err))
			text = ""
		case failed:
			text = safe(trimmed(err)) + "\n"
		}
		if screen {
			head := "jobs stats, every " + every.String() + ", " + time.Now().Format(time.TimeOnly) + "\n\n"
			text = "\x1b[H" + strings.ReplaceAll(fitting(head+text, height(t.out)), "\n", "\x1b[K\n") + "\x1b[J"
		} else if !t.json && !first {
			text = "\n" + text
		}
		if _, err := io.WriteString(t.out, text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (t *tool) stats(ctx context.Context, w io.Writer) error {
	s, err := t.client.Stats(ctx)
	if err != nil {
		return err
	}
	if t.json {
		out := statsOf(s)
		out.At = utc(t.now(ctx))
		return (&tool{out: w}).line(out)
	}
	oldest := ""
	if s.Ready > 0 {
		oldest = "the oldest for " + age(s.OldestReady)
	}
	var tab table
	tab.row("ready", fmt.Sprint(s.Ready), oldest)
	tab.row("running", fmt.Sprint(s.Running))
	tab.row("delayed", fmt.Sprint(s.Delayed))
	tab.row("dead", fmt.Sprint(s.Dead))
	return tab.print(w, width(t.out))
}

func (t *tool) statsByKind(ctx context.Context, w io.Writer) error {
	all, err := t.client.StatsByKind(ctx)
	if err != nil {
		return err
	}
	var tab table
	tab.row("KIND", "READY", "RUNNING", "DELAYED", "DEAD", "OLDEST READY")
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		s := all[kind]
		if t.json {
			out := statsOf(s)
			out.Kind = &kind
			if err := (&tool{out: w}).line(out); err != nil {
				return err
			}
			continue
		}
		oldest := "-"
		if s.Ready > 0 {
			oldest = age(s.OldestReady)
		}
		tab.row(kindName(kind), fmt.Sprint(s.Ready), fmt.Sprint(s.Running), fmt.Sprint(s.Delayed), fmt.Sprint(s.Dead), oldest)
	}
	if t.json {
		return nil
	}
	return tab.print(w, width(t.out))
}

// kindName is a kind in a table.
func kindName(kind string) string {
	if kind == "" {
		return "(no kind)"
	}
	return kind
}
