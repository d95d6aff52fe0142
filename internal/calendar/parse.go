package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A field is one of the five of an expression. "*" means low to high; limit is the largest number that may be written.
type field struct {
	name             string
	low, high, limit int
	names            []string // of the values from low on
	question         bool     // "?" may stand for "*"
}

var fields = [5]field{
	{name: "minute", low: 0, high: 59, limit: 59},
	{name: "hour", low: 0, high: 23, limit: 23},
	{name: "day-of-month", low: 1, high: 31, limit: 31, question: true},
	{name: "month", low: 1, high: 12, limit: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "day-of-week", low: 0, high: 6, limit: 7, question: true, names: []string{
		"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

var shorthands = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// Parse reads what [ParseCron] reads, and "@every 90s" (a duration as time.ParseDuration takes it, see [NewEvery]).
// Either may have "CRON_TZ=Zone " or "TZ=Zone " before it, with a name from the IANA time zone database: the schedule is
// then that of [InZone]. A zone that is not known is an error, and so is "Local", which means another zone on another
// machine.
func Parse(expr string) (Schedule, error) {
	words := strings.Fields(expr)
	if len(words) == 0 {
		return nil, errors.New(`cron "": empty`)
	}
	name, ok := zoneName(words[0])
	if !ok {
		return parsePlain(words)
	}
	loc, err := loadZone(name)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", expr, err)
	}
	if len(words) == 1 {
		return nil, fmt.Errorf("cron %q: nothing after the time zone", expr)
	}
	s, err := parsePlain(words[1:])
	if err != nil {
		return nil, err
	}
	return InZone(loc, s), nil
}

func zoneName(word string) (string, bool) {
	if name, ok := strings.CutPrefix(word, "CRON_TZ="); ok {
		return name, true
	}
	return strings.CutPrefix(word, "TZ=")
}

// loadZone never takes a missing name for UTC, as time.LoadLocation does.
func loadZone(name string) (*time.Location, error) {
	switch name {
	case "":
		return nil, errors.New("no name after the time zone's =")
	case "Local":
		return nil, errors.New("time zone Local is not the same on every machine, name the zone")
	}
	return time.LoadLocation(name)
}

func parsePlain(words []string) (Schedule, error) {
	if strings.EqualFold(words[0], "@every") {
		return parseEvery(words[1:])
	}
	c, err := ParseCron(strings.Join(words, " "))
	if err != nil {
		return nil, err
	}
	return c, nil
}

func parseEvery(words []string) (Schedule, error) {
	d, err := time.ParseDuration(strings.Join(words, " "))
	if err != nil {
		return nil, fmt.Errorf("@every %q: not a duration such as 90s or 1h30m", strings.Join(words, " "))
	}
	e, err := NewEvery(d)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// ParseCron reads five fields, minute (0-59), hour (0-23), day-of-month (1-31), month (1-12 or JAN-DEC) and day-of-week
// (0-7 or SUN-SAT; 0 and 7 are both Sunday), or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and
// @hourly. A field is a list, separated by commas, of
//
//   - every value         */n    every n-th value, counted from the lowest
//     a      one value           a/n    every n-th value from a to the highest
//     a-b    a range             a-b/n  every n-th value of the range
//
// Names may be in upper or lower case, and stand in ranges too. "?" is "*" in the two fields for days. What cannot be
// meant is refused: a value out of range, a range that runs backwards, a step of 0 or larger than its range, and dates
// that never come ("0 0 30 2 *").
//
// The error names the field and the text in it that is wrong: cron "61 * * * *": minute: 61 is not in 0-59.
func ParseCron(expr string) (*Cron, error) {
	words := strings.Fields(expr)
	c := &Cron{text: strings.Join(words, " ")}
	if full, ok := shorthands[strings.ToLower(c.text)]; ok {
		words = strings.Fields(full)
	}
	if err := c.parse(words); err != nil {
		return nil, fmt.Errorf("cron %q: %w", expr, err)
	}
	return c, nil
}

func (c *Cron) parse(words []string) error {
	if len(words) != len(fields) {
		return fmt.Errorf("%d fields, not the five minute hour day-of-month month day-of-week", len(words))
	}
	var sets [len(fields)]uint64
	for i, f := range fields {
		set, err := f.parse(words[i])
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		sets[i] = set
	}
	c.minutes, c.hours, c.dates, c.months = sets[0], sets[1], sets[2], sets[3]
	c.weekdays = (sets[4] | sets[4]>>7) & 0x7f
	c.wild = starred(words[0]) || starred(words[1])
	c.eitherDay = !starred(words[2]) && !starred(words[4])
	if _, ok := c.nextDate(0); !ok {
		return errors.New("never due")
	}
	return nil
}

func starred(word string) bool { return word[0] == '*' || word[0] == '?' }

// parse returns the field's values as a set; of the days of the week both 0 and 7 may be in it.
func (f *field) parse(list string) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(list, ",") {
		low, high, step, err := f.parseItem(item)
		if err != nil {
			return 0, err
		}
		for v := low; v <= high; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

func (f *field) parseItem(item string) (low, high, step int, err error) {
	values, every, stepped := strings.Cut(item, "/")
	low, high, err = f.parseRange(values, stepped)
	if err != nil || !stepped {
		return low, high, 1, err
	}
	n, err := strconv.ParseUint(every, 10, 16)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, 0, 0, fmt.Errorf("%q: the step %q is not a number", item, every)
	case n == 0:
		return 0, 0, 0, fmt.Errorf("%q: the step must be 1 or more", item)
	case int(n) > high-low+1:
		return 0, 0, 0, fmt.Errorf("%q: the step %s is larger than the range %d-%d", item, every, low, high)
	}
	return low, high, int(n), nil
}

// parseRange reads what is before a step, if there is one: a value alone then means from there to the highest.
func (f *field) parseRange(text string, stepped bool) (low, high int, err error) {
	if text == "*" || text == "?" && f.question {
		return f.low, f.high, nil
	}
	from, to, ranged := strings.Cut(text, "-")
	if low, err = f.parseValue(from); err != nil {
		return 0, 0, err
	}
	if ranged {
		high, err = f.parseValue(to)
		if err == nil && high < low {
			err = fmt.Errorf("%s runs backwards", text)
		}
		return low, high, err
	}
	if low > f.high {
		low = f.low // Sunday written as 7
	}
	if stepped {
		return low, f.high, nil
	}
	return low, low, nil
}

func (f *field) parseValue(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 && len(text) == 3 {
		return f.low + i, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, f.notValue(text)
	}
	if int(n) < f.low || int(n) > f.limit {
		return 0, fmt.Errorf("%s is not in %d-%d", text, f.low, f.limit)
	}
	return int(n), nil
}

func (f *field) notValue(text string) error {
	if len(f.names) == 0 {
		return fmt.Errorf("%q is not a number", text)
	}
	return fmt.Errorf("%q is neither a number nor one of %s to %s", text, f.names[0], f.names[len(f.names)-1])
}
