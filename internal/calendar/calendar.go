// Package calendar says when a schedule is due: every so often, daily, by a cron expression, in a time zone.
//
// It is pure. Time is always an argument and no clock is read, so every answer can be tested and every worker computes
// the same one. An expression is read in the location of the time it is asked about: ask with a time in UTC and
// "0 3 * * *" is three o'clock UTC; [InZone] fixes a location whatever the question's.
//
// Instants lie on whole seconds in the years 1 to 9999 (UTC), which is what RFC 3339 can write; nothing is due outside
// them.
// All types here are immutable and safe for concurrent use.
package calendar

import (
	"errors"
	"fmt"
	"time"
)

const (
	perMinute = 60 // seconds
	perHour   = 60 * perMinute
	perDay    = 24 * perHour

	firstInstant = -62135596800 // the zero time; the first instant that may be due is a second later
	lastInstant  = 253402300799 // 9999-12-31T23:59:59Z
)

// A Schedule says when it is due next. Next is pure, answers strictly later than after and in after's location (but see
// [InZone]), and returns the zero time when the schedule is never due again. For equal instants it answers equally, and
// a later question never has an earlier answer.
//
// A schedule that also has a String method is known by what that returns, as [Expression] explains.
type Schedule interface {
	Next(after time.Time) time.Time
}

// Expression returns the text a schedule is known by: its String, or the name of its type when it has none. Two
// schedules of one type without String are therefore the same to whoever compares texts.
func Expression(s Schedule) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", s)
}

// Check refuses a schedule that cannot be used from now on: nil, never due after now, or with a Next that does not
// advance. Of a schedule that a caller wrote, only the next two instants are tried.
func Check(s Schedule, now time.Time) error {
	if isNil(s) {
		return errors.New("schedule is nil")
	}
	at := now
	for range 2 {
		next := s.Next(at)
		if next.IsZero() {
			break
		}
		if !next.After(at) {
			return fmt.Errorf("schedule %s does not advance: next after %s is %s",
				Expression(s), at.Format(time.RFC3339), next.Format(time.RFC3339))
		}
		at = next
	}
	if at.Equal(now) {
		return fmt.Errorf("schedule %s is never due after %s", Expression(s), now.Format(time.RFC3339))
	}
	return nil
}

// isNil also knows the nil that ParseCron returns beside its error, which an interface hides.
func isNil(s Schedule) bool {
	c, ok := s.(*Cron)
	return s == nil || ok && c == nil
}

// instant makes the answer of a Next from epoch seconds.
func instant(unix int64, loc *time.Location) time.Time {
	if unix > lastInstant {
		return time.Time{}
	}
	return time.Unix(unix, 0).In(loc)
}
