package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// The kinds, and how each of them behaves once its run is recorded.
var behaviours = map[string]func(ctx context.Context, f jobs.Fields) error{
	"ok":    succeed,
	"noop":  succeed,
	"echo":  succeed,
	"sleep": sleep,
	"hog": func(_ context.Context, f jobs.Fields) error {
		return sleep(context.Background(), f)
	},
	"fail": func(context.Context, jobs.Fields) error {
		return errors.New("failed as told")
	},
	"flaky": flaky,
	"permanent": func(context.Context, jobs.Fields) error {
		return jobs.Permanent(errors.New("failed for good as told"))
	},
	"panic": func(context.Context, jobs.Fields) error {
		panic("panicked as told")
	},
	"goexit": func(context.Context, jobs.Fields) error {
		runtime.Goexit()
		return nil
	},
	"broken": func(context.Context, jobs.Fields) error {
		return brokenError{}
	},
	"kill": kill,
}

func succeed(context.Context, jobs.Fields) error { return nil }

// sleep takes field ms of time, or returns the context's error when that ends first.
func sleep(ctx context.Context, f jobs.Fields) error {
	ms, err := number(f, "ms")
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return nil
	}
}

func flaky(ctx context.Context, f jobs.Fields) error {
	fails, err := number(f, "fails")
	if err != nil {
		return err
	}
	if err := sleep(ctx, f); err != nil {
		return err
	}
	if job, _ := jobs.FromContext(ctx); job.Attempts < fails {
		return fmt.Errorf("failed as told: attempt %d of %d", job.Attempts+1, fails)
	}
	return nil
}

// kill ends this process as the kernel's memory killer would, whatever else runs in it.
func kill(_ context.Context, f jobs.Fields) error {
	if err := sleep(context.Background(), f); err != nil {
		return err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {} // nothing may be reported of this run
}

type brokenError struct{}

func (brokenError) Error() string { panic("this error has no text, as told") }

func number(f jobs.Fields, name string) (int, error) {
	n, err := strconv.Atoi(cmp.Or(f[name], "0"))
	if err != nil {
		return 0, fmt.Errorf("field %s: %w", name, err)
	}
	return n, nil
}

// A recorder writes down what ran, over a connection that no test of the jobs' own Redis cuts.
type recorder struct {
	rdb    *redis.Client
	worker string
}

// A record is one member of the lists ran and finished.
type record struct {
	Kind     string            `json:"kind"`
	ID       string            `json:"id"`
	Attempts int               `json:"attempts"` // made before this run
	Worker   string            `json:"worker"`   // WORKER, or the host name
	PID      int               `json:"pid"`
	AtMS     int64             `json:"at_ms"`  // since the epoch, by this machine's clock
	Fields   map[string]string `json:"fields"` // the job's own arguments, names and values in base64
}

func newRecorder(worker string) (recorder, error) {
	o, err := redisOptions("RECORD_URL", "REDIS_URL")
	if err != nil {
		return recorder{}, err
	}
	o.MaxRetries = -1 // a command that is sent again could record one run twice
	if worker == "" {
		worker, err = os.Hostname()
	}
	return recorder{rdb: redis.NewClient(o), worker: worker}, err
}

func (r recorder) handler(kind string) func(ctx context.Context, f jobs.Fields) error {
	behave := behaviours[kind]
	if kind == "noop" {
		return behave
	}
	return func(ctx context.Context, f jobs.Fields) error {
		if err := r.append(ctx, "ran", f); err != nil {
			return err
		}
		if err := behave(ctx, f); err != nil {
			return err
		}
		return r.append(ctx, "finished", f)
	}
}

// append is tried at least once, even if ctx is over, and then until it works or ctx ends: a record that is missing
// must not look like a run that never was.
func (r recorder) append(ctx context.Context, list string, f jobs.Fields) error {
	line, err := r.record(ctx, f)
	if err != nil {
		return err
	}
	quiet := context.WithoutCancel(ctx)
	for err = r.rdb.RPush(quiet, list, line).Err(); err != nil; err = r.again(quiet, list, line) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("record in %s: %w; %w", list, err, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// again appends line unless it is there already, since what failed may have been the reply alone.
func (r recorder) again(ctx context.Context, list, line string) error {
	latest, err := r.rdb.LRange(ctx, list, -1000, -1).Result()
	if err != nil || slices.Contains(latest, line) {
		return err
	}
	return r.rdb.RPush(ctx, list, line).Err()
}

func (r recorder) record(ctx context.Context, f jobs.Fields) (string, error) {
	job, ok := jobs.FromContext(ctx)
	if !ok {
		return "", errors.New("no job in the handler's context")
	}
	fields := make(map[string]string, len(f))
	for name, value := range f {
		fields[encode(name)] = encode(value)
	}
	line, err := json.Marshal(record{
		Kind: job.Kind, ID: job.ID, Attempts: job.Attempts,
		Worker: r.worker, PID: os.Getpid(), AtMS: time.Now().UnixMilli(), Fields: fields,
	})
	return string(line), err
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
