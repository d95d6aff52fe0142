package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/chaos"
)

// An ending is what a handler is about to do: it is recorded, and then done.
type ending struct {
	outcome chaos.Outcome
	do      func() error
}

func succeeds() ending { return ending{chaos.Done, func() error { return nil }} }

func fails(err error) ending { return ending{chaos.Failed, func() error { return err }} }

// A run is what a behaviour may look at.
type run struct {
	rec   *recorder
	job   jobs.Job
	args  chaos.Args
	begun int // how often a shaky job has begun in this generation, this time included
}

// behaviours are the kinds' own, once they have worked; the others succeed.
var behaviours = map[string]func(ctx context.Context, r run) ending{
	chaos.Flaky: func(_ context.Context, r run) ending {
		if r.job.Attempts < r.args.Times {
			return fails(errors.New("failed as told"))
		}
		return succeeds()
	},
	chaos.Failing: func(context.Context, run) ending {
		return fails(errors.New("failed as told"))
	},
	chaos.Hopeless: func(context.Context, run) ending {
		return fails(jobs.Permanent(errors.New("failed for good as told")))
	},
	chaos.Panicky: func(context.Context, run) ending {
		return ending{chaos.Failed, func() error { panic("panicked as told") }}
	},
	chaos.Exiting: func(context.Context, run) ending {
		return ending{chaos.Failed, func() error { runtime.Goexit(); return nil }}
	},
	chaos.Hanging: func(ctx context.Context, r run) ending {
		if r.job.Attempts < r.args.Times {
			<-ctx.Done()
			return interrupted(ctx)
		}
		return succeeds()
	},
	chaos.Deaf: deaf,
	chaos.Sleepy: func(ctx context.Context, r run) ending {
		if r.rec.count(r) <= r.args.Times {
			return ending{chaos.Snoozed, func() error { return jobs.Snooze(200 * time.Millisecond) }}
		}
		return succeeds()
	},
	chaos.Shaky: func(ctx context.Context, r run) ending {
		if r.begun <= r.args.Times {
			return kills()
		}
		return succeeds()
	},
	chaos.Deadly: func(context.Context, run) ending { return kills() },
}

// deaf goes on after its timeout for so long that it is abandoned. Of a shutdown and a lost lease it hears.
func deaf(ctx context.Context, r run) ending {
	if r.job.Attempts > 0 {
		return succeeds()
	}
	<-ctx.Done()
	if context.Cause(ctx) != jobs.ErrTimeout {
		return interrupted(ctx)
	}
	return ending{chaos.Failed, func() error {
		time.Sleep(chaos.Overtime + time.Second)
		// Too late to count; but after a pause this process may come to it before it gives the handler up.
		return errors.New("at last")
	}}
}

// kills ends this process as the kernel's memory killer would, whatever else runs in it.
func kills() ending {
	return ending{chaos.Suicide, func() error {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // one's own process can be killed
		select {}                                      // nothing may be reported of this run
	}}
}

// labour takes the time that a job takes. Its ending has no outcome where the job may go on.
func labour(ctx context.Context, d time.Duration) ending {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ending{}
	case <-ctx.Done():
		return interrupted(ctx)
	}
}

// interrupted is the end of a handler that heeds its context.
func interrupted(ctx context.Context) ending {
	cause := context.Cause(ctx)
	e := fails(cause)
	switch {
	case errors.Is(cause, jobs.ErrShutdown):
		e.outcome = chaos.Released
	case errors.Is(cause, jobs.ErrLeaseLost):
		e.outcome = chaos.Robbed
	}
	return e
}
