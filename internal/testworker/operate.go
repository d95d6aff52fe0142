package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stagedoor/jobs"
)

const usage = "usage: enqueue KIND [-in D] [-at RFC3339] [-id ID] [-n N] [field=value …] | replay ID | replay-kind KIND | discard ID"

// operate does what args say and returns; what it answers goes to out.
func operate(ctx context.Context, client *jobs.Client, args []string, out io.Writer) error {
	logging.Disable() // a failure is said once, in our one line
	dead := client.DeadLetters()
	verb, args := args[0], args[1:]
	if verb == "enqueue" {
		return enqueue(ctx, client, args, out)
	}
	if len(args) != 1 || args[0] == "" { // no kind would mean every kind
		return errors.New(usage)
	}
	switch verb {
	case "replay":
		return dead.Replay(ctx, args[0], jobs.ReplayOptions{})
	case "replay-kind":
		n, err := dead.ReplayAll(ctx, jobs.Filter{Kind: args[0]}, jobs.ReplayOptions{})
		if err != nil {
			return fmt.Errorf("%d replayed, then %w", n, err)
		}
		_, err = fmt.Fprintln(out, n)
		return err
	case "discard":
		return dead.Discard(ctx, args[0])
	}
	return errors.New(usage)
}

func enqueue(ctx context.Context, client *jobs.Client, args []string, out io.Writer) error {
	o, err := parseOrder(args)
	if err != nil {
		return err
	}
	batch, err := o.jobs()
	if err != nil {
		return err
	}
	if err := client.Enqueue(ctx, batch...); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for _, job := range batch {
		fmt.Fprintln(w, job.ID)
	}
	return w.Flush()
}

// An order is what enqueue is told to do: n equal jobs but for their IDs.
type order struct {
	kind, id string
	n        int
	fields   jobs.Fields
	due      func(jobs.Job) jobs.Job // nil: now
}

func (o order) jobs() ([]jobs.Job, error) {
	batch := make([]jobs.Job, o.n)
	for i := range batch {
		id := o.id
		if id == "" {
			minted, err := uuid.NewV7()
			if err != nil {
				return nil, err
			}
			id = minted.String()
		}
		batch[i] = jobs.Job{ID: id, Kind: o.kind, Fields: maps.Clone(o.fields)}
		if o.due != nil {
			batch[i] = o.due(batch[i])
		}
	}
	return batch, nil
}

// parseOrder takes flags and fields in any order; the first that is no flag is the kind.
func parseOrder(args []string) (order, error) {
	o := order{fields: jobs.Fields{}}
	flags := o.flags()
	for {
		if err := flags.Parse(args); err != nil {
			return order{}, err
		}
		if flags.NArg() == 0 {
			break
		}
		if err := o.positional(flags.Arg(0)); err != nil {
			return order{}, err
		}
		args = flags.Args()[1:]
	}
	return o, o.check()
}

func (o *order) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("enqueue", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.id, "id", "", "")
	flags.IntVar(&o.n, "n", 1, "")
	flags.Func("in", "", func(text string) error {
		d, err := time.ParseDuration(text)
		return errors.Join(err, o.when(func(j jobs.Job) jobs.Job { return j.In(d) }))
	})
	flags.Func("at", "", func(text string) error {
		t, err := time.Parse(time.RFC3339, text)
		return errors.Join(err, o.when(func(j jobs.Job) jobs.Job { return j.At(t) }))
	})
	return flags
}

func (o *order) when(due func(jobs.Job) jobs.Job) error {
	if o.due != nil {
		return errors.New("a job is due once")
	}
	o.due = due
	return nil
}

func (o *order) positional(arg string) error {
	if o.kind == "" {
		o.kind = arg
		return nil
	}
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return fmt.Errorf("%q is not field=value", arg)
	}
	o.fields[name] = value
	return nil
}

func (o *order) check() error {
	switch {
	case o.kind == "":
		return errors.New(usage)
	case o.n < 1:
		return fmt.Errorf("-n %d: at least 1", o.n)
	case o.n > 1 && o.id != "":
		return fmt.Errorf("-n %d: one job has the ID %s", o.n, o.id)
	}
	return nil
}
