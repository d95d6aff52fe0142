package calendar

import "time"

// windows are how far Latest looks back, one after the other. The last holds a 29 February at any time, also around the
// years 1900, 2100 and 2200, which have none.
var windows = [...]time.Duration{
	time.Second,
	time.Minute,
	time.Hour,
	24 * time.Hour,
	32 * 24 * time.Hour,
	366 * 24 * time.Hour,
	9 * 366 * 24 * time.Hour,
}

// Latest returns the latest instant, not after now, at which s was due. It looks back nine years and returns the zero
// time when s was not due in them, or is nil. It asks s.Next at most some hundred times, usually fewer than ten times;
// an answer that is not later than its question counts as none, so a schedule that does not advance ends the search
// rather than holding it.
func Latest(s Schedule, now time.Time) time.Time {
	if isNil(s) {
		return time.Time{}
	}
	now = now.Round(0)
	for _, window := range windows {
		if due, ok := dueWithin(s, now.Add(-window), now); ok {
			return lastWithin(s, due, now)
		}
	}
	return time.Time{}
}

// lastWithin returns the last instant of s up to now, given one of them. It halves what is left instead of walking from
// instant to instant: of a schedule that is due each minute of January, December sees 44,640.
func lastWithin(s Schedule, due, now time.Time) time.Time {
	for end := now; due.Before(end); { // nothing is due after end
		next, ok := dueWithin(s, due, now)
		if !ok {
			return due
		}
		due = next
		middle := due.Add(end.Sub(due) / 2)
		if next, ok = dueWithin(s, middle, now); ok {
			due = next
		} else {
			end = middle
		}
	}
	return due
}

// dueWithin returns the first instant of s later than after, if it is not later than now.
func dueWithin(s Schedule, after, now time.Time) (time.Time, bool) {
	next := s.Next(after)
	return next, next.After(after) && !next.After(now) && !next.IsZero()
}
