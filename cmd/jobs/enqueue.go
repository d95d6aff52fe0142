package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

func (t *tool) enqueueCommand() *cobra.Command {
	var id, at, in, request string
	c := t.command("enqueue KIND [field=value…]", "Enqueue a job", atLeastOne, func(ctx context.Context, args []string) error {
		set, err := assignments(args[1:])
		if err != nil {
			return err
		}
		job := jobs.Job{ID: id, Kind: args[0], Fields: set, RequestID: request}
		switch {
		case at != "" && in != "":
			return usage("--at and --in exclude each other")
		case at != "":
			when, err := future(at, t.now(ctx))
			if err != nil {
				return err
			}
			job = job.At(when)
		case in != "":
			wait, err := duration(in)
			if err != nil {
				return err
			}
			job = job.In(wait)
		}
		return t.enqueue(ctx, job)
	})
	c.Long = `Enqueue a job, at once or later, and print its ID. The arguments are taken as they are: what they
mean to the kind is known only to its worker, which dead-letters what it cannot read.`
	c.Flags().Var((*given)(&id), "id", "the job's ID; else a new one")
	c.Flags().Var((*given)(&at), "at", "due at this `time`, which is to come: RFC 3339, 14:00, \"tomorrow 09:00\", +2h, …")
	c.Flags().Var((*given)(&in), "in", "due after this `duration`: 90s, 2h30m, 3d")
	c.Flags().StringVar(&request, "request-id", "", "of the request that it belongs to")
	return c
}

// future reads a time that is to come. By what is past somebody means another: most often 2h, which is two hours ago.
func future(text string, now time.Time) (time.Time, error) {
	const slack = 5 * time.Second // for "now" that somebody else's clock has told
	at, err := instant(text, now)
	if past := now.Sub(at); err == nil && past > slack {
		err = usage("--at %q is past: it is read as %s, %s ago; --in is from now, and without either it is at once", text, clock(at), age(past))
	}
	return at, err
}

func (t *tool) enqueue(ctx context.Context, job jobs.Job) error {
	if job.ID == "" {
		job.ID = uuid.Must(uuid.NewV7()).String()
	}
	err := t.client.Enqueue(ctx, job)
	if e, ok := errors.AsType[*jobs.EnqueueError](err); ok && e.Uncertain > 0 {
		return fmt.Errorf("%w; its ID is %s", err, job.ID)
	}
	if err != nil && exitOf(err) != exitRedis {
		return usage("%s", strings.Replace(err.Error(), "job 0, ", "", 1)) // the library would not send it; there is no other job
	}
	if err != nil {
		return err
	}
	t.warnUnknown(ctx, job.Kind)
	if t.json {
		return t.line(map[string]string{"id": job.ID, "kind": job.Kind})
	}
	_, err = fmt.Fprintln(t.out, safe(job.ID))
	return err
}

// warnUnknown says where nobody would run a job: its kind may be mistyped.
func (t *tool) warnUnknown(ctx context.Context, kind string) {
	workers, err := t.client.Workers(ctx)
	known := err != nil || slices.ContainsFunc(workers, func(w jobs.Worker) bool { return slices.Contains(w.Kinds, kind) })
	if !known {
		fmt.Fprintf(t.err, "jobs: it is enqueued, but no living worker handles the kind %s\n", safe(kind))
	}
}
