package crashes

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
)

// Where a job can be.
const (
	Stream  = "stream"
	Delayed = "delayed"
	Dead    = "dead"
)

// A Place is where a job is, and as what it lies there.
type Place struct {
	Where  string
	Fields map[string]string
}

// A Holding is a job that is pending.
type Holding struct {
	Owner      string
	Deliveries int64
}

// State is all that a queue holds.
type State struct {
	Places   map[string][]Place // by the job's ID; what has none by its stream ID, what is no job by "raw:" and what it is
	Pending  map[string]Holding // by the same
	Bodiless int                // pending, and deleted
	Lasting  []string           // keys that never expire, and are neither a stream nor a sorted set
}

// Look reads the state of the queue under prefix. Nobody may be at work there.
func Look(ctx context.Context, rdb *redis.Client, prefix string) (*State, error) {
	s := &State{Places: map[string][]Place{}, Pending: map[string]Holding{}}
	names, err := s.stream(ctx, rdb, prefix+"jobs")
	return s, errors.Join(err,
		s.pending(ctx, rdb, prefix+"jobs", names),
		s.delayed(ctx, rdb, prefix+"delayed"),
		s.dead(ctx, rdb, prefix+"jobs:dead"),
		s.keys(ctx, rdb, prefix))
}

func (s *State) put(id, where string, m map[string]string) {
	s.Places[id] = append(s.Places[id], Place{where, m})
}

// stream returns what the entries' jobs are called.
func (s *State) stream(ctx context.Context, rdb *redis.Client, key string) (map[string]string, error) {
	messages, err := rdb.XRange(ctx, key, "-", "+").Result()
	names := map[string]string{}
	for _, message := range messages {
		m := flat(message.Values)
		names[message.ID] = called(m, message.ID)
		s.put(names[message.ID], Stream, m)
	}
	return names, err
}

func (s *State) pending(ctx context.Context, rdb *redis.Client, key string, names map[string]string) error {
	page, err := rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: key, Group: "workers", Start: "-", End: "+", Count: 10_000,
	}).Result()
	if err != nil && strings.Contains(err.Error(), "NOGROUP") {
		return nil
	}
	for _, p := range page {
		id, ok := names[p.ID]
		if !ok {
			s.Bodiless++
			continue
		}
		s.Pending[id] = Holding{p.Consumer, p.RetryCount}
	}
	return err
}

func (s *State) delayed(ctx context.Context, rdb *redis.Client, key string) error {
	members, err := rdb.ZRange(ctx, key, 0, -1).Result()
	for _, raw := range members {
		m, err := fields.ParseMember(raw)
		if err != nil {
			s.put("raw:"+raw, Delayed, nil)
			continue
		}
		s.put(called(m, "?"), Delayed, m)
	}
	return err
}

func (s *State) dead(ctx context.Context, rdb *redis.Client, key string) error {
	messages, err := rdb.XRange(ctx, key, "-", "+").Result()
	for _, message := range messages {
		m := flat(message.Values)
		id := called(m, message.ID)
		if raw, ok := m["raw"]; ok {
			id = "raw:" + raw
		}
		s.put(id, Dead, m)
	}
	return err
}

func (s *State) keys(ctx context.Context, rdb *redis.Client, prefix string) error {
	names, err := rdb.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return err
	}
	for _, key := range names {
		kind, err := rdb.Type(ctx, key).Result()
		if err != nil {
			return err
		}
		if kind == "stream" || kind == "zset" || kind == "none" {
			continue
		}
		ttl, err := rdb.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		if ttl == -1*time.Nanosecond {
			s.Lasting = append(s.Lasting, key)
		}
	}
	return nil
}

func flat(values map[string]any) map[string]string {
	m := make(map[string]string, len(values))
	for name, value := range values {
		m[name], _ = value.(string)
	}
	return m
}

// called is the ID of a job.
func called(m map[string]string, entry string) string {
	for _, name := range [...]string{"job_id", "outbox_id"} {
		if m[name] != "" {
			return m[name]
		}
	}
	return entry
}

// reason is why a dead letter says that it is one.
func (p Place) reason() string {
	for _, reason := range [...]string{Undecodable, UnknownKind, Poison} {
		if strings.HasPrefix(p.Fields["error"], reason+": ") && p.Fields["traceback"] == "" {
			return reason
		}
	}
	return Failed
}

// Why a job is dead-lettered.
const (
	Failed      = "failed"
	Undecodable = "undecodable"
	UnknownKind = "unknown kind"
	Poison      = "poison"
)
