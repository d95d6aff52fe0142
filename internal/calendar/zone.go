package calendar

import (
	"math"
	"time"

	// A worker is often the only file in its container. With the time zone database in the binary (some 450 KB) a
	// schedule in Europe/Berlin works there too, instead of failing on the one machine without /usr/share/zoneinfo.
	// The machine's own database is preferred where there is one.
	_ "time/tzdata"
)

// maxShift is more than any clock was ever put back: the date line makes it a day.
const maxShift = 2 * perDay

// InZone returns s computed in loc and answering in loc, whatever the location of the question. A schedule that is in a
// zone already stays in its own: of nested zones the innermost counts. It panics if loc is nil, since UTC would be a
// guess; a nil s stays nil, for Check to refuse.
//
// The text of the schedule is that of s with the zone before it, "CRON_TZ=Europe/Berlin 0 3 * * *", which Parse reads.
func InZone(loc *time.Location, s Schedule) Schedule {
	if loc == nil {
		panic("calendar: InZone: location is nil")
	}
	if _, ok := s.(zoned); ok || isNil(s) {
		return s
	}
	return zoned{loc: loc, schedule: s}
}

type zoned struct {
	loc      *time.Location
	schedule Schedule
}

func (z zoned) Next(after time.Time) time.Time {
	next := z.schedule.Next(after.In(z.loc))
	if next.IsZero() {
		return time.Time{}
	}
	return next.In(z.loc)
}

func (z zoned) String() string {
	return "CRON_TZ=" + z.loc.String() + " " + Expression(z.schedule)
}

// A span is a stretch of time, from start to before end, over which a zone's clock runs without a jump; the next one may
// have the same offset. "Wall" is what that clock shows, counted in seconds as if it were UTC: epoch seconds plus offset.
type span struct{ start, end, offset int64 }

func spanAt(unix int64, loc *time.Location) span {
	t := time.Unix(unix, 0).In(loc)
	_, offset := t.Zone()
	s := span{start: math.MinInt64, end: math.MaxInt64, offset: int64(offset)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	// In years that follow a zone's rule ZoneBounds takes the ends of the year for bounds, and is a day off in the end of
	// a leap year (golang/go#81583) and in the start of one before 1970. Who walks from span to span would stand still.
	midnight := floorDiv(unix, perDay) * perDay
	if s.start > unix {
		s.start = midnight
	}
	if s.end <= unix {
		s.end = midnight + perDay
	}
	return s
}

// highest returns the latest wall time that the clock has shown up to unix. It is later than the present one for a
// while after the clock was put back.
func highest(unix int64, loc *time.Location) int64 {
	s := spanAt(unix, loc)
	wall := unix + s.offset
	for s.start > unix-maxShift {
		before := s.start - 1
		s = spanAt(before, loc)
		wall = max(wall, before+s.offset)
	}
	return wall
}

// reached returns the first instant after unix at which the clock shows wall or something later. That wall time must
// not have been shown up to unix.
func reached(wall, unix int64, loc *time.Location) int64 {
	s := spanAt(unix, loc)
	for wall-s.offset >= s.end {
		s = spanAt(s.end, loc)
	}
	return max(wall-s.offset, s.start)
}
