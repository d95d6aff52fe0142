package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tick is an instant at which a schedule is due, and the job that it becomes.
type Tick struct {
	Name       string
	At         time.Time
	Expression string
	Since      time.Time     // Redis's clock when this worker first looked at the schedule
	Lock       time.Duration // how long the tick is remembered
	Bookmark   time.Duration // how long the schedule is
	Stale      bool          // too late: it is only marked
	Entry      []string      // the job, as Item has it
}

// Tick enqueues ticks, each once however many workers try, and says for each what
// became of it: whether this call enqueued it, or why that is not known.
func (s *Store) Tick(ctx context.Context, ticks []Tick) []TickReply {
	const size = 100
	replies := make([]TickReply, 0, len(ticks))
	for len(ticks) > 0 {
		n := min(len(ticks), size)
		replies = append(replies, s.tick(ctx, ticks[:n])...)
		ticks = ticks[n:]
	}
	return replies
}

// TickReply is what became of one tick.
type TickReply struct {
	Enqueued bool
	Err      error
}

func (s *Store) tick(ctx context.Context, ticks []Tick) []TickReply {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(ticks))
	for i, t := range ticks {
		keys := []string{s.keys.Tick(t.Name, t.At), s.keys.Bookmark(t.Name), s.keys.Stream}
		cmd := eval(ctx, tick, keys, flat([]any{
			s.consumer, t.At.Unix(), t.Expression, score(t.Since),
			int64(t.Lock / time.Second), int64(t.Bookmark / time.Second), flag(t.Stale),
		}, t.Entry)...)
		cmds[i] = cmd.Cmd
		_ = pipe.Process(ctx, cmd)
	}
	_ = s.exec(ctx, pipe) // each answers for itself
	replies := make([]TickReply, len(ticks))
	for i, cmd := range cmds {
		replies[i].Enqueued, replies[i].Err = cmd.Bool()
	}
	return replies
}

var tick = script("tick")
