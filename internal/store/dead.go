package store

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
)

// Dead yields page after page of the dead letters between two stream IDs (both
// included, "-" and "+" for the ends), oldest first, until there is no more or see
// returns false.
func (s *Store) Dead(ctx context.Context, from, to string, see func([]Entry) bool) error {
	const size = 100
	for {
		page, err := s.rdb.XRangeN(ctx, s.keys.Dead, from, to, size).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		letters := make([]Entry, len(page))
		for i, message := range page {
			letters[i] = entry(message)
		}
		if !see(letters) || len(page) < size {
			return nil
		}
		from = after(page[len(page)-1].ID)
	}
}

// NewestDead is the stream ID of the youngest dead letter, "" where there is none.
func (s *Store) NewestDead(ctx context.Context) (string, error) {
	page, err := s.rdb.XRevRangeN(ctx, s.keys.Dead, "+", "-", 1).Result()
	if err != nil || len(page) == 0 {
		return "", err
	}
	return page[0].ID, nil
}

// DeadLetter reads one dead letter; ok is false where there is none under id.
func (s *Store) DeadLetter(ctx context.Context, id string) (e Entry, ok bool, err error) {
	page, err := s.rdb.XRangeN(ctx, s.keys.Dead, id, id, 1).Result()
	if err != nil || len(page) == 0 {
		return Entry{}, false, err
	}
	return entry(page[0]), true, nil
}

// Replay puts dead letters back on the stream, each by a script of its own, and says
// for each whether it was still there.
func (s *Store) Replay(ctx context.Context, letters []Entry) ([]bool, error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(letters))
	for i, letter := range letters {
		cmd := eval(ctx, replay, []string{s.keys.Dead, s.keys.Stream},
			flat([]any{letter.ID}, fields.Flatten(letter.Fields))...)
		cmds[i] = cmd.Cmd
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	replayed := make([]bool, len(letters))
	for i, cmd := range cmds {
		replayed[i], _ = cmd.Bool()
	}
	return replayed, err
}

// Discard deletes a dead letter, and says whether it was there.
func (s *Store) Discard(ctx context.Context, id string) (bool, error) {
	cmd := onceInt{redis.NewIntCmd(ctx, "xdel", s.keys.Dead, id)}
	err := s.rdb.Process(ctx, cmd)
	return cmd.Val() == 1, err
}

var replay = script("replay")
