package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// A Bridge moves tasks, one at a time, each in four steps: it is written down in a hash beside
// the jobs, deleted from asynq, enqueued as a job, and struck out of the hash. Asynq deletes
// only what no worker of its own runs, so that a task runs on one side. A bridge that dies
// leaves at most one task written down, and the next one finishes it: a task is never lost,
// and where it was cut off after the third step it is enqueued once more, under the same ID
// (archived tasks are looked for first, and are not doubled; delayed ones are the same member
// as long as they wait).
//
// One Bridge works at a time: it holds a lock, which outlives it by a few seconds.
type Bridge struct {
	source *asynq.Inspector
	rdb    redis.UniversalClient
	client *jobs.Client
	prefix string
	kinds  map[string]Convert

	dry   bool
	lease time.Duration // of the lock
	name  string        // in the lock
	close func()
}

// NewBridge returns a Bridge from asynq's queues to the jobs behind prefix.
func NewBridge(source *asynq.Inspector, rdb redis.UniversalClient, prefix string, kinds map[string]Convert) *Bridge {
	return &Bridge{
		source: source, rdb: rdb, prefix: prefix, kinds: kinds, lease: 10 * time.Second, name: rand.Text(),
		client: jobs.NewClient(rdb, jobs.Options{Prefix: prefix}),
	}
}

// A Report is what a pass has done.
type Report struct {
	Moved  map[string]int   // by state
	Left   map[string]int   // by type: it is in no Convert's charge
	Failed map[string]error // by task ID: it is where it was
	Others []string         // asynq's queues that were not named
	dry    bool
}

func (r Report) String() string {
	verb := "moved"
	if r.dry {
		verb = "would move"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d archived, %d retry, %d scheduled, %d pending", verb, r.Moved["archived"], r.Moved["retry"], r.Moved["scheduled"], r.Moved["pending"])
	for kind, n := range r.Left {
		fmt.Fprintf(&b, "\n  %d of type %q are left: nobody has said what becomes of them", n, kind)
	}
	for id, err := range r.Failed {
		fmt.Fprintf(&b, "\n  task %q is left: %q", id, err.Error())
	}
	if len(r.Others) > 0 {
		fmt.Fprintf(&b, "\n  not named, and left: %s", strings.Join(r.Others, ", "))
	}
	return b.String()
}

// Pass moves what there is now. It may be repeated as often as one likes. A queue that asynq does not have is an error,
// before anything moves but what a bridge that died had begun.
func (b *Bridge) Pass(ctx context.Context, queues ...string) (Report, error) {
	r := Report{Moved: map[string]int{}, Left: map[string]int{}, Failed: map[string]error{}, dry: b.dry}
	if !b.dry {
		if err := b.lock(ctx); err != nil {
			return r, err
		}
		defer b.unlock(ctx)
		if err := b.recover(ctx, r); err != nil {
			return r, err
		}
	}
	others, err := b.others(queues)
	if err != nil {
		return r, err
	}
	r.Others = others
	for _, queue := range queues {
		for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
			b.source.ListArchivedTasks, b.source.ListRetryTasks, b.source.ListScheduledTasks, b.source.ListPendingTasks,
		} {
			if err := b.each(ctx, r, queue, list); err != nil {
				return r, fmt.Errorf("queue %q: %w", queue, err)
			}
		}
	}
	return r, nil
}

// others are asynq's queues beside these, each of which it must have.
func (b *Bridge) others(queues []string) ([]string, error) {
	all, err := b.source.Queues()
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	for _, queue := range queues {
		if !slices.Contains(all, queue) {
			return nil, fmt.Errorf("asynq has no queue %q, only %s", queue, quoted(all))
		}
	}
	return slices.DeleteFunc(all, func(queue string) bool { return slices.Contains(queues, queue) }), nil
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	text := make([]string, len(names))
	for i, name := range names {
		text[i] = strconv.Quote(name)
	}
	return strings.Join(text, ", ")
}

// each moves what a list has. What stays there is passed by.
func (b *Bridge) each(ctx context.Context, r Report, queue string, list func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error)) error {
	const size = 100
	left := map[string]bool{}
	for page := 1; ; {
		tasks, err := list(queue, asynq.PageSize(size), asynq.Page(page))
		if err != nil || len(tasks) == 0 {
			return err
		}
		gone := 0
		for _, t := range tasks {
			if left[t.ID] {
				continue
			}
			stays, err := b.task(ctx, r, t)
			if err != nil {
				return err
			}
			if left[t.ID] = stays; !stays {
				gone++
			}
		}
		if gone == 0 { // else the page has been filled up from behind
			page++
		}
	}
}

// task moves one task, and says whether it stays where it is.
func (b *Bridge) task(ctx context.Context, r Report, t *asynq.TaskInfo) (stays bool, err error) {
	convert, ok := b.kinds[t.Type]
	if !ok {
		r.Left[t.Type]++
		return true, nil
	}
	if _, err := convert(t); err != nil {
		r.Failed[t.ID] = err
		return true, nil
	}
	if b.dry {
		r.Moved[t.State.String()]++
		return true, nil
	}
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	ctx = context.WithoutCancel(ctx) // what has begun is done
	if err := b.renew(ctx); err != nil {
		return true, err
	}
	if err := b.note(ctx, t); err != nil {
		return true, err
	}
	switch err := b.source.DeleteTask(t.Queue, t.ID); {
	case taken(err):
		return false, b.strike(ctx, t)
	case err != nil:
		return true, err
	}
	return false, b.finish(ctx, r, t)
}

