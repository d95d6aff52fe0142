// Command worker is a worker process of package chaos, driven by its environment until SIGTERM, or until its standard
// input ends (then whoever started it is gone):
//
//	REDIS_URL   the Redis of the jobs
//	RECORD_URL  the Redis of the records, which nobody disturbs
//	RECORDS     the list of the records; default records
//	WORKER      this life's name
//	PREFIX, LEASE, GRACE, SLOTS   of the queue and the Runner; default the library's
//	BLIND       kinds that it does not know, with commas between
//	TICKS       1: it has the schedules
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/chaos"
)

const (
	exitFailed = 1 // Run returned an error: jobs were left, perhaps
	exitMute   = 3 // something could not be recorded
	exitOrphan = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphan)
	}()
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(exitFailed)
	}
}

func work(ctx context.Context) error {
	o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	rec, err := newRecorder()
	if err != nil {
		return err
	}
	go rec.watch()
	rdb := redis.NewClient(o)
	defer rdb.Close()
	client := jobs.NewClient(rdb, jobs.Options{Prefix: os.Getenv("PREFIX")})
	return newRunner(client, rec).Run(ctx)
}

func newRunner(client *jobs.Client, rec *recorder) *jobs.Runner {
	runner := jobs.NewRunner(client, jobs.Config{
		Worker: rec.worker,
		Slots:  setting("SLOTS", strconv.Atoi),
		Lease:  setting("LEASE", time.ParseDuration),
		Grace:  setting("GRACE", time.ParseDuration),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	blind := strings.Split(os.Getenv("BLIND"), ",")
	for name, kind := range chaos.Kinds {
		if !contains(blind, name) {
			jobs.Handle(runner, kind, rec.handler(name))
		}
	}
	if os.Getenv("TICKS") != "" {
		for name, when := range chaos.Schedules {
			runner.Schedule(jobs.Periodic{When: when, Job: chaos.Kinds[name].Job(chaos.Args{})})
		}
	}
	return runner
}

// setting is zero, the library's default, where the variable is not set.
func setting[T any](name string, parse func(string) (T, error)) (v T) {
	text := os.Getenv(name)
	if text == "" {
		return v
	}
	v, err := parse(text)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return v
}

func contains(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}
