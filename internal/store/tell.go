package store

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Self is what a worker says of itself.
type Self struct {
	Host                 string
	PID, Slots, KeepDead int
	Lease                time.Duration
	Kinds                []string
	Started, Seen        time.Time
	Running              []Running
	Schedules            []Scheduled
}

// Running is a job in a slot, without its arguments.
type Running struct {
	Entry     string    `json:"entry"`
	ID        string    `json:"job_id"`
	Kind      string    `json:"kind"`
	Attempts  int       `json:"attempts"`
	Tick      time.Time `json:"scheduled_at,omitzero"`
	RequestID string    `json:"request_id,omitempty"`
	Trace     string    `json:"trace,omitempty"`
	Since     Epoch     `json:"since"`
}

// Scheduled is a schedule that a worker follows.
type Scheduled struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Expression string `json:"expression"`
	Next       Epoch  `json:"next,omitzero"`
	Job        string `json:"job"` // its fields, as a member of delayed
}

// Epoch is a time that is written as the scores are: in epoch seconds with a fraction.
type Epoch struct{ time.Time }

// MarshalJSON writes a number.
func (e Epoch) MarshalJSON() ([]byte, error) { return []byte(score(e.Time)), nil }

// UnmarshalJSON reads one.
func (e *Epoch) UnmarshalJSON(b []byte) error {
	seconds, err := strconv.ParseFloat(string(b), 64)
	e.Time = unscore(seconds)
	return err
}

// fields are the names and values of a worker's hash.
func (w Self) fields() []any {
	return []any{
		"host", w.Host, "pid", w.PID, "slots", w.Slots, "keep_dead", w.KeepDead, "lease", w.Lease.Milliseconds(),
		"kinds", list(w.Kinds), "started", score(w.Started), "seen", score(w.Seen),
		"running", list(w.Running), "schedules", list(w.Schedules),
	}
}

// list is JSON, an empty list where there is none.
func list[T any](of []T) string {
	if len(of) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(of) // of strings and numbers, which cannot fail
	return string(text)
}

// readSelf reads a worker's hash, which may be another program's or an older worker's: what
// cannot be read is zero.
func readSelf(m map[string]string) Self {
	n := func(name string) int { i, _ := strconv.Atoi(m[name]); return i }
	at := func(name string) time.Time {
		seconds, err := strconv.ParseFloat(m[name], 64)
		if err != nil {
			return time.Time{}
		}
		return unscore(seconds)
	}
	w := Self{
		Host: m["host"], PID: n("pid"), Slots: n("slots"), KeepDead: n("keep_dead"),
		Lease: time.Duration(n("lease")) * time.Millisecond, Started: at("started"), Seen: at("seen"),
	}
	_ = json.Unmarshal([]byte(m["kinds"]), &w.Kinds)
	_ = json.Unmarshal([]byte(m["running"]), &w.Running)
	_ = json.Unmarshal([]byte(m["schedules"]), &w.Schedules)
	return w
}

// News is what a worker tells beside the renewal of its leases.
type News struct {
	Self   *Self          // nil: as before
	Counts map[string]int // of "outcome:kind", since the last that were told; with Self, but for the last
	Number int64          // of these counts: told again after a lost reply, they count once
	Minute time.Time      // in which they count
	Depths bool           // may be wanted too
}

// Empty says that there are none.
func (n News) Empty() bool { return n.Self == nil && len(n.Counts) == 0 && !n.Depths }

// lives is for how many leases a worker's description outlives its last renewal.
const lives = 4

// Tell renews leases as Renew does, and tells news in the same round trip. Where told is an
// error the leases may be renewed and the news not; they are to be told again.
func (s *Store) Tell(ctx context.Context, ids []string, lease time.Duration, n News) (lost []string, told, err error) {
	pipe := s.rdb.Pipeline()
	var pages []*redis.Cmd
	for len(ids) > 0 {
		some := min(len(ids), batch)
		cmd := eval(ctx, renew, []string{s.keys.Stream}, flat([]any{Group, s.consumer}, ids[:some])...)
		pages, ids = append(pages, cmd.Cmd), ids[some:]
		_ = pipe.Process(ctx, cmd)
	}
	news := s.tell(ctx, lives*lease, n)
	_ = pipe.Process(ctx, news)
	_ = s.exec(ctx, pipe) // each answers for itself
	if told = news.Err(); len(pages) == 0 && told != nil && !Refused(told) {
		return nil, told, told
	}
	for _, cmd := range pages {
		page, err := cmd.StringSlice()
		if err != nil {
			return lost, told, err
		}
		lost = append(lost, page...)
	}
	return lost, told, nil
}

func (s *Store) tell(ctx context.Context, ttl time.Duration, n News) once {
	var self []any
	if n.Self != nil {
		self = n.Self.fields()
	}
	args := append([]any{Group, s.consumer, ttl.Milliseconds(), n.Number, flag(n.Depths), len(self)}, self...)
	for name, count := range n.Counts {
		args = append(args, name, count)
	}
	keys := []string{s.keys.Worker(s.consumer), s.keys.Minute(n.Minute), s.keys.Stream, s.keys.Delayed, s.keys.Dead}
	return eval(ctx, tell, keys, args...)
}

// Leave tells a worker's last news, takes its description away and, where it owns nothing,
// its consumer.
func (s *Store) Leave(ctx context.Context, news ...News) error {
	pipe := s.rdb.Pipeline()
	for i, n := range news {
		ttl := time.Minute
		if i == len(news)-1 {
			ttl = 0
		}
		_ = pipe.Process(ctx, s.tell(ctx, ttl, n))
	}
	_ = pipe.Process(ctx, s.forget(ctx, s.consumer))
	return s.exec(ctx, pipe)
}

// TrimDead drops what has been dead for longer than keep, and returns how many that were.
func (s *Store) TrimDead(ctx context.Context, keep time.Duration) (int, error) {
	return s.run(ctx, trim, []string{s.keys.Dead}, keep.Milliseconds()).Int()
}

var (
	tell = script("tell")
	trim = script("trim")
)
