package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

type workerJSON struct {
	Name    string        `json:"name"`
	Alive   bool          `json:"alive"`
	Host    string        `json:"host,omitempty"`
	PID     int           `json:"pid,omitempty"`
	Slots   int           `json:"slots"`
	Kinds   []string      `json:"kinds,omitempty"`
	Lease   float64       `json:"lease_seconds"`
	Started *time.Time    `json:"started,omitempty"`
	Seen    *time.Time    `json:"seen,omitempty"`
	Silent  bool          `json:"silent,omitempty"`
	Owns    int64         `json:"owns"`
	Running []runningJSON `json:"running"`
}

type runningJSON struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Attempts int       `json:"attempts"`
	Entry    string    `json:"entry"`
	Since    time.Time `json:"since"`
}

func (t *tool) workersCommand() *cobra.Command {
	return t.command("workers", "Who works, and what runs in each slot since when", noArgs, func(ctx context.Context, _ []string) error {
		all, err := t.client.Workers(ctx)
		if err != nil {
			return err
		}
		if !t.json {
			return t.listWorkers(all, t.now(ctx))
		}
		for _, w := range all {
			if err := t.line(workerOf(w)); err != nil {
				return err
			}
		}
		return some(len(all))
	})
}

func workerOf(w jobs.Worker) workerJSON {
	out := workerJSON{
		Name: w.Name, Alive: !w.Seen.IsZero(), Host: w.Host, PID: w.PID, Slots: w.Slots, Kinds: w.Kinds, Lease: w.Lease.Seconds(),
		Started: utc(w.Started), Seen: utc(w.Seen), Silent: w.Silent, Owns: w.Owns, Running: []runningJSON{},
	}
	for _, r := range w.Running {
		out.Running = append(out.Running, runningJSON{r.ID, r.Kind, r.Attempts, r.Entry, instantOf(r.Since)})
	}
	return out
}

// listWorkers has a line for a worker and, below it, one for each job that it runs. What a silent one ran may run elsewhere
// by now.
func (t *tool) listWorkers(all []jobs.Worker, now time.Time) error {
	var tab table
	tab.row("WORKER", "HOST", "PID", "SLOTS", "UP", "SEEN", "KINDS")
	for _, w := range all {
		if w.Seen.IsZero() {
			tab.row(w.Name, "-", "-", "-", "-", "no process", fmt.Sprintf("still owns %d", w.Owns))
			continue
		}
		seen := age(now.Sub(w.Seen)) + " ago"
		if w.Silent {
			seen = "silent for " + age(now.Sub(w.Seen))
		}
		tab.row(w.Name, w.Host, fmt.Sprint(w.PID), fmt.Sprintf("%d of %d", len(w.Running), w.Slots),
			age(now.Sub(w.Started)), seen, strings.Join(w.Kinds, " "))
		for _, r := range w.Running {
			attempt := fmt.Sprintf("attempt %d", r.Attempts+1)
			if w.Silent {
				attempt = "last told"
			}
			tab.row("  "+r.Kind, r.ID, "", "", "for "+age(now.Sub(r.Since)), attempt)
		}
	}
	if len(all) == 0 {
		return errNothing
	}
	return tab.print(t.out, width(t.out))
}
