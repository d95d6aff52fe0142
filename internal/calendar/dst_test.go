package calendar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

// The clocks of five zones. Berlin and New York are the usual case; Lord Howe moves by half an hour; Cairo and São Paulo
// move at midnight, and back into the day before.
var changes = []struct {
	zone, expr, after string
	want              string
}{
	// The gap.
	{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
	{"Europe/Berlin", "0 2 * * *", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
	{"Europe/Berlin", "0 3 * * *", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T03:00:00+02:00"},
	{"Europe/Berlin", "0,30 2,3 * * *", "2026-03-28T12:00:00+01:00",
		"2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00 2026-03-30T02:00:00+02:00"},
	{"Europe/Berlin", "59 1 * * *", "2026-03-29T00:00:00+01:00", "2026-03-29T01:59:00+01:00 2026-03-30T01:59:00+02:00"},
	{"Europe/Berlin", "30 2 29 3 *", "2026-01-01T00:00:00+01:00", "2026-03-29T03:00:00+02:00 2027-03-29T02:30:00+02:00"},
	{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00-05:00", "2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00"},
	{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
	{"Australia/Lord_Howe", "30 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:30:00+11:00"},
	{"Africa/Cairo", "0 0 * * *", "2026-04-23T12:00:00+02:00", "2026-04-24T01:00:00+03:00 2026-04-25T00:00:00+03:00"},
	{"Africa/Cairo", "59 23 * * *", "2026-04-23T12:00:00+02:00", "2026-04-23T23:59:00+02:00 2026-04-24T23:59:00+03:00"},
	{"America/Sao_Paulo", "30 0 * * *", "2018-11-03T12:00:00-03:00", "2018-11-04T01:00:00-02:00 2018-11-05T00:30:00-02:00"},
	{"America/Sao_Paulo", "0 0 1 * *", "2018-10-17T00:00:00-03:00", "2018-11-01T00:00:00-03:00 2018-12-01T00:00:00-02:00"},

	// The hour that comes twice; also asked between the two.
	{"Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
	{"Europe/Berlin", "30 2 * * *", "2026-10-25T02:15:00+01:00", "2026-10-26T02:30:00+01:00"},
	{"Europe/Berlin", "0 3 * * *", "2026-10-25T02:15:00+01:00", "2026-10-25T03:00:00+01:00 2026-10-26T03:00:00+01:00"},
	{"Europe/Berlin", "0 2-3 * * *", "2026-10-24T12:00:00+02:00",
		"2026-10-25T02:00:00+02:00 2026-10-25T03:00:00+01:00 2026-10-26T02:00:00+01:00"},
	{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00-04:00", "2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
	{"America/New_York", "30 2 * * *", "2026-10-31T12:00:00-04:00", "2026-11-01T02:30:00-05:00 2026-11-02T02:30:00-05:00"},
	{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
	{"Australia/Lord_Howe", "30 2 * * *", "2026-04-04T12:00:00+11:00", "2026-04-05T02:30:00+10:30 2026-04-06T02:30:00+10:30"},
	{"Africa/Cairo", "30 23 * * *", "2026-10-29T12:00:00+03:00", "2026-10-29T23:30:00+03:00 2026-10-30T23:30:00+02:00"},
	{"Africa/Cairo", "0 0 * * *", "2026-10-29T12:00:00+03:00", "2026-10-30T00:00:00+02:00 2026-10-31T00:00:00+02:00"},
	{"America/Sao_Paulo", "30 23 * * *", "2019-02-16T12:00:00-02:00", "2019-02-16T23:30:00-02:00 2019-02-17T23:30:00-03:00"},
	{"America/Sao_Paulo", "0 0 17 2 *", "2019-02-16T12:00:00-02:00", "2019-02-17T00:00:00-03:00 2020-02-17T00:00:00-03:00"},

	// Every so often: what the clock shows, so steps are real, and the gap is not made up for.
	{"Europe/Berlin", "0 * * * *", "2026-03-29T00:30:00+01:00",
		"2026-03-29T01:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00"},
	{"Europe/Berlin", "30 * * * *", "2026-10-25T01:45:00+02:00",
		"2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00"},
	{"Europe/Berlin", "0 */2 * * *", "2026-03-29T00:30:00+01:00", "2026-03-29T04:00:00+02:00 2026-03-29T06:00:00+02:00"},
	{"Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00:00+01:00", "2026-03-30T02:00:00+02:00 2026-03-30T02:30:00+02:00"},
	{"Europe/Berlin", "*/30 2 * * *", "2026-10-24T12:00:00+02:00", "2026-10-25T02:00:00+02:00 " +
		"2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-26T02:00:00+01:00"},
	{"Australia/Lord_Howe", "0 * * * *", "2026-10-04T00:30:00+10:30",
		"2026-10-04T01:00:00+10:30 2026-10-04T03:00:00+11:00 2026-10-04T04:00:00+11:00"},
	{"Australia/Lord_Howe", "0 * * * *", "2026-04-05T00:30:00+11:00",
		"2026-04-05T01:00:00+11:00 2026-04-05T02:00:00+10:30 2026-04-05T03:00:00+10:30"},
	{"Australia/Lord_Howe", "45 * * * *", "2026-04-05T01:30:00+11:00",
		"2026-04-05T01:45:00+11:00 2026-04-05T01:45:00+10:30 2026-04-05T02:45:00+10:30"},

	// Years in which other calendars and tables end; a day that the date line took away; offsets of odd seconds.
	{"Europe/Berlin", "30 2 * * *", "2100-03-27T12:00:00+01:00", "2100-03-28T03:00:00+02:00 2100-03-29T02:30:00+02:00"},
	{"Europe/Berlin", "30 2 * * *", "2100-10-30T12:00:00+02:00", "2100-10-31T02:30:00+02:00 2100-11-01T02:30:00+01:00"},
	{"Europe/Berlin", "0 0 29 2 *", "2096-01-01T00:00:00+01:00", "2096-02-29T00:00:00+01:00 2104-02-29T00:00:00+01:00"},
	{"Europe/Berlin", "0 3 * * *", "2040-12-31T12:00:00+01:00", "2041-01-01T03:00:00+01:00 2041-01-02T03:00:00+01:00"},
	{"Europe/Berlin", "0 */12 * * *", "2040-12-30T12:00:00+01:00", "2040-12-31T00:00:00+01:00 2040-12-31T12:00:00+01:00 " +
		"2041-01-01T00:00:00+01:00 2041-01-01T12:00:00+01:00"},
	{"Australia/Lord_Howe", "*/30 2 * 10 *", "2040-12-31T12:00:00+11:00", "2041-10-01T02:00:00+10:30 2041-10-01T02:30:00+10:30"},
	{"Pacific/Apia", "0 9 * * *", "2011-12-29T00:00:00-10:00", "2011-12-29T09:00:00-10:00 " +
		"2011-12-31T00:00:00+14:00 2011-12-31T09:00:00+14:00"},
	{"Pacific/Kwajalein", "0 9 * * *", "1969-09-30T12:00:00+11:00", "1969-10-01T09:00:00-12:00"},
	{"Africa/Monrovia", "0 0 * * *", "1972-01-06T12:00:00Z", "1972-01-07T00:44:30Z 1972-01-08T00:00:00Z"},
}

func TestChangesOfTheClock(t *testing.T) {
	t.Parallel()
	for _, tt := range changes {
		t.Run(tt.zone+" "+tt.expr+" "+tt.after, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, tt.zone)
			wantNext(t, parse(t, tt.expr), at(t, tt.after, loc), strings.Fields(tt.want)...)
			wantNext(t, parse(t, "CRON_TZ="+tt.zone+" "+tt.expr), at(t, tt.after, loc), strings.Fields(tt.want)...)
		})
	}
}

func TestRealIntervals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		zone     string
		year     int
		month    time.Month
		date     int // the clock changes on the day after
		oddSteps int // of "0 * * * *": hours by the clock that are not real hours
	}{
		{"Europe/Berlin", 2026, time.March, 28, 0},
		{"Europe/Berlin", 2026, time.October, 24, 0},
		{"America/New_York", 2026, time.March, 7, 0},
		{"America/New_York", 2026, time.October, 31, 0},
		{"Australia/Lord_Howe", 2026, time.October, 3, 1},
		{"Australia/Lord_Howe", 2026, time.April, 4, 1},
		{"Africa/Cairo", 2026, time.April, 23, 0},
		{"Africa/Cairo", 2026, time.October, 29, 0},
		{"America/Sao_Paulo", 2018, time.November, 3, 0},
		{"America/Sao_Paulo", 2019, time.February, 16, 0},
	}
	for _, tt := range tests {
		from := time.Date(tt.year, tt.month, tt.date, 0, 0, 0, 0, zone(t, tt.zone))
		t.Run(tt.zone+from.Format(" 2006-01-02"), func(t *testing.T) {
			t.Parallel()
			to := from.Add(72 * time.Hour)
			wantSteps(t, "0 * * * *", from, to, time.Hour, 72, tt.oddSteps)
			wantSteps(t, "*/15 * * * *", from, to, 15*time.Minute, 288, 0)
			wantSteps(t, "@every 15m", from, to, 15*time.Minute, 288, 0)
			noon, noonAfter := from.Add(12*time.Hour), time.Date(tt.year, tt.month, tt.date+3, 12, 0, 0, 0, from.Location())
			for _, expr := range []string{"0 0 * * *", "30 0 * * *", "45 1 * * *", "15 2 * * *", "30 2 * * *", "30 23 * * *"} {
				wantSteps(t, expr, noon, noonAfter, 0, 3, 2)
			}
		})
	}
}

// wantSteps counts the instants from from on and before to, and those of the steps between them that are not as long as
// step.
func wantSteps(t *testing.T, expr string, from, to time.Time, step time.Duration, want, wantOdd int) {
	t.Helper()
	s := parse(t, expr)
	n, odd := 0, 0
	for last, next := from, s.Next(from.Add(-1)); next.Before(to); last, next = next, s.Next(next) {
		if n++; n > 1 && next.Sub(last) != step {
			odd++
		}
	}
	if n != want || odd != wantOdd {
		t.Errorf("%s: %d times, %d steps other than %v; want %d and %d", expr, n, odd, step, want, wantOdd)
	}
}

func TestT07_SpringForward(t *testing.T) {
	t.Parallel()
	tests := []struct{ zone, expr, after, want string }{
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00-05:00", "2026-03-08T07:00:00Z 2026-03-09T06:30:00Z"},
		{"America/Los_Angeles", "0 2 * * *", "2025-03-08T12:00:00-08:00", "2025-03-09T10:00:00Z 2025-03-10T09:00:00Z"},
	}
	for _, tt := range tests {
		wantInstants(t, tt.zone, tt.expr, tt.after, tt.want)
	}
}

func TestT09_MidnightThatDoesNotExist(t *testing.T) {
	t.Parallel()
	tests := []struct{ zone, expr, after, want string }{
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00-03:00", "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z"},
		{"America/Sao_Paulo", "0 1 4 11 *", "2018-11-03T12:00:00-03:00", "2018-11-04T03:00:00Z 2019-11-04T04:00:00Z"},
		{"America/Sao_Paulo", "0 9 10 * *", "2018-10-17T00:00:00-03:00", "2018-11-10T11:00:00Z"},
	}
	for _, tt := range tests {
		wantInstants(t, tt.zone, tt.expr, tt.after, tt.want)
		s, after := parse(t, tt.expr), at(t, tt.after, zone(t, tt.zone))
		quickest := time.Hour // of some: the machine may have been busy elsewhere
		for range 5 {
			began := time.Now()
			s.Next(after)
			quickest = min(quickest, time.Since(began))
		}
		if quickest > 100*time.Millisecond {
			t.Errorf("%s took %v", tt.expr, quickest)
		}
	}
}

func wantInstants(t *testing.T, zoneName, expr, after, want string) {
	t.Helper()
	loc := zone(t, zoneName)
	var local []string
	for w := range strings.FieldsSeq(want) {
		local = append(local, at(t, w, loc).Format(time.RFC3339))
	}
	wantNext(t, parse(t, expr), at(t, after, loc), local...)
}

func TestT10_DatesThatNeverOrRarelyCome(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"0 0 30 2 *", "0 0 31 4 *", "TZ=Europe/Berlin 0 0 31 4 *"} {
		if _, err := calendar.Parse(expr); err == nil || !strings.Contains(err.Error(), "never due") {
			t.Errorf("%s: got %v, want never due", expr, err)
		}
	}
	for _, tt := range []struct{ expr, after, want string }{
		{"0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z 2026-05-31T00:00:00Z 2026-07-31T00:00:00Z"},
		{"0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 2 *", "1896-02-29T00:00:00Z", "1904-02-29T00:00:00Z"},
		{"0 0 29 2 */7", "2026-01-01T00:00:00Z", "2032-02-29T00:00:00Z 2060-02-29T00:00:00Z 2088-02-29T00:00:00Z 2128-02-29T00:00:00Z"},
		{"0 0 * * *", "2099-12-30T12:00:00Z", "2099-12-31T00:00:00Z 2100-01-01T00:00:00Z 2100-01-02T00:00:00Z"},
		{"0 0 * * *", "2100-02-27T12:00:00Z", "2100-02-28T00:00:00Z 2100-03-01T00:00:00Z"},
	} {
		wantNext(t, parse(t, tt.expr), at(t, tt.after, time.UTC), strings.Fields(tt.want)...)
	}
}

func TestTheEndsOfTime(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	far := []time.Time{
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		time.Date(10000, 1, 1, 12, 0, 0, 0, berlin),
		time.Unix(1<<62, 0).In(berlin),
		time.Unix(1<<63-1, 999999999),
	}
	for _, expr := range []string{"* * * * *", "0 3 * * *", "0 0 29 2 *", "@every 1s", "CRON_TZ=Asia/Tokyo 0 3 * * *"} {
		s := parse(t, expr)
		for _, after := range far {
			if next := s.Next(after); next != (time.Time{}) {
				t.Errorf("%s: next after %d is %s, want the zero time", expr, after.Unix(), next)
			}
		}
		for _, after := range []time.Time{{}, time.Unix(-1<<60, 0), time.Date(-300, 1, 1, 0, 0, 0, 0, berlin)} {
			if next := s.Next(after); !next.After(time.Time{}) || next.Year() > 4 {
				t.Errorf("%s: next after %d is %s, want one in the first years", expr, after.Unix(), next)
			}
		}
	}
	wantNext(t, parse(t, "0 0 29 2 *"), time.Date(9996, 2, 29, 0, 0, 0, 0, time.UTC), "0001-01-01T00:00:00Z")
	ahead := time.FixedZone("ahead", 100*60*60) // further than any real zone
	wantNext(t, parse(t, "0 3 * * *"), at(t, "2026-01-01T00:00:00Z", ahead), at(t, "2026-01-01T23:00:00Z", ahead).Format(time.RFC3339))
}