// taken reports whether asynq did not delete a task since a worker of its own runs it or has
// run it. Of the first asynq has no error to compare with.
func taken(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || err != nil && strings.Contains(err.Error(), "in active state")
}

// finish makes a job of a task that is in asynq no more.
func (b *Bridge) finish(ctx context.Context, r Report, t *asynq.TaskInfo) error {
	convert, ok := b.kinds[t.Type]
	if !ok {
		return fmt.Errorf("task %q is under way, and its type %q has no Convert any more", t.ID, t.Type)
	}
	job, err := convert(t)
	if err != nil {
		return fmt.Errorf("task %q is under way: %w", t.ID, err)
	}
	job.ID = t.ID
	switch t.State {
	case asynq.TaskStateArchived:
		err = b.bury(ctx, job, t)
	case asynq.TaskStateScheduled, asynq.TaskStateRetry:
		err = b.client.Enqueue(ctx, job.At(t.NextProcessAt))
	default:
		err = b.client.Enqueue(ctx, job)
	}
	if err != nil {
		return fmt.Errorf("task %q is under way, and will be enqueued by the next pass: %w", t.ID, err)
	}
	r.Moved[t.State.String()]++
	return b.strike(ctx, t)
}

// bury writes a dead letter as the README's section on the wire has it: there is no other way
// to make one of what did not die here.
func (b *Bridge) bury(ctx context.Context, j jobs.Job, t *asynq.TaskInfo) error {
	entry := make([]any, 0, 2*len(j.Fields)+12)
	entry = append(entry, "kind", j.Kind)
	for name, value := range j.Fields {
		entry = append(entry, name, value)
	}
	tried, reason := t.Retried, "archived by hand"
	if t.LastErr != "" {
		tried, reason = t.Retried+1, t.LastErr
	}
	entry = append(entry, "job_id", j.ID, "attempts", tried)
	if j.Trace != "" {
		entry = append(entry, "trace", j.Trace)
	}
	story := fmt.Sprintf("archived by asynq in queue %q after %d of %d retries", t.Queue, t.Retried, t.MaxRetry)
	if !t.LastFailedAt.IsZero() {
		story += ", last failed at " + t.LastFailedAt.UTC().Format(time.RFC3339)
	}
	entry = append(entry, "error", reason[:min(len(reason), 8<<10)], "traceback", story)
	return b.rdb.XAdd(ctx, &redis.XAddArgs{Stream: b.prefix + "jobs:dead", Values: entry}).Err()
}

// recover finishes what a bridge that died had written down.
func (b *Bridge) recover(ctx context.Context, r Report) error {
	notes, err := b.rdb.HGetAll(ctx, b.key("notes")).Result()
	if err != nil {
		return err
	}
	for _, text := range notes {
		var t asynq.TaskInfo
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return fmt.Errorf("what is written down under %s: %w", b.key("notes"), err)
		}
		if err := b.resume(ctx, r, &t); err != nil {
			return err
		}
	}
	return nil
}

// resume goes on where a task was left: it may be in asynq yet, or not, or a job already.
func (b *Bridge) resume(ctx context.Context, r Report, t *asynq.TaskInfo) error {
	_, err := b.source.GetTaskInfo(t.Queue, t.ID)
	switch {
	case err == nil:
		return b.strike(ctx, t) // it was not deleted: it comes again, as it is by now
	case !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
		return err
	}
	if t.State == asynq.TaskStateArchived {
		for _, err := range b.client.DeadLetters().List(ctx, jobs.Filter{ID: t.ID}) {
			if err != nil {
				return err
			}
			r.Moved[t.State.String()]++
			return b.strike(ctx, t)
		}
	}
	return b.finish(ctx, r, t)
}

func (b *Bridge) key(name string) string { return b.prefix + "from-asynq:" + name }

// field is a task in the hash: asynq's IDs are unique in a queue.
func field(t *asynq.TaskInfo) string { return t.Queue + "/" + t.ID }

func (b *Bridge) note(ctx context.Context, t *asynq.TaskInfo) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return b.rdb.HSet(ctx, b.key("notes"), field(t), text).Err()
}

func (b *Bridge) strike(ctx context.Context, t *asynq.TaskInfo) error {
	return b.rdb.HDel(ctx, b.key("notes"), field(t)).Err()
}

var (
	renewScript  = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	unlockScript = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

// lock waits until no other bridge works.
func (b *Bridge) lock(ctx context.Context) error {
	for {
		ok, err := b.rdb.SetNX(ctx, b.key("lock"), b.name, b.lease).Result()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another bridge works: %w", ctx.Err())
		case <-time.After(b.lease / 10):
		}
	}
}

// renew keeps the lock, or says that it is lost.
func (b *Bridge) renew(ctx context.Context) error {
	kept, err := renewScript.Run(ctx, b.rdb, []string{b.key("lock")}, b.name, b.lease.Milliseconds()).Bool()
	if err == nil && !kept {
		err = errors.New("another bridge has begun")
	}
	return err
}

func (b *Bridge) unlock(ctx context.Context) {
	_ = unlockScript.Run(context.WithoutCancel(ctx), b.rdb, []string{b.key("lock")}, b.name).Err() // else it expires
}
