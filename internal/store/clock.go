package store

import (
	"sync/atomic"
	"time"
)

// clocks is how far Redis's clock was from our monotonic one when it last told.
type clocks struct{ offset atomic.Int64 }

var began = time.Now()

// heard notes what Redis's clock said.
func (s *Store) heard(now time.Time, err error) (time.Time, error) {
	if err == nil {
		s.clocks.offset.Store(now.UnixNano() - int64(time.Since(began)))
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
