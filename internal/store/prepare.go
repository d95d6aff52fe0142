package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	errNoFields   = errors.New("it has no fields")
	errManyFields = fmt.Errorf("it has more than %d fields", MaxFields)
)

// FinalError is one that waiting does not mend: a right that is missing, a wrong
// password, an old server, a key of the wrong type.
type FinalError struct{ Err error }

func (e *FinalError) Error() string { return e.Err.Error() }
func (e *FinalError) Unwrap() error { return e.Err }

func final(format string, args ...any) error {
	return &FinalError{fmt.Errorf(format, args...)}
}

// MakeGroup makes the stream and its group where they are missing. The group begins at
// the stream's beginning: what was enqueued before the first worker is delivered too.
func (s *Store) MakeGroup(ctx context.Context) error {
	err := s.rdb.XGroupCreateMkStream(ctx, s.keys.Stream, Group, "0").Err()
	if err != nil && strings.Contains(err.Error(), "BUSYGROUP") {
		return nil
	}
	return err
}

// Prepare makes the group, and finds out before anything is fetched whether this
// server and this user can do what a worker needs. A *FinalError names what is missing.
func (s *Store) Prepare(ctx context.Context) error {
	want := s.ofQueues()
	want[s.keys.Suspect] = "string"
	for _, key := range []string{s.keys.Bookmark(":probe"), s.keys.Worker(":probe"), s.keys.Minute(time.Unix(0, 0))} {
		want[key] = "none" // asked for the right alone
	}
	if err := s.types(ctx, want); err != nil {
		return err
	}
	if err := s.MakeGroup(ctx); err != nil {
		return judge("XGROUP", err)
	}
	if err := s.tryAll(ctx, s.ofWorkers()); err != nil {
		return err
	}
	_, err := s.Now(ctx) // what is written from now on has a time
	return err
}

// PrepareRelay finds out whether this server and this user can do what an outbox's relay
// needs, as Prepare does for a worker. It makes nothing.
func (s *Store) PrepareRelay(ctx context.Context) error {
	if err := s.types(ctx, s.ofQueues()); err != nil {
		return err
	}
	if err := s.tryAll(ctx, s.ofRelays()); err != nil {
		return err
	}
	tx := s.rdb.TxPipeline()
	size := tx.XLen(ctx, s.keys.Dead)
	_, err := tx.Exec(ctx)
	if redis.HasErrorPrefix(size.Err(), "OOM") { // refused in a transaction, though it reads
		return nil
	}
	return judge("MULTI and EXEC", err)
}

// ofQueues are the keys that hold jobs, and what they should hold.
func (s *Store) ofQueues() map[string]string {
	k := s.keys
	return map[string]string{k.Stream: "stream", k.Delayed: "zset", k.Dead: "stream", k.probe: "none"}
}

// divides says that the client itself divides keys among servers.
func (s *Store) divides() bool {
	switch s.rdb.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}

func tagged(key string) bool {
	_, rest, ok := strings.Cut(key, "{")
	return ok && strings.Index(rest, "}") > 0
}

// types refuses keys that hold something else, or that a cluster would scatter.
func (s *Store) types(ctx context.Context, want map[string]string) error {
	if s.divides() && !tagged(s.keys.Stream) {
		return final("a cluster needs a hash tag in the prefix, as in %q, so that all keys of a queue are in one slot", "{stagedoor}:")
	}
	for key, kind := range want {
		is, err := s.rdb.Type(ctx, key).Result()
		if redis.HasErrorPrefix(err, "MOVED") && !s.divides() {
			return final("this server is one of a cluster: it needs redis.NewClusterClient, and a hash tag in the prefix, as in %q: %w", "{stagedoor}:", err)
		}
		if err != nil {
			return judge("TYPE "+key, err)
		}
		if is != kind && is != "none" {
			return final("key %q holds a %s, and should hold a %s", key, is, kind)
		}
	}
	return nil
}

