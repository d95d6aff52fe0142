package calendar_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

// The oracle knows nothing of the code it judges: it does not parse, and has no arithmetic of its own. It walks the real
// minutes of some days in a zone, asks package time what the clock shows at each, and applies the rule as it is
// documented at Cron: a time that the clock skips is due at the first instant after the gap, a time that it shows twice
// at the first; unless the expression means every so often, when what the clock shows is all that counts.

// A random expression, as text and as what it means.
type random struct {
	text string

	minutes, hours, dates, months, weekdays values

	wild, either bool
}

type values [60]bool

func (r *random) matches(wall time.Time) bool {
	if !r.minutes[wall.Minute()] || !r.hours[wall.Hour()] || !r.months[int(wall.Month())] {
		return false
	}
	date, weekday := r.dates[wall.Day()], r.weekdays[int(wall.Weekday())]
	if r.either {
		return date || weekday
	}
	return date && weekday
}

// Some days of a zone's clock, minute by minute: what it shows, as if that were UTC, and whether for the first time.
type days struct {
	zone  *time.Location
	start time.Time
	walls []time.Time
	first []bool
}

const (
	walked = 8 * 24 * 60 // minutes
	judged = 3 * 24 * 60 // from here on: what was shown before must be known for as long as a clock is put back
)

func newDays(loc *time.Location, change time.Time) days {
	d := days{zone: loc, start: change.Add(-5 * 24 * time.Hour)}
	shown := map[time.Time]bool{}
	for i := range walked {
		local := d.instant(i)
		wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
		d.walls, d.first = append(d.walls, wall), append(d.first, !shown[wall])
		shown[wall] = true
	}
	return d
}

func (d days) instant(minute int) time.Time {
	return d.start.Add(time.Duration(minute) * time.Minute).In(d.zone)
}

// due returns the minutes at which r is due.
func (d days) due(r *random) []int {
	var due []int
	for i, wall := range d.walls {
		is := r.matches(wall)
		if !r.wild {
			is = is && d.first[i] || i > 0 && r.matchesBetween(d.walls[i-1], wall)
		}
		if is {
			due = append(due, i)
		}
	}
	return due
}

// matchesBetween asks about the minutes that the clock skipped.
func (r *random) matchesBetween(before, wall time.Time) bool {
	for skipped := before.Add(time.Minute); skipped.Before(wall); skipped = skipped.Add(time.Minute) {
		if r.matches(skipped) {
			return true
		}
	}
	return false
}

// judge compares all answers in those days: the chain of Next, Next and Latest from random instants.
func (d days) judge(r *random, s calendar.Schedule, dice *rand.Rand) error {
	due := d.due(r)
	due = due[firstAfter(due, judged-1):]
	at := d.instant(judged).Add(-1)
	for _, minute := range due {
		next := s.Next(at)
		if !next.Equal(d.instant(minute)) {
			return fmt.Errorf("next after %s: got %s, want %s", at, next, d.instant(minute))
		}
		at = next
	}
	if next := s.Next(at); !next.IsZero() && next.Before(d.instant(walked)) {
		return fmt.Errorf("next after %s: got %s, want none before %s", at, next, d.instant(walked))
	}
	for range 12 {
		minute := judged + dice.IntN(walked-judged)
		at := d.instant(minute).Add(time.Duration(dice.Int64N(int64(time.Minute))))
		i := firstAfter(due, minute)
		if next := s.Next(at); i < len(due) && !next.Equal(d.instant(due[i])) {
			return fmt.Errorf("next after %s: got %s, want %s", at, next, d.instant(due[i]))
		}
		if last := calendar.Latest(s, at); i > 0 && !last.Equal(d.instant(due[i-1])) {
			return fmt.Errorf("latest up to %s: got %s, want %s", at, last, d.instant(due[i-1]))
		}
	}
	return nil
}

func firstAfter(due []int, minute int) int {
	i, _ := slices.BinarySearch(due, minute+1)
	return i
}

