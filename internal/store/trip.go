package store

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
)

// Trip is one round trip of the consumer loop: outcomes on the way there, entries on
// the way back. Each outcome answers for itself; a lost reply leaves them all to be
// written again, which every script allows.
type Trip struct {
	s     *Store
	ctx   context.Context
	pipe  redis.Pipeliner
	done  bundle
	retry bundle
	bury  bundle
	keep  int // dead letters
	fetch func() ([]Entry, error)
}

// bundle are outcomes of one sort, which travel in one script as long as that is short.
type bundle struct {
	args []any
	n    int
	size int         // of the args in bytes, about
	cmd  **redis.Cmd // the script, once it is in the trip
}

// At most so many outcomes are one script, and about so many bytes: others wait meanwhile.
const (
	bundled = 100
	bulky   = 1 << 20
)

// Reply is what became of one outcome: the i-th of those in its script.
type Reply struct {
	cmd **redis.Cmd
	i   int
}

// Trip begins a round trip.
func (s *Store) Trip(ctx context.Context) *Trip {
	return &Trip{s: s, ctx: ctx, pipe: s.rdb.Pipeline()}
}

// Done settles an entry whose handler ended well. A thousand of a trip are one script.
func (t *Trip) Done(id string) Reply {
	if t.done.n == batch {
		t.sendDone()
	}
	return t.done.add(0, id)
}

// Retry moves an entry to delayed, as job, due after delay.
func (t *Trip) Retry(id string, job map[string]string, delay time.Duration) Reply {
	if t.retry.full() {
		t.sendRetry()
	}
	member := fields.Member(job)
	return t.retry.add(len(member), id, micros(delay), member)
}

// Bury moves an entry to the dead letters, of which keep are kept: the same number for all
// of a trip.
func (t *Trip) Bury(id string, letter map[string]string, keep int) Reply {
	if t.bury.full() {
		t.sendBury()
	}
	size := 0
	for name, value := range letter {
		size += len(name) + len(value)
	}
	t.keep = keep
	return t.bury.add(size, buryArgs(id, letter)...)
}

func (b *bundle) full() bool { return b.n == bundled || b.size >= bulky }

func (b *bundle) add(size int, args ...any) Reply {
	if b.n == 0 {
		b.cmd = new(*redis.Cmd)
	}
	b.args, b.n, b.size = append(b.args, args...), b.n+1, b.size+size
	return Reply{b.cmd, b.n - 1}
}

func (t *Trip) sendDone() { t.send(&t.done, done, []string{t.s.keys.Stream}, Group) }

func (t *Trip) sendRetry() {
	t.send(&t.retry, retry, []string{t.s.keys.Stream, t.s.keys.Delayed}, Group, t.s.consumer)
}

func (t *Trip) sendBury() {
	t.send(&t.bury, bury, []string{t.s.keys.Stream, t.s.keys.Dead},
		buryHead(Pending{Owner: t.s.consumer}, 0, t.keep)...)
}

// send puts the script for what is bundled into the trip.
func (t *Trip) send(b *bundle, text string, keys []string, head ...any) {
	if b.n == 0 {
		return
	}
	cmd := eval(t.ctx, text, keys, append(head, b.args...)...)
	*b.cmd = cmd.Cmd
	_ = t.pipe.Process(t.ctx, cmd)
	*b = bundle{}
}

// sendAll puts all that is bundled into the trip.
func (t *Trip) sendAll() {
	t.sendDone()
	t.sendRetry()
	t.sendBury()
}

// Release puts an entry back as ready, as job.
func (t *Trip) Release(id string, job map[string]string) Reply {
	return t.script(release, []string{t.s.keys.Stream},
		flat([]any{Group, t.s.consumer, id}, fields.Flatten(job))...)
}

