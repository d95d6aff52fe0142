package store

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is what the server that has the queue says of itself in INFO, and in CONFIG of what
// is not there: both may be forbidden, and then less is known.
func (s *Store) Server(ctx context.Context) (map[string]string, error) {
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	info, err := node.Info(ctx).Result()
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			known[name] = value
		}
	}
	for _, name := range [...]string{"save", "appendfsync"} {
		config, err := node.ConfigGet(ctx, name).Result()
		if value, ok := config[name]; ok && err == nil {
			known[name] = value
		}
	}
	return known, err
}

// node is a client of the server that has the queue.
func (s *Store) node(ctx context.Context) (redis.UniversalClient, error) {
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, s.keys.Stream)
	}
	return s.rdb, nil
}

// Skew is Redis's clock, and how far this machine's is ahead of it, to half of what it took
// to ask.
func (s *Store) Skew(ctx context.Context) (now time.Time, ahead time.Duration, err error) {
	asked := time.Now()
	now, err = s.Now(ctx)
	half := time.Since(asked) / 2
	if ahead = asked.Add(half).Sub(now); ahead.Abs() <= half {
		ahead = 0
	}
	return now, ahead, err
}

// A KeyType is what lies under a key, and what should: "none" is nothing.
type KeyType struct{ Key, Is, Want string }

// Types are those of the queue's keys.
func (s *Store) Types(ctx context.Context) ([]KeyType, error) {
	k := s.keys
	all := []KeyType{
		{Key: k.Stream, Want: "stream"}, {Key: k.Delayed, Want: "zset"}, {Key: k.Dead, Want: "stream"},
		{Key: k.Suspect, Want: "string"}, {Key: k.Audit, Want: "stream"},
	}
	for i := range all {
		is, err := s.rdb.Type(ctx, all[i].Key).Result()
		if err != nil {
			return nil, err
		}
		all[i].Is = is
	}
	return all, nil
}

// HasGroup says whether the stream is there, and its group.
func (s *Store) HasGroup(ctx context.Context) (stream, group bool, err error) {
	groups, err := s.rdb.XInfoGroups(ctx, s.keys.Stream).Result()
	if err != nil && noKey(err) {
		return false, false, nil
	}
	for _, g := range groups {
		group = group || g.Name == Group
	}
	return err == nil, group, err
}