// ofWorkers are the commands of a worker, each in a form that changes nothing: a read makes
// a consumer, which is nobody's and goes again, so that a worker that never comes to work
// leaves none.
func (s *Store) ofWorkers() [][]any {
	const nobody = "\x00nobody"
	k := s.keys
	return [][]any{
		{"time"},
		{"xreadgroup", "group", Group, nobody, "count", 1, "streams", k.Stream, "0"},
		{"xack", k.Stream, Group, "0-0"},
		{"xdel", k.Stream, "0-0"},
		{"xlen", k.Stream},
		{"xrange", k.Stream, "0-0", "0-0"},
		{"xadd", k.probe, "nomkstream", "*", "kind", "probe"},
		{"xpending", k.Stream, Group, "idle", 1, "-", "+", 1},
		{"xclaim", k.Stream, Group, nobody, 1, "0-0", "justid"},
		{"xinfo", "groups", k.Stream},
		{"xinfo", "consumers", k.Stream, Group},
		{"xgroup", "createconsumer", k.Stream, Group, nobody},
		{"xgroup", "delconsumer", k.Stream, Group, nobody},
		{"zadd", k.Delayed, "xx", 0, "\x00nothing"},
		{"zrem", k.Delayed, "\x00nothing"},
		{"zscore", k.Delayed, "\x00nothing"},
		{"zrange", k.Delayed, "-inf", "(-inf", "byscore", "limit", 0, 1},
		{"get", k.probe},
		{"set", k.probe, "", "xx", "ex", 1},
		{"pexpire", k.probe, 1},
		{"del", k.probe},
		{"exists", k.probe},
		{"hget", k.probe, ""},
		{"hexists", k.probe, ""},
		{"expire", k.probe, 1},
		{"zcard", k.Delayed},
		{"xtrim", k.probe, "maxlen", "=", 0},
		{"eval", "return 1", 6, k.Stream, k.Delayed, k.Dead, k.Suspect, k.Worker(":probe"), k.Minute(time.Unix(0, 0))},
		// These have no form that changes nothing: what they make is gone when the script ends.
		{"eval", passing("HSET"), 1, k.probe},
		{"eval", passing("HINCRBY"), 1, k.probe},
	}
}

// ofRelays are the commands of a relay, in such forms.
func (s *Store) ofRelays() [][]any {
	k := s.keys
	return [][]any{
		{"time"},
		{"xadd", k.probe, "nomkstream", "*", "kind", "probe"},
		{"zadd", k.Delayed, "xx", 0, "\x00nothing"},
		{"xlen", k.Dead},
		{"eval", "return 1", 1, k.Dead},
	}
}

// tryAll tries each command once.
func (s *Store) tryAll(ctx context.Context, tries [][]any) error {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(tries))
	for i, args := range tries {
		cmds[i] = pipe.Do(ctx, args...)
	}
	_ = s.exec(ctx, pipe) // each answers for itself
	for i, cmd := range cmds {
		if err := judge(tried(tries[i]), cmd.Err()); err != nil {
			return err
		}
	}
	return nil
}

// passing is a script that tries a command of a hash on a key that is gone when it ends. It
// deletes first: who may not do that is to leave nothing behind.
func passing(command string) string {
	return "-- " + command + "\nredis.call('DEL', KEYS[1]) redis.call('" + command + "', KEYS[1], '', 0) redis.call('DEL', KEYS[1])"
}

// tried is the command that a try is about.
func tried(args []any) string {
	if text, ok := args[min(1, len(args)-1)].(string); ok && strings.HasPrefix(text, "-- ") {
		name, _, _ := strings.Cut(text[3:], "\n")
		return name
	}
	return strings.ToUpper(args[0].(string))
}

// judge tells what time mends from what it does not.
func judge(command string, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	text := err.Error()
	switch {
	case redis.HasErrorPrefix(err, "OOM"):
		return nil // refused for now, and permitted
	case Forbidden(err):
		return final("this user may not run %s as a worker needs to: %w", command, err)
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return final("%w", err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return final("%s: %w", command, err)
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return final("a cluster needs a hash tag in the prefix: %w", err)
	case Refused(err) && (strings.Contains(text, "syntax error") || strings.Contains(text, "unknown command") || strings.Contains(text, "Invalid stream ID")):
		return final("Redis 6.2 or newer is needed: %s: %w", command, err)
	}
	return fmt.Errorf("%s: %w", command, err)
}
