// Package store is the only code that speaks Redis. Outside of it there are jobs,
// leases and outcomes; inside there are streams, sorted sets and one Lua script for
// each arrow in the life of a job, with a method of the same name.
//
// What holds for all of it: a script acts only if it still may, decided inside the
// script. No command that adds, moves or settles a job is ever resent by the client,
// whatever its options, since one that runs twice would enqueue twice; who calls decides
// what a lost reply means. (Plain reads may be resent, and the making of the group.)
// Scripts travel as text, so that a flushed script cache is never noticed.
package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Group is the one group of the stream.
const Group = "workers"

// MaxFields is how many fields an entry may have: Lua can hand only so many
// arguments to a command (5,113 on miniredis, 7,999 on Redis).
const MaxFields = 1000

// TooMany says that a job has more fields than that. Those that a runner may have added are
// not held against a job that was at the limit when it came.
func TooMany(m map[string]string) bool {
	n := len(m)
	for _, name := range [...]string{"job_id", "attempts", "last_error", "unknown_since"} {
		if _, ok := m[name]; ok {
			n--
		}
	}
	return n > MaxFields
}

// batch is how many entries, members or jobs one command names at most.
const batch = 1000

// Entry is a job as it lies in a stream.
type Entry struct {
	ID     string
	Fields map[string]string
}

// Keys are the names of one queue's keys. They come from nowhere else.
type Keys struct {
	Stream, Delayed, Dead, Suspect, Audit string
	// probe never exists: commands are tried on it.
	probe    string
	schedule string
	worker   string
	stats    string
}

// NewKeys puts prefix in front of every key.
func NewKeys(prefix string) Keys {
	return Keys{
		Stream:   prefix + "jobs",
		Delayed:  prefix + "delayed",
		Dead:     prefix + "jobs:dead",
		Suspect:  prefix + "jobs:suspect",
		Audit:    prefix + "jobs:audit",
		probe:    prefix + "jobs:probe",
		schedule: prefix + "sched:",
		worker:   prefix + "jobs:worker:",
		stats:    prefix + "jobs:stats:",
	}
}

// Bookmark is the key of the last tick of a schedule.
func (k Keys) Bookmark(name string) string { return k.schedule + name }

// Tick is the key of one tick of a schedule.
func (k Keys) Tick(name string, tick time.Time) string {
	return k.schedule + name + ":" + strconv.FormatInt(tick.Unix(), 10)
}

// Worker is the key under which a consumer describes itself.
func (k Keys) Worker(consumer string) string { return k.worker + consumer }

// Minute is the key of what happened in the minute of t.
func (k Keys) Minute(t time.Time) string {
	return k.stats + strconv.FormatInt(t.Unix()/60, 10)
}

// Store is one queue as one consumer sees it (or, without a consumer, a producer).
// It is safe for concurrent use.
type Store struct {
	rdb      redis.UniversalClient
	keys     Keys
	consumer string
	clocks   *clocks
}

// New returns the store of the queue under prefix.
func New(rdb redis.UniversalClient, prefix string) *Store {
	return &Store{rdb: rdb, keys: NewKeys(prefix), clocks: new(clocks)}
}

// As returns the same store as consumer sees it.
func (s *Store) As(consumer string) *Store {
	as := *s
	as.consumer = consumer
	return &as
}

// Keys returns the names of the queue's keys.
func (s *Store) Keys() Keys { return s.keys }

// Now is Redis's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	cmd := s.clock(ctx)
	_ = s.rdb.Process(ctx, cmd)
	return s.heard(moment(cmd.Cmd))
}

func (s *Store) clock(ctx context.Context) once {
	if s.divides() {
		return eval(ctx, now, []string{s.keys.Stream})
	}
	return once{redis.NewCmd(ctx, "time")}
}

// moment reads the reply of clock.
func moment(cmd *redis.Cmd) (time.Time, error) {
	list, err := cmd.Int64Slice()
	if err != nil {
		return time.Time{}, err
	}
	if len(list) != 2 {
		return time.Time{}, fmt.Errorf("an unexpected reply: %v", list)
	}
	return time.Unix(list[0], list[1]*1000), nil
}

var now = script("now")

// once, onceString and onceStreams are commands that the client does not resend.
type (
	once        struct{ *redis.Cmd }
	onceString  struct{ *redis.StringCmd }
	onceInt     struct{ *redis.IntCmd }
	onceStreams struct{ *redis.XStreamSliceCmd }
)

func (once) NoRetry() bool        { return true }
func (onceString) NoRetry() bool  { return true }
func (onceInt) NoRetry() bool     { return true }
func (onceStreams) NoRetry() bool { return true }

// flat appends names and values as a command takes them.
func flat(args []any, pairs []string) []any {
	for _, s := range pairs {
		args = append(args, s)
	}
	return args
}

// unflat reads names and values as a script returns them. Of a name given twice the
// last counts.
func unflat(reply any) (map[string]string, error) {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, fmt.Errorf("an unexpected reply: %v", reply)
	}
	m := make(map[string]string, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m, nil
}

func entries(streams []redis.XStream) []Entry {
	var all []Entry
	for _, stream := range streams {
		for _, message := range stream.Messages {
			all = append(all, entry(message))
		}
	}
	return all
}

func entry(message redis.XMessage) Entry {
	m := make(map[string]string, len(message.Values))
	for name, value := range message.Values {
		m[name], _ = value.(string)
	}
	return Entry{ID: message.ID, Fields: m}
}

// micros is d in whole microseconds, rounded up: a job is never early.
func micros(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return n
}

// score is t in epoch seconds with a fraction, rounded up to the microsecond.
func score(t time.Time) string {
	seconds, fraction := t.Unix(), (t.Nanosecond()+999)/1000
	if fraction == 1e6 {
		seconds, fraction = seconds+1, 0
	}
	if seconds < 0 {
		return strconv.FormatInt(seconds, 10)
	}
	return fmt.Sprintf("%d.%06d", seconds, fraction)
}

// unscore is the time that a score stands for, rounded up to the microsecond: less what a
// float cannot show of one.
func unscore(score float64) time.Time {
	const limit = 1 << 53
	score = max(min(score, limit), -limit)
	whole := int64(score)
	return time.Unix(whole, int64(math.Ceil((score-float64(whole))*1e6-0.25))*1000)
}

// Refused says that err is an answer of Redis itself: the command did not run.
func Refused(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok && !errors.Is(err, redis.Nil)
}

// Forbidden says that err is Redis's answer to a user who has not the right: to a command, to one in a transaction, or to
// one in a script.
func Forbidden(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || err != nil &&
		(strings.Contains(err.Error(), "because of: NOPERM") || strings.Contains(err.Error(), "user executing the script can't run"))
}

// NoGroup says that the stream or its group is not there (any more).
func NoGroup(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "UNBLOCKED"))
}

// Unsent says that err came up before anything was written.
func Unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || Stranger(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed)
}

// Stranger says that TLS has not let the connection begin: the server is not who it should be, or speaks none. (An alert
// may come later, too.)
func Stranger(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || plain
}
