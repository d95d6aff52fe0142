package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
)

// Pending is an entry that was delivered and not settled, as a sweep saw it.
type Pending struct {
	ID         string
	Owner      string
	Idle       time.Duration
	Deliveries int
	Kind       string
	Gone       bool // its body was deleted
}

// Idle yields page after page what has been idle for least or longer, until there is
// no more or see returns an error.
func (s *Store) Idle(ctx context.Context, least time.Duration, see func([]Pending) error) error {
	const size = 100
	for from := "-"; ; {
		reply, err := s.run(ctx, pending, []string{s.keys.Stream}, Group, least.Milliseconds(), from, size).Slice()
		if err != nil {
			return err
		}
		rows, more := reply[0].([]any), reply[1] == int64(1)
		page := make([]Pending, len(rows))
		for i, row := range rows {
			page[i] = readPending(row.([]any))
		}
		if len(page) > 0 {
			err = see(page)
		}
		if err != nil || !more {
			return err
		}
		from = after(page[len(page)-1].ID)
	}
}

func readPending(row []any) Pending {
	idle, _ := row[2].(int64)
	deliveries, _ := row[3].(int64)
	p := Pending{
		ID: row[0].(string), Owner: row[1].(string),
		Idle: time.Duration(idle) * time.Millisecond, Deliveries: int(deliveries),
	}
	if p.Gone = len(row) < 5; !p.Gone {
		p.Kind, _ = row[4].(string)
	}
	return p
}

// after is the least stream ID above id. (miniredis knows no exclusive ranges here.)
func after(id string) string {
	ms, seq, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(seq, 10, 64)
	return ms + "-" + strconv.FormatUint(n+1, 10)
}

// Claim is what a claim asks for beside the entry as it was seen.
type Claim struct {
	Pending
	Least time.Duration // how long it must have been idle
	Own   bool          // it is this consumer's own, delivered and never heard of; counted already
	Alone bool          // only while this consumer holds the right to run a suspect
}

// Claim takes an entry over. It returns the number of its delivery, or 0 where the
// entry is not to be had any more. After a lost reply the same call finds what it did.
func (s *Store) Claim(ctx context.Context, c Claim) (Entry, int, error) {
	reply, err := s.run(ctx, claim, []string{s.keys.Stream, s.keys.Suspect}, Group, s.consumer,
		c.ID, c.Least.Milliseconds(), c.Deliveries, flag(c.Own), flag(c.Alone)).Result()
	if err != nil {
		return Entry{}, 0, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return Entry{}, 0, nil
	}
	body, err := unflat(list[1])
	deliveries, _ := list[0].(int64)
	return Entry{ID: c.ID, Fields: body}, int(deliveries), err
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// BuryAs moves an entry that nobody runs to the dead letters: only as p says it was,
// and idle for least or longer. It returns what Reply.Buried does.
func (s *Store) BuryAs(ctx context.Context, p Pending, least time.Duration, keep int, letter map[string]string) (string, int64, error) {
	cmd := s.run(ctx, bury, []string{s.keys.Stream, s.keys.Dead},
		append(buryHead(p, least, keep), buryArgs(p.ID, letter)...)...)
	return Reply{&cmd, 0}.Buried()
}

// buryHead is what burials of one script have in common: the entries of one owner.
func buryHead(p Pending, least time.Duration, keep int) []any {
	return []any{Group, p.Owner, least.Milliseconds(), p.Deliveries, keep}
}

func buryArgs(id string, letter map[string]string) []any {
	pairs := fields.Flatten(letter)
	args := make([]any, 0, 2+len(pairs))
	return flat(append(args, id, len(pairs)), pairs)
}

// Body reads one entry of the stream; ok is false where it is gone.
func (s *Store) Body(ctx context.Context, id string) (e Entry, ok bool, err error) {
	page, err := s.rdb.XRangeN(ctx, s.keys.Stream, id, id, 1).Result()
	if err != nil || len(page) == 0 {
		return Entry{}, false, err
	}
	return entry(page[0]), true, nil
}

// Gone acknowledges a pending entry whose body was deleted, and says whether it was so.
func (s *Store) Gone(ctx context.Context, id string) (bool, error) {
	return s.run(ctx, gone, []string{s.keys.Stream}, Group, id).Bool()
}

// Renew renews the leases of ids and returns those that are another consumer's by now, or gone
// from the stream. Without ids it only asks Redis for an answer.
func (s *Store) Renew(ctx context.Context, ids []string) (lost []string, err error) {
	if len(ids) == 0 {
		_, err := s.Now(ctx)
		return nil, err
	}
	for len(ids) > 0 {
		n := min(len(ids), batch)
		page, err := s.run(ctx, renew, []string{s.keys.Stream}, flat([]any{Group, s.consumer}, ids[:n])...).StringSlice()
		if err != nil {
			return lost, err
		}
		lost, ids = append(lost, page...), ids[n:]
	}
	return lost, nil
}

// Isolate takes or renews the right to be the one that empties itself for a suspect, for
// as long as ttl and while the suspect is to be had; with 0 it gives the right back. It
// says whether this consumer has it.
func (s *Store) Isolate(ctx context.Context, c Claim, ttl time.Duration) (bool, error) {
	if c.Own {
		c.Least = 0
	}
	return s.run(ctx, suspect, []string{s.keys.Suspect, s.keys.Stream}, s.consumer, ttl.Milliseconds(),
		Group, c.ID, c.Deliveries, c.Least.Milliseconds()).Bool()
}

// Forget removes a consumer that owns nothing and does not describe itself any more.
func (s *Store) Forget(ctx context.Context, consumer string) error {
	cmd := s.forget(ctx, consumer)
	_ = s.rdb.Process(ctx, cmd)
	return cmd.Err()
}

func (s *Store) forget(ctx context.Context, consumer string) once {
	return eval(ctx, forget, []string{s.keys.Stream, s.keys.Worker(consumer)}, Group, consumer)
}

// Silent returns the consumers that own nothing and have not been heard of for idle.
func (s *Store) Silent(ctx context.Context, idle time.Duration) ([]string, error) {
	consumers, err := s.rdb.XInfoConsumers(ctx, s.keys.Stream, Group).Result()
	var names []string
	for _, c := range consumers {
		if c.Pending == 0 && c.Idle > idle && c.Name != s.consumer {
			names = append(names, c.Name)
		}
	}
	if err != nil && (NoGroup(err) || noKey(err)) {
		return nil, nil
	}
	return names, err
}

var (
	pending = script("pending")
	claim   = script("claim")
	gone    = script("gone")
	renew   = script("renew")
	suspect = script("suspect")
	forget  = script("forget")
)
