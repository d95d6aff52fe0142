// Command testworker is a worker process for tests that must kill one, and for whoever wants to try the wire contract
// from outside.
//
// Without arguments it is a worker, driven by its environment, until SIGTERM or SIGINT:
//
//	REDIS_URL   the Redis of the jobs; required
//	RECORD_URL  the Redis of the lists ran and finished; default REDIS_URL
//	PREFIX      before every key of the fleet
//	WORKER      name of the worker; default the host name
//	KINDS       comma-separated kinds that it knows; default all
//	SLOTS, LEASE, GRACE, TIMEOUT   as in jobs.Config, with its defaults
//	RETRIES, BASE, CAP             the policy of every kind; default 2, 100ms, 1s
//	PERIODIC    name=expression;…: each tick enqueues kind ok with field from = name
//
// It exits 0 after a clean drain and 1 if jobs were left. With arguments it is a producer or an operator:
//
//	testworker enqueue KIND [-in D] [-at RFC3339] [-id ID] [-n N] [field=value …]
//	testworker replay ID
//	testworker replay-kind KIND
//	testworker discard ID
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testworker:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := redisOptions("REDIS_URL")
	if err != nil {
		return err
	}
	rdb := redis.NewClient(o)
	defer rdb.Close()
	client := jobs.NewClient(rdb, jobs.Options{Prefix: os.Getenv("PREFIX")})
	if len(args) > 0 {
		return operate(ctx, client, args, out)
	}
	return work(ctx, client)
}

func work(ctx context.Context, client *jobs.Client) error {
	s, err := readSettings()
	if err != nil {
		return err
	}
	rec, err := newRecorder(s.config.Worker)
	if err != nil {
		return err
	}
	defer rec.rdb.Close()
	r, err := newRunner(client, s, rec)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// newRunner returns what the library refuses by panicking as an error: here the environment is the programmer.
func newRunner(client *jobs.Client, s settings, rec recorder) (r *jobs.Runner, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bad environment: %v", p)
		}
	}()
	policy := jobs.Policy{Retries: s.retries, Backoff: jobs.FullJitter(min(s.base, s.limit), s.limit)}
	r = jobs.NewRunner(client, s.config)
	for _, name := range s.kinds {
		jobs.Handle(r, jobs.NewKind[jobs.Fields](name, policy), rec.handler(name))
	}
	ok := jobs.NewKind[jobs.Fields]("ok", policy)
	for _, p := range s.periodic {
		p.Job = ok.Job(jobs.Fields{"from": p.Name})
		r.Schedule(p)
	}
	return r, nil
}

type settings struct {
	config      jobs.Config
	kinds       []string
	retries     int
	base, limit time.Duration
	periodic    []jobs.Periodic // without their Job
}

func readSettings() (settings, error) {
	s := settings{
		config: jobs.Config{
			Worker: os.Getenv("WORKER"),
			Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		},
		kinds:   slices.Sorted(maps.Keys(behaviours)),
		retries: 2,
		base:    100 * time.Millisecond,
		limit:   time.Second,
	}
	err := cmp.Or(
		read("SLOTS", &s.config.Slots, strconv.Atoi),
		read("LEASE", &s.config.Lease, time.ParseDuration),
		read("GRACE", &s.config.Grace, time.ParseDuration),
		read("TIMEOUT", &s.config.Timeout, time.ParseDuration),
		read("KINDS", &s.kinds, parseKinds),
		read("RETRIES", &s.retries, strconv.Atoi),
		read("BASE", &s.base, time.ParseDuration),
		read("CAP", &s.limit, time.ParseDuration),
		read("PERIODIC", &s.periodic, parsePeriodic),
	)
	return s, err
}

// read parses the variable into v, which keeps its default where the variable is unset or empty.
func read[T any](name string, v *T, parse func(string) (T, error)) error {
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	parsed, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*v = parsed
	return nil
}

func parseKinds(text string) ([]string, error) {
	kinds := strings.Split(text, ",")
	for _, kind := range kinds {
		if behaviours[kind] == nil {
			return nil, fmt.Errorf("no kind %q", kind)
		}
	}
	return kinds, nil
}

func parsePeriodic(text string) ([]jobs.Periodic, error) {
	var all []jobs.Periodic
	for part := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
		name, expr, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not name=expression", part)
		}
		when, err := jobs.ParseCron(expr)
		if err != nil {
			return nil, err
		}
		all = append(all, jobs.Periodic{Name: name, When: when})
	}
	return all, nil
}

// redisOptions are those of the first variable that is set.
func redisOptions(names ...string) (*redis.Options, error) {
	for _, name := range names {
		url := os.Getenv(name)
		if url == "" {
			continue
		}
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return o, nil
	}
	return nil, errors.New("REDIS_URL is not set")
}
