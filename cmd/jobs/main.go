// Command jobs is for people who look after a queue: how deep it is, who works on it, what is dead and why, and what is
// wrong around it. It replays, corrects, discards and cancels, and each of these is written to the audit trail.
//
//	go install github.com/stagedoor/jobs/cmd/jobs@latest
//	alias jobs='env jobs'    # most shells have a builtin of that name; in scripts, write env jobs
//
//	REDIS_URL=redis://localhost:6379 jobs stats --by-kind
//	jobs dead ls --kind render_tickets --since 2h
//	jobs dead replay --kind render_tickets --set seat=14C --rate 50/s --dry-run
//
// It prints tables for people and, with --json, objects for programs, one a line where it is a list. Its exit codes:
//
//	0    done
//	1    nothing was found, or not all of it was done; of doctor: something is wrong
//	2    it was called in a way that makes no sense, or asked and could not be answered (see --yes)
//	3    Redis was not reachable or refused
//	130  interrupted
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

// What the process ends with.
const (
	exitDone        = 0
	exitPartly      = 1
	exitUsage       = 2
	exitRedis       = 3
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop() // a second signal ends the process at once
		time.Sleep(time.Second)
		fmt.Fprintln(os.Stderr, "jobs: waiting for Redis's answer to what is under way; Ctrl-C again does not")
	})
	redis.SetLogger(silent{}) // what matters comes back as an error
	t := &tool{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	c, err := t.root().ExecuteContextC(ctx)
	if err != nil {
		t.complain(ctx, c, err)
	}
	t.close()
	os.Exit(t.code(ctx, err))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var (
	// errNothing: there is nothing of what was asked for.
	errNothing = errors.New("nothing found")
	// errSaid: not all was done, and it has been said.
	errSaid = errors.New("not all was done")
)

// usageError is a call that makes no sense.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (t *tool) complain(ctx context.Context, c *cobra.Command, err error) {
	switch {
	case errors.Is(err, errSaid):
		return
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(t.err, "jobs: interrupted")
		return
	}
	fmt.Fprintln(t.err, "jobs: "+safe(trimmed(err)))
	if _, ok := errors.AsType[usageError](err); ok || !t.started {
		fmt.Fprintln(t.err, "jobs: see "+c.CommandPath()+" --help")
		return
	}
	t.note(t.hint(ctx, err))
}

// note says something beside the result.
func (t *tool) note(text string) {
	if text != "" {
		fmt.Fprintln(t.err, "jobs: "+safe(text))
	}
}

// code is the process's exit code: 2 for what cobra itself refuses, which is all before a command has started.
func (t *tool) code(ctx context.Context, err error) int {
	_, misused := errors.AsType[usageError](err)
	_, unwritten := errors.AsType[*fs.PathError](err) // the output: a full disk, say
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil:
		return exitInterrupted
	case misused || !t.started:
		return exitUsage
	case errors.Is(err, errNothing), errors.Is(err, errSaid), errors.Is(err, jobs.ErrNotFound), unwritten:
		return exitPartly
	}
	return exitRedis
}

// root is the whole tree of commands.
func (t *tool) root() *cobra.Command {
	root := group("jobs", "Look after a queue of background jobs",
		t.statsCommand(), t.workersCommand(), t.enqueueCommand(), t.auditCommand(), t.doctorCommand(),
		group("dead", "Dead letters: jobs that ran into their end",
			t.deadListCommand(), t.deadShowCommand(), t.deadReplayCommand(), t.deadDiscardCommand(), t.deadExportCommand()),
		group("delayed", "Jobs that are not due yet",
			t.delayedListCommand(), t.delayedShowCommand(), t.delayedRunNowCommand(), t.delayedCancelCommand()),
		group("schedule", "What is enqueued by the clock", t.scheduleListCommand(), t.scheduleRunNowCommand()),
	)
	root.Long = rootHelp
	root.Version = version()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	t.flags(root.PersistentFlags())
	return root
}

const rootHelp = `Look after a queue of background jobs.

Most shells have a builtin named jobs. So write env jobs, or once: alias jobs='env jobs'

Redis is --redis, else REDIS_URL, else redis://localhost:6379 (host:port will do); see the
flags below for TLS, Sentinel and Cluster. Passwords come from the URL or from REDIS_PASSWORD (of the sentinels:
SENTINEL_PASSWORD), so that they need not stand in a list of processes.

Times (--since, --until, --from, --at) are RFC 3339, 2026-11-29, "2026-11-29 14:00", 14:00,
now, today, yesterday, tomorrow (each may carry a time: "yesterday 14:00"), 2h or 3d (ago)
and +2h (from now); "ago" and "from now" count from Redis's clock, the others are read, and
shown, in the local time zone. JSON has UTC.

Exit codes: 0 done; 1 nothing found, or not all of it was done, or doctor found an error;
2 called in a way that makes no sense, or no terminal to ask on (see --yes); 3 Redis was not
reachable or refused; 130 interrupted.`

// atLeastOne wants the argument that a command's usage names.
func atLeastOne(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		_, what, _ := strings.Cut(c.Use, " ")
		return usage("%s needs at least 1 argument: %s", c.CommandPath(), what)
	}
	return nil
}

// noArgs wants none.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no argument, and %q is one", c.CommandPath(), args[0])
	}
	return nil
}

// group is a command that only has others under it.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%s has no command %q", c.CommandPath(), args[0])
		}
		return nil
	}}
	c.RunE = func(c *cobra.Command, _ []string) error {
		c.SetOut(c.ErrOrStderr())
		if err := c.Help(); err != nil {
			return err
		}
		return usage("%s needs a command", c.CommandPath())
	}
	c.AddCommand(commands...)
	return c
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}

// tool is one call of the program.
type tool struct {
	in       io.Reader
	out, err io.Writer
	started  bool // a command runs: what fails from now on is no wrong usage, unless it says so

	server server
	as     string
	json   bool
	yes    bool

	rdb    redis.UniversalClient
	client *jobs.Client
}

func (t *tool) close() {
	if t.rdb != nil {
		_ = t.rdb.Close() // there is nothing left to be said on it
	}
}

// command is a command that talks to Redis.
func (t *tool) command(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(c *cobra.Command, args []string) error {
		t.started = true
		if err := t.connect(); err != nil {
			return err
		}
		return run(jobs.WithActor(c.Context(), t.as), args)
	}}
}
