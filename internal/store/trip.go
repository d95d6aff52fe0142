package store

import (
	"context"
	"fmt"
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
	done  []any       // of the next script
	ended **redis.Cmd // that script
	fetch func() ([]Entry, error)
}

// Reply is what became of one outcome.
type Reply struct{ cmd **redis.Cmd }

// Trip begins a round trip.
func (s *Store) Trip(ctx context.Context) *Trip {
	return &Trip{s: s, ctx: ctx, pipe: s.rdb.Pipeline()}
}

// Done settles an entry whose handler ended well. A thousand of a trip are one script.
func (t *Trip) Done(id string) Reply {
	if len(t.done) == batch {
		t.settle()
	}
	if len(t.done) == 0 {
		t.ended = new(*redis.Cmd)
	}
	t.done = append(t.done, id)
	return Reply{t.ended}
}

// settle puts the script for what is done into the trip.
func (t *Trip) settle() {
	if len(t.done) == 0 {
		return
	}
	cmd := eval(t.ctx, done, []string{t.s.keys.Stream}, append([]any{Group}, t.done...)...)
	*t.ended = cmd.Cmd
	_ = t.pipe.Process(t.ctx, cmd)
	t.done = t.done[:0]
}

// Retry moves an entry to delayed, as job, due after delay.
func (t *Trip) Retry(id string, job map[string]string, delay time.Duration) Reply {
	return t.script(retry, []string{t.s.keys.Stream, t.s.keys.Delayed},
		Group, t.s.consumer, id, micros(delay), fields.Member(job))
}

// Bury moves an entry to the dead letters, of which keep are kept.
func (t *Trip) Bury(id string, letter map[string]string, keep int) Reply {
	return t.script(bury, []string{t.s.keys.Stream, t.s.keys.Dead},
		t.s.buryArgs(Pending{ID: id, Owner: t.s.consumer}, 0, keep, letter)...)
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
	t.settle()
	cmd := t.s.read(t.ctx, n, -1)
	if t.s.divides() {
		// A cluster's client must see what is answered: it follows redirections.
		_ = t.pipe.Process(t.ctx, onceStreams{cmd})
		t.fetch = func() ([]Entry, error) { return fetched(cmd) }
		return
	}
	raw := redis.NewRawCmd(t.ctx, cmd.Args()...)
	_ = t.pipe.Process(t.ctx, onceRaw{raw})
	t.fetch = func() ([]Entry, error) {
		reply, err := raw.Result()
		if err != nil {
			return nil, err
		}
		return readEntries(reply)
	}
}

// Go makes the trip. Its error is that of the fetch; where nothing was to be fetched,
// that of the connection.
func (t *Trip) Go() ([]Entry, error) {
	t.settle()
	_, err := t.pipe.Exec(t.ctx)
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
	return Reply{&cmd.Cmd}
}

// Written says whether the outcome was written; not, without an error, where the entry
// is not ours any more. With an error it is to be written again.
func (r Reply) Written() (bool, error) {
	reply, err := (*r.cmd).Result()
	if err != nil {
		return false, err
	}
	n, ok := reply.(int64)
	return !ok || n != 0, nil
}

// Buried is Written for a dead letter: its stream ID ("" where the entry is not ours
// any more), and how many old dead letters fell out.
func (r Reply) Buried() (letter string, dropped int64, err error) {
	return buried((*r.cmd).Result())
}

func buried(reply any, err error) (string, int64, error) {
	if err != nil {
		return "", 0, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return "", 0, nil
	}
	dropped, _ := list[1].(int64)
	return fmt.Sprint(list[0]), dropped, nil
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