// HandOver lets an entry look as if its lease had run out, and as if the delivery, its
// number given, had not been made.
func (t *Trip) HandOver(id string, delivery int, lease time.Duration) Reply {
	return t.script(handover, []string{t.s.keys.Stream}, Group, t.s.consumer, id, max(delivery, 1), lease.Milliseconds())
}

// Fetch asks for up to n new entries, without waiting for any. It comes last.
func (t *Trip) Fetch(n int) {
	t.sendAll()
	if t.s.divides() {
		// A cluster's client must see what is answered: it follows redirections.
		cmd := t.s.read(t.ctx, n, -1)
		_ = t.pipe.Process(t.ctx, onceStreams{cmd})
		t.fetch = func() ([]Entry, error) { return fetched(cmd) }
		return
	}
	raw := redis.NewRawCmd(t.ctx, "xreadgroup", "group", Group, t.s.consumer, "count", n, "streams", t.s.keys.Stream, ">")
	_ = t.pipe.Process(t.ctx, onceRaw{raw})
	t.fetch = func() ([]Entry, error) {
		reply, err := raw.Result()
		if err != nil {
			return nil, err
		}
		entries, err := readEntries(reply)
		t.s.shed(t.ctx, err)
		return entries, err
	}
}

// Go makes the trip. Its error is that of the fetch; where nothing was to be fetched,
// that of the connection.
func (t *Trip) Go() ([]Entry, error) {
	t.sendAll()
	err := t.s.exec(t.ctx, t.pipe)
	if t.fetch != nil {
		return t.fetch()
	}
	if Refused(err) {
		err = nil // it is in its reply
	}
	return nil, err
}

// script puts an outcome's script into the trip.
func (t *Trip) script(text string, keys []string, args ...any) Reply {
	cmd := eval(t.ctx, text, keys, args...)
	_ = t.pipe.Process(t.ctx, cmd)
	return Reply{&cmd.Cmd, 0}
}

// Written says whether the outcome was written; not, without an error, where the entry
// is not ours any more. With an error it is to be written again.
func (r Reply) Written() (bool, error) {
	reply, err := (*r.cmd).Result()
	if err != nil {
		return false, err
	}
	if list, ok := reply.([]any); ok && r.i < len(list) {
		reply = list[r.i]
	}
	n, ok := reply.(int64)
	return !ok && reply != "" || n != 0, nil
}

// Buried is Written for a dead letter: its stream ID ("" where the entry is not ours
// any more), and how many old dead letters fell out. Of several that died in one script,
// the first tells for all.
func (r Reply) Buried() (letter string, dropped int64, err error) {
	reply, err := (*r.cmd).Slice()
	if err != nil || r.i+1 >= len(reply) {
		return "", 0, err
	}
	letter, _ = reply[r.i].(string)
	first := slices.IndexFunc(reply, func(letter any) bool { return letter != "" })
	if r.i == first {
		dropped, _ = reply[len(reply)-1].(int64)
	}
	return letter, dropped, nil
}

// Wait waits for up to n new entries, at most for as long as block.
func (s *Store) Wait(ctx context.Context, n int, block time.Duration) ([]Entry, error) {
	cmd := s.read(ctx, n, block)
	_ = s.rdb.Process(ctx, onceStreams{cmd})
	return fetched(cmd)
}

// read takes the command from a pipeline that is never sent: only there does a command
// get a read deadline that fits the blocking without being run on the spot.
func (s *Store) read(ctx context.Context, n int, block time.Duration) *redis.XStreamSliceCmd {
	return s.rdb.Pipeline().XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: Group, Consumer: s.consumer, Streams: []string{s.keys.Stream, ">"}, Count: int64(n), Block: block,
	})
}

func fetched(cmd *redis.XStreamSliceCmd) ([]Entry, error) {
	streams, err := cmd.Result()
	if err == redis.Nil {
		return nil, nil
	}
	return entries(streams), err
}

var (
	done     = script("done")
	retry    = script("retry")
	bury     = script("bury")
	release  = script("release")
	handover = script("handover")
)
