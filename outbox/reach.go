package outbox

import "time"

// A reach is from where on the relay reads. Below what was published lie the index entries of rows that are done, and
// as long as any transaction of the database is older than they are, nothing can clear them away: a relay that read past
// all of them each time would come to a stand. So most reads begin further up, and one now and then begins at the
// bottom, for rows whose transaction committed after those of higher numbers. Such a row is read at once if it is no
// later than two whole reads, else at the next one.
type reach struct {
	seen    int64     // the highest number that was read
	before  int64     // the same, at the last whole read
	settled int64     // and at the one before it
	whole   time.Time // when the next whole read is due
	last    int64     // the highest number of the last read
	full    bool      // that brought as many rows as it could
}

// from is the number above which to read now.
func (r *reach) from(now time.Time) int64 {
	switch {
	case !now.Before(r.whole):
		return 0
	case r.full: // where it ended, which is further down if a transaction of many rows committed late
		return r.last
	}
	return r.settled
}

// read notes what a read from a number on has brought: the highest number (0: none), and whether there may be more. After
// a whole one the next is due at a time.
func (r *reach) read(from, highest int64, full bool, next time.Time) {
	r.full, r.last, r.seen = full, highest, max(r.seen, highest)
	if !r.whole.IsZero() && from > 0 {
		return
	}
	r.settled, r.before, r.whole = r.before, r.seen, next
}
