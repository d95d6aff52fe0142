package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Stats is what a queue holds.
type Stats struct {
	Ready, Running, Delayed, Dead int64
	OldestReady                   time.Duration
}

// Stats counts. The figures are of one moment, but for the age of the oldest.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	keys := []string{s.keys.Stream, s.keys.Delayed, s.keys.Dead}
	reply, err := s.run(ctx, stats, keys, Group).Slice()
	if err != nil {
		return Stats{}, err
	}
	n := func(i int) int64 { v, _ := reply[i].(int64); return v }
	st := Stats{Ready: max(0, n(0)-n(1)), Running: n(1), Delayed: n(3), Dead: n(4)}
	if st.Ready == 0 {
		return st, nil
	}
	from := "-"
	if last, _ := reply[2].(string); last != "" {
		from = "(" + last
	}
	oldest, err := s.rdb.XRangeN(ctx, s.keys.Stream, from, "+", 1).Result()
	if err == nil && len(oldest) > 0 {
		clock := time.Unix(n(5), n(6)*1000)
		st.OldestReady = max(0, clock.Sub(Time(oldest[0].ID)))
	}
	return st, err
}

var stats = script("stats")

// undelivered is the beginning of the range of what no worker has fetched.
func undelivered(groups []redis.XInfoGroup) (from string) {
	for _, g := range groups {
		if g.Name == Group {
			return "(" + g.LastDeliveredID
		}
	}
	return "-"
}

// Ready returns what no worker has fetched: all of it.
func (s *Store) Ready(ctx context.Context) ([]Entry, error) {
	groups, err := s.rdb.XInfoGroups(ctx, s.keys.Stream).Result()
	if err != nil {
		if noKey(err) {
			err = nil
		}
		return nil, err
	}
	messages, err := s.rdb.XRange(ctx, s.keys.Stream, undelivered(groups), "+").Result()
	return entries([]redis.XStream{{Messages: messages}}), err
}

// noKey is how XINFO answers for a stream that is not there.
func noKey(err error) bool { return strings.Contains(err.Error(), "no such key") }

// Time is the moment at which Redis gave a stream ID.
func Time(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	ms, _ := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms)
}
