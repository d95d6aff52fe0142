package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/fields"
)

// Member is a job in delayed: as it lies there, and as it reads.
type Member struct {
	Raw    string
	Fields map[string]string
	Err    error // it cannot be read as a job
	Due    time.Time
}

// readMember decodes what lies in delayed. What could not become an entry is no job.
func readMember(raw string, score float64) Member {
	m, err := fields.ParseMember(raw)
	switch {
	case err != nil:
	case len(m) == 0:
		err = errNoFields
	case TooMany(m):
		err = errManyFields
	}
	return Member{Raw: raw, Fields: m, Err: err, Due: unscore(score)}
}

// Earliest returns when the first member of delayed is due, and Redis's clock then; zero
// where there is none: an idle worker does not ask for the time.
func (s *Store) Earliest(ctx context.Context) (now, due time.Time, err error) {
	members, err := s.rdb.ZRangeWithScores(ctx, s.keys.Delayed, 0, 0).Result()
	if err != nil || len(members) == 0 {
		return now, due, err
	}
	now, err = s.Now(ctx)
	return now, unscore(members[0].Score), err
}

// Due reads up to n members that are due at now, the earliest first.
func (s *Store) Due(ctx context.Context, now time.Time, n int) ([]Member, error) {
	members, err := s.rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
		Key: s.keys.Delayed, Start: "-inf", Stop: score(now), ByScore: true, Count: int64(n),
	}).Result()
	return readMembers(members), err
}

func readMembers(members []redis.Z) []Member {
	list := make([]Member, len(members))
	for i, m := range members {
		raw, _ := m.Member.(string)
		list[i] = readMember(raw, m.Score)
	}
	return list
}

// Promote moves members to the stream, those that are due, and returns how many it moved.
func (s *Store) Promote(ctx context.Context, members []Member) (int, error) {
	const size = 1 << 20 // bytes a script, about
	moved := 0
	for len(members) > 0 {
		args, bytes, n := []any(nil), 0, 0
		for ; n < len(members) && (n == 0 || bytes < size); n++ {
			m := members[n]
			pairs := fields.Flatten(m.Fields)
			args = flat(append(args, m.Raw, len(pairs)), pairs)
			bytes += 2 * len(m.Raw)
		}
		some, err := s.run(ctx, promote, []string{s.keys.Delayed, s.keys.Stream}, args...).Int()
		if err != nil {
			return moved, err
		}
		moved, members = moved+some, members[n:]
	}
	return moved, nil
}

// BuryMember moves a member that is no job to the dead letters. It returns what
// Reply.Buried does, "" where the member is gone.
func (s *Store) BuryMember(ctx context.Context, m Member, keep int, letter map[string]string) (string, int64, error) {
	args := flat([]any{m.Raw, keep}, fields.Flatten(letter))
	cmd := s.run(ctx, rubbish, []string{s.keys.Delayed, s.keys.Dead}, args...)
	return Reply{&cmd, 0}.Buried()
}

// BuryRows adds dead letters for rows of an outbox that are no jobs, in one round trip. It
// returns how many old ones fell out. With an error some may have been added.
func (s *Store) BuryRows(ctx context.Context, keep int, letters []map[string]string) (dropped int64, err error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]once, len(letters))
	for i, letter := range letters {
		args := flat([]any{keep}, fields.Flatten(letter))
		cmds[i] = eval(ctx, row, []string{s.keys.Dead}, args...)
		_ = pipe.Process(ctx, cmds[i])
	}
	if err := s.exec(ctx, pipe); err != nil {
		return 0, err
	}
	for _, cmd := range cmds {
		_, n, err := Reply{&cmd.Cmd, 0}.Buried()
		if err != nil {
			return dropped, err
		}
		dropped += n
	}
	return dropped, nil
}

// Delayed yields page after page of delayed in the order of due times, until there is
// no more or see returns false. What moves meanwhile may be missed or seen twice.
func (s *Store) Delayed(ctx context.Context, see func([]Member) bool) error {
	const size = 500
	for from := int64(0); ; from += size {
		members, err := s.rdb.ZRangeWithScores(ctx, s.keys.Delayed, from, from+size-1).Result()
		if err != nil || len(members) == 0 || !see(readMembers(members)) {
			return err
		}
	}
}

// Scan yields what is in delayed and may be a job with this ID (any job, where it is ""), in
// no order, some perhaps twice, but all of what stays there meanwhile.
func (s *Store) Scan(ctx context.Context, id string, see func([]Member) error) error {
	for cursor := uint64(0); ; {
		flat, next, err := s.rdb.ZScan(ctx, s.keys.Delayed, cursor, "", 500).Result()
		if err != nil {
			return err
		}
		var list []Member
		for i := 0; i+1 < len(flat); i += 2 {
			if mayHold(flat[i], id) {
				due, _ := strconv.ParseFloat(flat[i+1], 64)
				list = append(list, readMember(flat[i], due))
			}
		}
		if err := see(list); err != nil || next == 0 {
			return err
		}
		cursor = next
	}
}

// mayHold says whether a member may hold text, without reading it: that stands there as it
// is, unless the member has an escape or is in base64.
func mayHold(member, text string) bool {
	return strings.Contains(member, text) || strings.Contains(member, `\`) || strings.Contains(member, "fields_base64")
}

var (
	promote = script("promote")
	rubbish = script("rubbish")
	row     = script("row")
)
