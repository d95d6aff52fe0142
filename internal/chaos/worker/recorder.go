package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/chaos"
)

// A recorder writes down what happens, before it goes on. It would rather end the process than leave something out.
type recorder struct {
	rdb    *redis.Client
	list   string
	worker string
	runs   atomic.Int64
}

// newRecorder has a connection without deadlines: after a pause of this process the answer is there, and a deadline
// would have passed.
func newRecorder() (*recorder, error) {
	o, err := redis.ParseURL(os.Getenv("RECORD_URL"))
	if err != nil {
		return nil, fmt.Errorf("RECORD_URL: %w", err)
	}
	o.MaxRetries, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = -1, -1, -1, time.Hour
	return &recorder{rdb: redis.NewClient(o), list: cmp.Or(os.Getenv("RECORDS"), "records"), worker: os.Getenv("WORKER")}, nil
}

// must ends the process where something could not be recorded.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker: not recorded:", err)
		os.Exit(exitMute)
	}
}

func (r *recorder) write(rec chaos.Record) {
	rec.Worker = r.worker
	line, err := json.Marshal(rec)
	must(err)
	must(r.rdb.RPush(context.Background(), r.list, line).Err())
}

// handler is the handler of a kind: it records its run's beginning, works, and records what it is about to do.
func (r *recorder) handler(kind string) func(ctx context.Context, a chaos.Args) error {
	behave := behaviours[kind]
	return func(ctx context.Context, a chaos.Args) error {
		job, _ := jobs.FromContext(ctx)
		rec := chaos.Record{
			What: chaos.Began, Run: int(r.runs.Add(1)), At: time.Now().UnixMicro(),
			Job: job.ID, Kind: kind, Generation: a.Generation, Attempts: job.Attempts,
		}
		if !job.Tick.IsZero() {
			rec.Tick = job.Tick.Unix()
		}
		r.write(rec)
		run := run{rec: r, job: job, args: a}
		if kind == chaos.Shaky {
			run.begun = r.count(run)
		}
		e := labour(ctx, a.Work)
		if e.outcome == "" {
			e = succeeds()
			if behave != nil && a.Generation < a.Fixed {
				e = behave(ctx, run)
			}
		}
		rec.What, rec.At, rec.Outcome = chaos.Ended, time.Now().UnixMicro(), e.outcome
		r.write(rec)
		return e.do()
	}
}

// count is how often it was called for a job in a generation, this time included.
func (r *recorder) count(of run) int {
	n, err := r.rdb.Incr(context.Background(), fmt.Sprintf("count:%s:%d", of.job.ID, of.args.Generation)).Result()
	must(err)
	return int(n)
}

// watch records when this process stood still, by a clock that ticks each 50 ms, and its vitals each second.
func (r *recorder) watch() {
	last := time.Now()
	for n := 0; ; n++ {
		time.Sleep(50 * time.Millisecond)
		now := time.Now()
		if now.Sub(last) > chaos.Noticed {
			go r.write(chaos.Record{What: chaos.Stalled, Since: last.UnixMicro(), At: now.UnixMicro()})
		}
		if n%20 == 0 {
			go r.vitals()
		}
		last = now
	}
}

// vitals are the process's goroutines, processor time and heap.
func (r *recorder) vitals() {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	line, err := json.Marshal(chaos.Vitals{
		Goroutines: runtime.NumGoroutine(),
		CPU:        time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
		Heap:       int(heap[0].Value.Uint64()),
	})
	must(err)
	must(r.rdb.HSet(context.Background(), "vitals", r.worker, line).Err())
}
