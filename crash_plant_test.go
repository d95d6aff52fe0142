//go:build !race

package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/calendar"
	"github.com/stagedoor/jobs/internal/crashes"
)

// What the scenarios of TestCrashPoints and TestLostReplies lay out for the victim, and what it does that is no worker.

// fieldsOf are a job's, with a kind and an ID unless pairs say otherwise; what is empty is left out.
func fieldsOf(pairs []string) jobs.Fields {
	m := jobs.Fields{"kind": "act", "job_id": act.Job(nil).ID, "attempts": "0"}
	for i := 0; i < len(pairs); i += 2 {
		if m[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(m, pairs[i])
		}
	}
	return m
}

// know adds a job to what is judged, and returns what it is called.
func (w *world) know(m jobs.Fields, entry string) string {
	id := m["job_id"]
	if id == "" {
		id = entry
	}
	attempts, err := strconv.Atoi(m["attempts"])
	w.check(err)
	w.known.Lock()
	defer w.known.Unlock()
	w.jobs = append(w.jobs, crashes.Job{ID: id, Attempts: attempts})
	w.entries[id] = entry
	return id
}

func (w *world) last() *crashes.Job { return &w.jobs[len(w.jobs)-1] }

// ready is what another program does: an entry in the stream.
func (w *world) ready(pairs ...string) string {
	m := fieldsOf(pairs)
	entry, err := w.rdb.XAdd(context.Background(), &redis.XAddArgs{Stream: w.key("jobs"), Values: m}).Result()
	w.check(err)
	return w.know(m, entry)
}

// ghost is a job that was delivered so often, the last time to a worker that has been silent for as long as idle.
func (w *world) ghost(deliveries int, idle time.Duration, pairs ...string) string {
	ctx, key := context.Background(), w.key("jobs")
	err := w.rdb.XGroupCreateMkStream(ctx, key, "workers", "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		w.check(err)
	}
	id := w.ready(pairs...)
	w.check(w.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "workers", Consumer: "ghost", Streams: []string{key, ">"}, Count: 1, Block: -1,
	}).Err())
	w.claim("ghost", id, idle, deliveries)
	return id
}

// claim makes a worker the owner of a job, if it is pending: delivered so often, silent for as long as idle.
func (w *world) claim(owner, id string, idle time.Duration, deliveries int) bool {
	claimed, err := w.rdb.Do(context.Background(), "xclaim", w.key("jobs"), "workers", owner, 0, w.entries[id],
		"idle", idle.Milliseconds(), "retrycount", deliveries, "justid").StringSlice()
	w.check(err)
	w.known.Lock()
	defer w.known.Unlock()
	for i := range w.jobs {
		if w.jobs[i].ID == id {
			w.jobs[i].Deliveries = deliveries
		}
	}
	return len(claimed) == 1
}

// delayed is a job that waits until it is due.
func (w *world) delayed(due time.Time, pairs ...string) string {
	m := fieldsOf(pairs)
	own := jobs.Fields{"do": m["do"]}
	w.check(w.client.Enqueue(context.Background(), jobs.Job{ID: m["job_id"], Kind: m["kind"], Fields: own}.At(due)))
	return w.know(m, "")
}

// rubbish is in delayed, and no job.
func (w *world) rubbish(raw string) {
	w.check(w.rdb.ZAdd(context.Background(), w.key("delayed"), redis.Z{Score: 1e8, Member: raw}).Err())
	w.jobs = append(w.jobs, crashes.Job{ID: "raw:" + raw, Buried: crashes.Undecodable})
}

// dead is a dead letter, which stays one unless it is replayed.
func (w *world) dead() (entry string) {
	m := fieldsOf([]string{"do", "die", "attempts", "2", "error", errDo.Error(), "traceback", "render.go:88"})
	entry, err := w.rdb.XAdd(context.Background(), &redis.XAddArgs{Stream: w.key("jobs:dead"), Values: m}).Result()
	w.check(err)
	w.know(m, entry)
	w.last().Attempts, w.last().Stays = 0, crashes.Dead
	return entry
}

// schedule is one whose last tick was at the bookmark (zero: none), and whose next are ticks.
func (w *world) schedule(name string, when jobs.Schedule, bookmark time.Time, ticks ...time.Time) {
	job := act.Job(jobs.Fields{"do": "ok", "schedule": name})
	w.periodic = append(w.periodic, jobs.Periodic{Name: name, When: when, Job: job})
	for _, tick := range ticks {
		w.ticks = append(w.ticks, name+"@"+tick.UTC().Format(time.RFC3339))
	}
	if !bookmark.IsZero() {
		text := fmt.Sprint(bookmark.Unix(), " ", calendar.Expression(when))
		w.check(w.rdb.Set(context.Background(), w.key("sched:"+name), text, time.Hour).Err())
	}
}

// hours is a period of some hours, and its last instant; the next one is some minutes away, at least.
func (w *world) hours() (last time.Time, period time.Duration) {
	now := w.now()
	for period = 3 * time.Hour; ; period += time.Hour {
		last = now.Truncate(time.Second).Add(-time.Duration(now.Unix()%int64(period/time.Second)) * time.Second)
		if last.Add(period).Sub(now) > 10*time.Minute {
			return last, period
		}
	}
}

// instants are a schedule of a few.
type instants []time.Time

func (i instants) Next(after time.Time) time.Time {
	for _, t := range i {
		if t.After(after) {
			return t
		}
	}
	return time.Time{}
}

func (i instants) String() string { return fmt.Sprint("at ", i[0].Unix()) }

func (w *world) now() time.Time {
	now, err := w.rdb.Time(context.Background()).Result()
	w.check(err)
	return now.UTC()
}

func (w *world) exists(key string) bool {
	n, err := w.rdb.Exists(context.Background(), w.key(key)).Result()
	w.check(err)
	return n == 1
}

// job is what the victim enqueues.
func (w *world) job() jobs.Job { return act.Job(jobs.Fields{"do": "ok"}) }

// enqueue is the victim's part as a producer. What it is told is held against what is then in.
func (w *world) enqueue(js ...jobs.Job) {
	err := w.process(w.victim, w.line).Enqueue(context.Background(), js...)
	in, unsure := len(js), 0
	if err != nil {
		e, ok := errors.AsType[*jobs.EnqueueError](err)
		if !ok || errors.Is(err, jobs.ErrUncertain) != (e.Uncertain > 0) {
			w.check(fmt.Errorf("enqueue: %w", err))
		}
		in, unsure = e.Queued, e.Uncertain
	}
	for i, j := range js {
		w.jobs = append(w.jobs, crashes.Job{ID: j.ID, Unsure: i >= in && i < in+unsure, Absent: i >= in+unsure})
	}
	w.whole(js[in : in+unsure])
}

// whole looks whether of jobs that may have been enqueued all are in, or none.
func (w *world) whole(js []jobs.Job) {
	n, places := 0, w.look().Places
	for _, j := range js {
		n += min(1, len(places[j.ID]))
	}
	if n != 0 && n != len(js) {
		w.t.Errorf("%s: of one transaction of %d jobs %d are in", w.name, len(js), n)
	}
}

// operate is the victim's part as an operator, on all jobs there are. Where it ends well they are not where they were.
func (w *world) operate(f func(context.Context, *jobs.Client) error) {
	err := f(context.Background(), w.process(w.victim, w.line))
	if err != nil {
		if !w.victim.Dead() && (!w.lossy || errors.Is(err, jobs.ErrNotFound)) {
			w.check(err)
		}
		return
	}
	for i := range w.jobs {
		w.jobs[i].Stays = ""
	}
}
