//go:build unix

package chaos

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

var soakJobs = flag.Int("soak.jobs", 20_000, "how many jobs of 1 KB TestSoak runs")

// whole is a kilobyte.
type whole struct{ Body string }

var soaked = jobs.NewKind[whole]("soaked", jobs.Policy{})

// A great many jobs go through one worker, and neither Redis nor the process is any larger for it.
func TestSoak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a great many jobs")
	}
	server := servers.NewRedis(t)
	rdb := server.Client(t)
	client := jobs.NewClient(rdb, jobs.Options{})
	var done atomic.Int64
	runner := jobs.NewRunner(client, jobs.Config{Slots: 64, Logger: slog.New(slog.DiscardHandler)})
	jobs.Handle(runner, soaked, func(context.Context, whole) error { done.Add(1); return nil })
	ctx, stop := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- runner.Run(ctx) }()

	const tenths = 10
	began, start := time.Now(), used(t, rdb)
	heaps := make([]int, tenths)
	for i := range heaps {
		soak(t, client, &done, *soakJobs*(i+1)/tenths)
		heaps[i] = heap()
	}
	took := time.Since(began)
	stop()
	if err := <-left; err != nil {
		t.Error(err)
	}
	end, entries := used(t, rdb), rdb.XLen(t.Context(), "jobs").Val()
	growth := heaps[tenths-1] - heaps[1] // the first tenth warms up
	fmt.Printf("soak: heap after each tenth, KB:%s\n", kilobytes(heaps))
	fmt.Printf("soak: jobs: %d of 1 KB in %.0f s, left in the stream: %d, Redis's memory: %.1f MB at the start, %.1f MB at the end, heap from the second tenth to the last: %+d KB\n",
		*soakJobs, took.Seconds(), entries, float64(start)/1e6, float64(end)/1e6, growth/1000)
	if entries != 0 || end-start > 10e6 || growth > 4e6 {
		t.Error("something grows")
	}
}

// soak enqueues until so many jobs are done, and keeps no more than a few thousand waiting.
func soak(t *testing.T, client *jobs.Client, done *atomic.Int64, until int) {
	const batch, most = 250, 5000
	body := strings.Repeat("x", 1000)
	sent := int(done.Load()) // all of the tenth before
	for deadline := time.Now().Add(10 * time.Minute); int(done.Load()) < until; {
		switch {
		case time.Now().After(deadline):
			t.Fatalf("only %d of %d jobs are done", done.Load(), until)
		case sent == until || sent-int(done.Load()) > most:
			time.Sleep(time.Millisecond)
			continue
		}
		list := make([]jobs.Job, min(batch, until-sent))
		for i := range list {
			list[i] = soaked.Job(whole{body})
		}
		if err := client.Enqueue(t.Context(), list...); err != nil {
			t.Fatal(err)
		}
		sent += len(list)
	}
}

// heap is what is reachable in this process.
func heap() int {
	runtime.GC()
	runtime.GC() // also what the first one freed of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func kilobytes(sizes []int) string {
	var b strings.Builder
	for _, n := range sizes {
		fmt.Fprintf(&b, " %d", n/1000)
	}
	return b.String()
}

// used is Redis's used_memory.
func used(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
