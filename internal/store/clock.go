package store

import (
	"sync/atomic"
	"time"
)

// clocks is how far Redis's clock was from our monotonic one when it last told, and when that
// was seen to leap.
type clocks struct{ offset, leapt atomic.Int64 }

var began = time.Now()

// heard notes what Redis's clock said.
func (s *Store) heard(now time.Time, err error) (time.Time, error) {
	if err == nil {
		mine := int64(time.Since(began))
		offset := now.UnixNano() - mine
		if last := s.clocks.offset.Swap(offset); last != 0 && max(offset-last, last-offset) > int64(time.Second) {
			s.clocks.leapt.Store(mine)
		}
	}
	return now, err
}

// Clock is Redis's clock, gone on from when it was last heard; zero where it never was.
func (s *Store) Clock() time.Time {
	offset := s.clocks.offset.Load()
	if offset == 0 {
		return time.Time{}
	}
	return time.Unix(0, offset+int64(time.Since(began)))
}

// Leapt says whether Redis's clock was put on or back within the last d, or took so long to
// answer that it looks so.
func (s *Store) Leapt(d time.Duration) bool {
	at := s.clocks.leapt.Load()
	return at != 0 && time.Since(began)-time.Duration(at) < d
}
