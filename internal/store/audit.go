package store

import (
	"context"
	"encoding/json"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
)

// A Record is what an action of a person leaves in the audit trail. It is written by the
// script that acts, so that neither is there without the other.
type Record struct {
	Who, What, ID, Kind, Entry, Schedule string
	Set                                  []string // names of fields
}

// counted are the record's names and values, behind their number.
func (r Record) counted() []any {
	pairs := []any{"what", r.What}
	for _, f := range [...]struct{ name, value string }{
		{"who", r.Who}, {"job_id", r.ID}, {"kind", r.Kind}, {"entry", r.Entry}, {"schedule", r.Schedule},
	} {
		if f.value != "" {
			pairs = append(pairs, f.name, f.value)
		}
	}
	if len(r.Set) > 0 {
		list, _ := json.Marshal(r.Set) // of strings, which cannot fail
		pairs = append(pairs, "set", string(list))
	}
	return append([]any{len(pairs)}, pairs...)
}

// readRecord is an entry of the audit trail.
func readRecord(m map[string]string) Record {
	r := Record{Who: m["who"], What: m["what"], ID: m["job_id"], Kind: m["kind"], Entry: m["entry"], Schedule: m["schedule"]}
	_ = json.Unmarshal([]byte(m["set"]), &r.Set) // what is no list names nothing
	return r
}

// Audit yields page after page of the audit trail between two stream IDs, newest first,
// until there is no more or see returns false.
func (s *Store) Audit(ctx context.Context, from, to string, see func(id string, r Record) bool) error {
	return s.backwards(ctx, s.keys.Audit, from, to, 100, func(page []Entry) bool {
		for _, e := range page {
			if !see(e.ID, readRecord(e.Fields)) {
				return false
			}
		}
		return true
	})
}

// Replayed is a dead letter as it goes back, under its stream ID, and the record of it.
type Replayed struct {
	Entry
	Record Record
}

// Replay puts dead letters back on the stream, each by a script of its own, and says
// for each whether it was still there.
func (s *Store) Replay(ctx context.Context, letters []Replayed) ([]bool, error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(letters))
	for i, letter := range letters {
		args := append([]any{letter.ID}, letter.Record.counted()...)
		cmd := eval(ctx, replay, []string{s.keys.Dead, s.keys.Stream, s.keys.Audit},
			flat(args, fields.Flatten(letter.Fields))...)
		cmds[i] = cmd.Cmd
		_ = pipe.Process(ctx, cmd)
	}
	err := s.exec(ctx, pipe)
	replayed := make([]bool, len(letters))
	for i, cmd := range cmds {
		replayed[i], _ = cmd.Bool()
	}
	return replayed, err
}

// Discard deletes a dead letter, and says whether it was there.
func (s *Store) Discard(ctx context.Context, id string, r Record) (bool, error) {
	args := append([]any{id}, r.counted()...)
	return s.run(ctx, discard, []string{s.keys.Dead, s.keys.Audit}, args...).Bool()
}

// Cancel takes a member out of delayed, and says whether it was there.
func (s *Store) Cancel(ctx context.Context, m Member, r Record) (bool, error) {
	args := append([]any{m.Raw}, r.counted()...)
	return s.run(ctx, cancel, []string{s.keys.Delayed, s.keys.Audit}, args...).Bool()
}

// RunNow moves a member to the stream whenever it is due, and says whether it was there.
func (s *Store) RunNow(ctx context.Context, m Member, r Record) (bool, error) {
	args := append([]any{m.Raw}, r.counted()...)
	keys := []string{s.keys.Delayed, s.keys.Stream, s.keys.Audit}
	return s.run(ctx, runNow, keys, flat(args, fields.Flatten(m.Fields))...).Bool()
}

// RunSchedule enqueues a schedule's job, an entry as Item has it.
func (s *Store) RunSchedule(ctx context.Context, entry []string, r Record) error {
	keys := []string{s.keys.Stream, s.keys.Audit}
	return s.run(ctx, runSchedule, keys, flat(r.counted(), entry)...).Err()
}

var (
	replay      = script("replay")
	discard     = script("discard")
	cancel      = script("cancel")
	runNow      = script("runnow")
	runSchedule = script("runschedule")
)
