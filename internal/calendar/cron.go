package calendar

import (
	"fmt"
	"math/bits"
	"time"
)

// A Cron is a cron expression, made by [ParseCron] or [Daily].
//
// Days. An expression that restricts both day-of-month and day-of-week is due on a day that matches either, as POSIX
// says of crontab. Restricted is a field that does not begin with "*" (or "?"), as in Vixie's cron; so "*/2" does not
// restrict, and a day must then match both fields.
//
// Daylight saving. The rule is that of ISC cron (Vixie's cron 4), described in its cron(8), without its limit of three
// hours:
//
//   - An expression whose minute and hour fields both begin otherwise than with "*" names times of day. Each is due
//     once, at the first instant at which the zone's clock shows it or something later. A time that the clock skips is
//     thus due at the first instant after the gap, and a time that the clock shows twice at the first of the two.
//   - Any other expression means "every so often" and is due whenever the clock shows a minute that matches: "0 * * * *"
//     each real hour and "*/15 * * * *" each real quarter of an hour, also over a change. What the clock skips is not
//     made up for: "*/15 2 * * *" is not due at all in a night without the hour from two to three.
//
// "0-23" and "*" therefore differ in the hour that is shown twice; write "*" to mean every hour.
type Cron struct {
	text                                    string
	minutes, hours, dates, months, weekdays uint64 // bit n: the value n matches
	eitherDay                               bool   // one of dates and weekdays is enough
	wild                                    bool   // every so often, not at times of day
}

// Daily returns the schedule due each day at that time: the expression "minute hour * * *".
func Daily(hour, minute int) (*Cron, error) {
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 {
		return nil, fmt.Errorf("daily at %d:%02d: no such time, hours are 0-23 and minutes 0-59", hour, minute)
	}
	return ParseCron(fmt.Sprintf("%d %d * * *", minute, hour))
}

// String returns the expression as it was given, with single spaces between its fields.
func (c *Cron) String() string { return c.text }

// Next returns the first instant later than after at which the expression is due on the clock of after's location, in
// that location. It returns the zero time when there is none before the year 10000.
func (c *Cron) Next(after time.Time) time.Time {
	loc := after.Location()
	t := max(after.Unix(), firstInstant)
	if t > lastInstant {
		return time.Time{}
	}
	search := c.nextReached
	if c.wild {
		search = c.nextShown
	}
	next, ok := search(t, loc)
	if !ok {
		return time.Time{}
	}
	return instant(next, loc)
}

// nextReached is Next for times of day.
func (c *Cron) nextReached(unix int64, loc *time.Location) (int64, bool) {
	wall, ok := c.nextWall(highest(unix, loc) + 1)
	if !ok {
		return 0, false
	}
	return reached(wall, unix, loc), true
}

// nextShown is Next for every so often. Each span is searched by itself, since the clock may be put back at its end.
func (c *Cron) nextShown(unix int64, loc *time.Location) (int64, bool) {
	for from := unix + 1; from <= lastInstant; {
		s := spanAt(from, loc)
		wall, ok := c.nextWall(from + s.offset)
		if !ok {
			return 0, false
		}
		if wall-s.offset < s.end {
			return wall - s.offset, true
		}
		from = s.end
	}
	return 0, false
}

// nextWall returns the first wall time, not before from, that matches the expression.
func (c *Cron) nextWall(from int64) (int64, bool) {
	today := floorDiv(from, perDay)
	date, ok := c.nextDate(today)
	if !ok {
		return 0, false
	}
	if date > today {
		return date*perDay + c.timeOfDay(0), true
	}
	if clock := c.timeOfDay(from - today*perDay); clock < perDay {
		return today*perDay + clock, true
	}
	date, ok = c.nextDate(today + 1)
	return date*perDay + c.timeOfDay(0), ok
}

// timeOfDay returns the first whole minute that matches, not before from, all in seconds since midnight; a day or more
// if there is none.
func (c *Cron) timeOfDay(from int64) int64 {
	m := (from + perMinute - 1) / perMinute
	h, m := m/60, m%60
	if c.hours>>h&1 == 1 && c.minutes>>m != 0 {
		return h*perHour + (m+int64(bits.TrailingZeros64(c.minutes>>m)))*perMinute
	}
	h += 1 + int64(bits.TrailingZeros64(c.hours>>(h+1)))
	return h*perHour + int64(bits.TrailingZeros64(c.minutes))*perMinute
}

// nextDate returns the first day that matches, not before from, in days since the epoch. The calendar repeats itself
// after 400 years, weekdays included, so a day that has not come by then never comes.
func (c *Cron) nextDate(from int64) (int64, bool) {
	year, month, date := time.Unix(from*perDay, 0).UTC().Date()
	for range 400*12 + 1 {
		first, set := c.datesIn(year, month)
		if rest := set >> date; rest != 0 {
			return first + int64(date-1+bits.TrailingZeros64(rest)), true
		}
		date, month = 1, month+1
		if month > time.December {
			year, month = year+1, time.January
		}
	}
	return 0, false
}

// datesIn returns the day on which a month begins, in days since the epoch, and the set of its days that match; bit n is
// the n-th.
func (c *Cron) datesIn(year int, month time.Month) (first int64, set uint64) {
	if c.months>>month&1 == 0 {
		return 0, 0
	}
	first = daysUntil(year, month)
	length := daysUntil(year, month+1) - first
	weekday := (first%7 + 7 + int64(time.Thursday)) % 7 // the epoch was a Thursday
	week := (c.weekdays>>weekday | c.weekdays<<(7-weekday)) & 0x7f
	weeks := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
	if c.eitherDay {
		set = c.dates | weeks
	} else {
		set = c.dates & weeks
	}
	return first, set & (1<<(length+1) - 1)
}

// daysUntil returns the days from the epoch to the first of a month; month 13 is January.
func daysUntil(year int, month time.Month) int64 {
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Unix() / perDay
}
