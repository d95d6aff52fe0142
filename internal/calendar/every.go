package calendar

import (
	"fmt"
	"time"
)

// Every is due at each whole multiple of its period since the epoch, 1970-01-01T00:00:00Z, in every process alike and
// whatever the time zone: DST changes nothing. The zero value is never due.
type Every struct{ seconds int64 }

// NewEvery returns the schedule with the period d, which must be whole seconds and at least one.
func NewEvery(d time.Duration) (Every, error) {
	if d < time.Second || d%time.Second != 0 {
		return Every{}, fmt.Errorf("@every %s: the period must be whole seconds, at least 1s", d)
	}
	return Every{seconds: int64(d / time.Second)}, nil
}

// Next returns the first multiple of the period later than after, in after's location.
func (e Every) Next(after time.Time) time.Time {
	t := max(after.Unix(), firstInstant)
	if e.seconds == 0 || t > lastInstant {
		return time.Time{}
	}
	return instant((floorDiv(t, e.seconds)+1)*e.seconds, after.Location())
}

// String returns "@every 1m30s", which Parse reads.
func (e Every) String() string {
	return "@every " + (time.Duration(e.seconds) * time.Second).String()
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return (a+1)/b - 1
	}
	return a / b
}
