//go:build unix

package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// collect joins the journal with the records and with what is left in Redis.
func (f *fleet) collect() *History {
	ctx := context.Background()
	lines, err := f.rec.LRange(ctx, "records", 0, -1).Result()
	f.must(err)
	runs, stalls, err := Join(lines)
	f.must(err)
	h := f.journal.History
	h.Runs, h.Troubles = runs, append(h.Troubles, stalls...)
	h.Rest = Rest{Waiting: map[string]bool{}, Due: map[Tick]bool{}}
	letters, err := f.letters()
	f.must(err)
	for _, l := range letters {
		h.Rest.Letters = append(h.Rest.Letters, l.Letter)
	}
	f.collectWaiting(ctx, &h.Rest)
	f.collectKeys(ctx, &h.Rest)
	f.journal.Troubles = h.Troubles
	return &h
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// collectWaiting finds what is in the stream and in delayed.
func (f *fleet) collectWaiting(ctx context.Context, rest *Rest) {
	entries, err := f.rdb.XRange(ctx, "jobs", "-", "+").Result()
	f.must(err)
	for _, e := range entries {
		id, _ := e.Values["job_id"].(string)
		rest.Waiting[id] = true
		kind, _ := e.Values["kind"].(string)
		at, _ := e.Values["scheduled_at"].(string)
		if tick, err := time.Parse(time.RFC3339, at); err == nil {
			rest.Due[Tick{kind, tick.Unix()}] = true
		}
	}
	for d, err := range f.direct.Delayed().List(ctx) {
		f.must(err)
		rest.Waiting[d.ID] = true
		if !d.Tick.IsZero() {
			rest.Due[Tick{d.Kind, d.Tick.Unix()}] = true
		}
	}
}

// collectKeys finds the ticks that Redis remembers, and the keys that would stay for ever.
func (f *fleet) collectKeys(ctx context.Context, rest *Rest) {
	keys := f.rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		kind, err := f.rdb.Type(ctx, key).Result()
		f.must(err)
		expires, err := f.rdb.TTL(ctx, key).Result()
		f.must(err)
		if kind != "stream" && kind != "zset" && expires < 0 {
			rest.Keys = append(rest.Keys, key)
		}
		if name, second, ok := strings.Cut(strings.TrimPrefix(key, "sched:"), ":"); ok && strings.HasPrefix(key, "sched:") {
			at, err := strconv.ParseInt(second, 10, 64)
			f.must(err)
			rest.Ticks = append(rest.Ticks, Tick{name, at})
		}
	}
	f.must(keys.Err())
}

// aof is the file that a Redis of appendfsync everysec appends to, and how long it was when.
type aof struct {
	path string
	mu   sync.Mutex
	was  []sample
}

type sample struct {
	at   time.Time
	size int64
}

// watchFile measures the file until ctx ends.
func (f *fleet) watchFile(ctx context.Context, all *sync.WaitGroup) *aof {
	dir, err := f.rdb.ConfigGet(ctx, "dir").Result()
	f.must(err)
	files, err := filepath.Glob(filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"))
	f.must(err)
	if len(files) != 1 {
		f.Fatalf("append-only files: %q; Redis 7 has one", files)
	}
	a := &aof{path: files[0]}
	all.Go(func() {
		for ; ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
			a.measure()
		}
	})
	return a
}

func (a *aof) measure() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if info, err := os.Stat(a.path); err == nil {
		a.was = append(a.was, sample{time.Now(), info.Size()})
	}
}

// cut shortens the file to what it was a second ago, as a machine that loses its power may, and returns when that was.
// What was cut in the middle of a command Redis leaves out itself.
func (a *aof) cut() (time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := time.Now().Add(-time.Second)
	to := sample{}
	for _, s := range a.was {
		if s.at.Before(last) {
			to = s
		}
	}
	a.was = nil // it grows from here
	if to.at.IsZero() {
		return last, nil // it has just been cut
	}
	return to.at, os.Truncate(a.path, to.size)
}
