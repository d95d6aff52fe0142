package store

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
)

// Item is a job that is to be enqueued: at once, In a while counted from Redis's now,
// or At a time.
type Item struct {
	Entry []string // names and values, in the order in which they are written
	In    time.Duration
	At    time.Time
}

// Enqueue adds items in their order, up to 1,000 in one transaction. It returns how many of the
// first are in, and how many of the next may be: what was sent and never answered, or is among
// others that were refused. With an error, what comes after those is not in.
func (s *Store) Enqueue(ctx context.Context, items []Item) (queued, uncertain int, err error) {
	for len(items) > 0 {
		n := min(len(items), batch)
		in, perhaps, err := s.enqueue(ctx, items[:n])
		queued += in
		if err != nil {
			return queued, perhaps, err
		}
		items = items[n:]
	}
	return queued, 0, nil
}

func (s *Store) enqueue(ctx context.Context, items []Item) (queued, uncertain int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	if len(items) == 1 {
		err = s.rdb.Process(ctx, s.add(ctx, items[0]))
	} else {
		queued, uncertain, err = s.enqueueAll(ctx, items)
	}
	switch {
	case err == nil:
		return len(items), 0, nil
	case (Refused(err) || Unsent(err)) && !noMulti(err):
		return queued, uncertain, err
	default:
		return 0, len(items), err
	}
}

// enqueueAll is all or none, unless Redis refuses some only when it carries them out: where one key of two has the wrong
// type, or what a script does is forbidden. Then the first that are in are queued, and what follows is uncertain, up to the
// last that is in.
func (s *Store) enqueueAll(ctx context.Context, items []Item) (queued, uncertain int, err error) {
	tx := s.rdb.TxPipeline()
	cmds := make([]redis.Cmder, len(items))
	for i, item := range items {
		cmds[i] = s.add(ctx, item)
		_ = tx.Process(ctx, cmds[i])
	}
	if _, err = tx.Exec(ctx); !Refused(err) {
		return 0, 0, err
	}
	for i, cmd := range cmds {
		switch refusal := cmd.Err(); {
		case refusal == nil && queued == i:
			queued++
		case refusal == nil:
			uncertain = i + 1 - queued
		case !redis.HasErrorPrefix(refusal, "EXECABORT"):
			err = refusal // the reason of its own, not "discarded because of previous errors"
		}
	}
	s.shed(ctx, err)
	return queued, uncertain, err
}

// noMulti says that Redis has refused MULTI itself, to a user who lacks the right. It then carries out what follows one by
// one, and go-redis leaves those answers unread: what was enqueued may be in.
func noMulti(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'multi'")
}

// add is the one command that enqueues one item.
func (s *Store) add(ctx context.Context, item Item) redis.Cmder {
	switch {
	case !item.At.IsZero():
		args := []any{"zadd", s.keys.Delayed, "nx", score(item.At), fields.Member(fields.Map(item.Entry))}
		return onceInt{redis.NewIntCmd(ctx, args...)}
	case item.In > 0:
		return eval(ctx, delay, []string{s.keys.Delayed}, micros(item.In), fields.Member(fields.Map(item.Entry)))
	default:
		args := make([]any, 0, 3+len(item.Entry))
		args = append(args, "xadd", s.keys.Stream, "*")
		return onceString{redis.NewStringCmd(ctx, flat(args, item.Entry)...)}
	}
}

var delay = script("delay")
