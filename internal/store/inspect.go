package store

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Worker is a consumer, and what it says of itself.
type Worker struct {
	Name string
	Owns int64
	Self // Seen is zero where there is no (living) description
}

// Workers returns the consumers of the group, by name.
func (s *Store) Workers(ctx context.Context) ([]Worker, error) {
	consumers, err := s.rdb.XInfoConsumers(ctx, s.keys.Stream, Group).Result()
	if err != nil {
		if NoGroup(err) || noKey(err) {
			err = nil
		}
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	selves := make([]*redis.MapStringStringCmd, len(consumers))
	for i, c := range consumers {
		selves[i] = pipe.HGetAll(ctx, s.keys.Worker(c.Name))
	}
	if err := whole(pipe.Exec(ctx)); err != nil {
		return nil, err
	}
	workers := make([]Worker, len(consumers))
	for i, c := range consumers {
		workers[i] = Worker{Name: c.Name, Owns: c.Pending, Self: readSelf(selves[i].Val())}
	}
	slices.SortFunc(workers, func(a, b Worker) int { return strings.Compare(a.Name, b.Name) })
	return workers, nil
}

// whole is the error of a pipeline of reads that is not one reply's own: what is missing or
// of another type is as if it were not there.
func whole(_ []redis.Cmder, err error) error {
	if err == redis.Nil || redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil
	}
	return err
}

// Last is the last tick of a schedule that was dealt with, and by whom, where that was a
// worker that enqueued it.
type Last struct {
	Tick time.Time
	By   string
}

// Lasts returns the last ticks of schedules, by name.
func (s *Store) Lasts(ctx context.Context, names []string) (map[string]Last, error) {
	marks, err := s.gets(ctx, names, s.keys.Bookmark)
	if err != nil {
		return nil, err
	}
	lasts := map[string]Last{}
	for name, mark := range marks {
		text, _, _ := strings.Cut(mark, " ")
		if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
			lasts[name] = Last{Tick: time.Unix(seconds, 0)}
		}
	}
	by, err := s.gets(ctx, names, func(name string) string { return s.keys.Tick(name, lasts[name].Tick) })
	for name, last := range lasts {
		lasts[name] = Last{Tick: last.Tick, By: by[name]}
	}
	return lasts, err
}

// gets returns what lies under the keys of names, where something does.
func (s *Store) gets(ctx context.Context, names []string, key func(string) string) (map[string]string, error) {
	pipe := s.rdb.Pipeline()
	cmds := map[string]*redis.StringCmd{}
	for _, name := range names {
		cmds[name] = pipe.Get(ctx, key(name))
	}
	if len(cmds) == 0 {
		return nil, nil
	}
	err := whole(pipe.Exec(ctx))
	found := map[string]string{}
	for name, cmd := range cmds {
		if value := cmd.Val(); value != "" {
			found[name] = value
		}
	}
	return found, err
}

// Minute is what is known of a minute: counts of "outcome:kind", and depths where Counted.
type Minute struct {
	At      time.Time
	Counted bool
	Depths  Stats
	Counts  map[string]int64
}

// History returns the minutes between two times of which something is known.
func (s *Store) History(ctx context.Context, from, to time.Time) ([]Minute, error) {
	const size = 100
	var all []Minute
	for from = from.Truncate(time.Minute); !from.After(to); from = from.Add(size * time.Minute) {
		pipe := s.rdb.Pipeline()
		cmds := make([]*redis.MapStringStringCmd, 0, size)
		for at := from; !at.After(to) && len(cmds) < size; at = at.Add(time.Minute) {
			cmds = append(cmds, pipe.HGetAll(ctx, s.keys.Minute(at)))
		}
		if err := whole(pipe.Exec(ctx)); err != nil {
			return nil, err
		}
		for i, cmd := range cmds {
			if m := cmd.Val(); len(m) > 0 {
				all = append(all, readMinute(from.Add(time.Duration(i)*time.Minute), m))
			}
		}
	}
	return all, nil
}

func readMinute(at time.Time, m map[string]string) Minute {
	n := func(name string) int64 { i, _ := strconv.ParseInt(m[name], 10, 64); return i }
	minute := Minute{At: at, Counts: map[string]int64{}, Depths: Stats{
		Ready: n("ready"), Running: n("running"), Delayed: n("delayed"), Dead: n("dead"),
		OldestReady: time.Duration(n("oldest")) * time.Millisecond,
	}}
	_, minute.Counted = m["ready"]
	for name := range m {
		if strings.Contains(name, ":") {
			minute.Counts[name] = n(name)
		}
	}
	return minute
}

// Ready, running and dead entries, as EachKind tells them apart.
const (
	IsReady = iota
	IsRunning
	IsDead
)

// EachKind yields the kind of every entry of the stream and of the dead letters, page by
// page, with where it is and its stream ID.
func (s *Store) EachKind(ctx context.Context, see func(kind, id string, where int)) error {
	groups, err := s.rdb.XInfoGroups(ctx, s.keys.Stream).Result()
	if err != nil && !noKey(err) {
		return err
	}
	last := ""
	for _, g := range groups {
		if g.Name == Group {
			last = g.LastDeliveredID
		}
	}
	err = s.kinds(ctx, s.keys.Stream, func(kind, id string) {
		if last != "" && !Older(last, id) {
			see(kind, id, IsRunning)
			return
		}
		see(kind, id, IsReady)
	})
	if err != nil {
		return err
	}
	return s.kinds(ctx, s.keys.Dead, func(kind, id string) { see(kind, id, IsDead) })
}

func (s *Store) kinds(ctx context.Context, key string, see func(kind, id string)) error {
	const size = 200
	for from := "-"; ; {
		page, err := s.run(ctx, kinds, []string{key}, from, size).StringSlice()
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for i := 0; i+1 < len(page); i += 2 {
			see(page[i+1], page[i])
		}
		from = after(page[len(page)-2])
	}
}

// A Place in delayed is behind the first Skip of those members that have this score.
type Place struct {
	Score float64
	Skip  int64
}

// From is the place of what is due at t or later; the zero time: of everything.
func From(t time.Time) Place {
	if t.IsZero() {
		return Place{Score: math.Inf(-1)}
	}
	due, _ := strconv.ParseFloat(score(t), 64)
	return Place{Score: due}
}

// DelayedFrom yields page after page of delayed from a place on, the earliest first, each
// member with the place behind it, until there is no more or see returns false.
func (s *Store) DelayedFrom(ctx context.Context, p Place, see func([]Member, []Place) bool) error {
	const size = 100
	for {
		bound := strings.ToLower(strconv.FormatFloat(p.Score, 'f', -1, 64))
		flat, err := s.run(ctx, place, []string{s.keys.Delayed}, bound, p.Skip, size).StringSlice()
		if err != nil || len(flat) == 0 {
			return err
		}
		members, places := make([]Member, len(flat)/2), make([]Place, len(flat)/2)
		for i := range members {
			due, _ := strconv.ParseFloat(flat[2*i+1], 64)
			if due != p.Score {
				p = Place{Score: due}
			}
			p.Skip++
			members[i], places[i] = readMember(flat[2*i], due), p
		}
		if !see(members, places) || len(members) < size {
			return nil
		}
	}
}

var (
	kinds = script("kinds")
	place = script("place")
)
