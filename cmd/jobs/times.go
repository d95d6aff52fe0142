package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// now is Redis's clock, which is the one that decides; where it may not be asked, ours.
func (t *tool) now(ctx context.Context) time.Time {
	if now, err := t.rdb.Time(ctx).Result(); err == nil {
		return now
	}
	return time.Now()
}

// instant reads a time as the root command's help has it.
func instant(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	now = now.In(time.Local)
	for _, layout := range [...]string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	if d, err := duration(strings.TrimPrefix(text, "+")); err == nil {
		if strings.HasPrefix(text, "+") {
			return now.Add(d), nil
		}
		return now.Add(-d), nil
	}
	if at, ok := onDay(text, now); ok {
		return at, nil
	}
	return time.Time{}, usage("the time %q is none of those that jobs help tells of", text)
}

// bound is a flag that holds a time, or nothing.
type bound struct{ flag, text string }

func (b bound) read(now time.Time) (time.Time, error) {
	if b.text == "" {
		return time.Time{}, nil
	}
	return instant(b.text, now)
}

// between are two bounds' times, the zero time for one that is not given. Where there is nothing between them, somebody
// has swapped them: that would look like a list that is empty.
func between(from, until bound, now time.Time) (first, last time.Time, err error) {
	if first, err = from.read(now); err != nil {
		return first, last, err
	}
	if last, err = until.read(now); err == nil && !last.IsZero() && !first.Before(last) {
		err = usage("%s %s is not before %s %s", from.flag, from.text, until.flag, until.text)
	}
	return first, last, err
}

// onDay reads "yesterday", "today 14:00", "14:00".
func onDay(text string, now time.Time) (time.Time, bool) {
	if text == "now" {
		return now, true
	}
	days := map[string]int{"yesterday": -1, "today": 0, "tomorrow": 1}
	day, clock, both := strings.Cut(text, " ")
	shift, named := days[day]
	if !named {
		clock, both = text, true
	}
	var hour, minute int
	if both {
		at, err := time.Parse("15:04", strings.TrimSpace(clock))
		if err != nil {
			return time.Time{}, false
		}
		hour, minute = at.Hour(), at.Minute()
	}
	y, m, d := now.Date()
	return time.Date(y, m, d+shift, hour, minute, 0, 0, now.Location()), named || both
}

// duration is Go's, and days: 90s, 2h30m, 3d.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n >= 0 && n <= 36500) {
			return 0, usage("the duration %q cannot be read", text)
		}
		return time.Duration(n * float64(24*time.Hour)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, usage("the duration %q cannot be read: it is written as 90s, 2h30m or 3d", text)
	}
	return d, nil
}

// age is a duration as people say it.
func age(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(math.Round(d.Hours()/24)))
}

// wait is for how long something is not due yet, with a word before it, or how late it is.
func wait(due, now time.Time, in string) string {
	due = instantOf(due)
	days := (due.Unix() - now.Unix()) / (24 * 60 * 60)
	switch d := due.Sub(now); {
	case d == math.MaxInt64: // a Duration ends after 292 years
		return fmt.Sprintf("%s%dd", in, days)
	case d == math.MinInt64:
		return fmt.Sprintf("%dd late", -days)
	case d <= -time.Second:
		return age(-d) + " late"
	default:
		return in + age(d)
	}
}

// clock is a time as tables have it, in the local time zone, and no later than in JSON.
func clock(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return instantOf(at).Local().Format("2006-01-02 15:04:05")
}

// utc is a time as JSON has it: none where it is zero.
func utc(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = instantOf(at)
	return &at
}

// instantOf is a time as JSON can have it: of years with four digits, which something that is
// due in 1,000 times as many seconds as was meant is not.
func instantOf(at time.Time) time.Time {
	at = at.UTC()
	if last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC); at.After(last) {
		return last
	}
	if first := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC); at.Before(first) {
		return first
	}
	return at
}

// pace is the time between two, of how often: 50/s or 50, 600/m, 100/h; 0: as fast as it goes.
func pace(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	count, unit, _ := strings.Cut(text, "/")
	per, ok := map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.ParseFloat(count, 64)
	if err != nil || !ok || !(n > 0 && n <= 1e6) || float64(per)/n > float64(24*time.Hour) {
		return 0, usage("the rate %q cannot be read: it is written as 50/s or 50, 600/m, 100/h", text)
	}
	return time.Duration(float64(per) / n), nil
}