func TestAgainstAMinuteByMinuteOracle(t *testing.T) {
	t.Parallel()
	const expressions = 40 // for each of the changes
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, change := range []struct{ zone, at string }{
		{"Europe/Berlin", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-10-25T01:00:00Z"},
		{"America/New_York", "2026-03-08T07:00:00Z"},
		{"America/New_York", "2026-11-01T06:00:00Z"},
		{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
		{"Africa/Cairo", "2026-04-23T22:00:00Z"},
		{"Africa/Cairo", "2026-10-29T21:00:00Z"},
		{"America/Sao_Paulo", "2018-11-04T03:00:00Z"},
		{"America/Sao_Paulo", "2019-02-17T02:00:00Z"},
	} {
		t.Run(change.zone+" "+change.at, func(t *testing.T) {
			t.Parallel()
			dice := rand.New(rand.NewPCG(seed, uint64(i)))
			moment := at(t, change.at, time.UTC)
			d := newDays(zone(t, change.zone), moment)
			if step := d.walls[5*24*60].Sub(d.walls[5*24*60-1]); step == time.Minute {
				t.Fatalf("the clock does not change at %s", moment)
			}
			for range expressions {
				r := newRandom(dice, moment.In(d.zone))
				s, err := calendar.ParseCron(r.text)
				if err != nil && strings.HasSuffix(err.Error(), "never due") && len(d.due(r)) == 0 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := d.judge(r, s, dice); err != nil {
					t.Fatalf("%s: %v (seed %d)", r.text, err, seed)
				}
			}
		})
	}
}

// newRandom returns an expression that often has to do with the change.
func newRandom(dice *rand.Rand, change time.Time) *random {
	r := &random{}
	var texts [5]string
	texts[0], r.minutes = randomField(dice, 0, 59, dice.IntN(60), 0.15)
	texts[1], r.hours = randomField(dice, 0, 23, (change.Hour()+22+dice.IntN(4))%24, 0.15)
	texts[2], r.dates = randomField(dice, 1, 31, change.Day(), 0.6)
	texts[3], r.months = randomField(dice, 1, 12, int(change.Month()), 0.8)
	texts[4], r.weekdays = randomField(dice, 0, 6, int(change.Weekday()), 0.6)
	r.wild = texts[0][0] == '*' || texts[1][0] == '*'
	r.either = texts[2][0] != '*' && texts[4][0] != '*'
	r.text = strings.Join(texts[:], " ")
	return r
}

// randomField returns a field with up to three items, and its values. It is "*" in a share of the cases, and else
// mostly has to do with the value near.
func randomField(dice *rand.Rand, low, high, near int, stars float64) (string, values) {
	var set values
	if dice.Float64() < stars {
		return "*", add(set, low, high, 1)
	}
	items := []string{}
	for range 1 + dice.IntN(3) {
		a := low + dice.IntN(high-low+1)
		if dice.IntN(3) > 0 {
			a = near
		}
		b := a + dice.IntN(high-a+1)
		step := 1 + dice.IntN(b-a+1)
		switch dice.IntN(6) {
		case 0:
			step = 1 + dice.IntN(high-low+1)
			items, set = append(items, fmt.Sprintf("*/%d", step)), add(set, low, high, step)
		case 1:
			items, set = append(items, fmt.Sprintf("%d-%d", a, b)), add(set, a, b, 1)
		case 2:
			items, set = append(items, fmt.Sprintf("%d-%d/%d", a, b, step)), add(set, a, b, step)
		case 3:
			items, set = append(items, fmt.Sprintf("%d/%d", a, step)), add(set, a, high, step)
		default:
			items, set = append(items, fmt.Sprint(a)), add(set, a, a, 1)
		}
	}
	return strings.Join(items, ","), set
}

func add(set values, low, high, step int) values {
	for v := low; v <= high; v += step {
		set[v] = true
	}
	return set
}
