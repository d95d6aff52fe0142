package calendar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

func TestParseCronRefuses(t *testing.T) {
	t.Parallel()
	const five = " fields, not the five minute hour day-of-month month day-of-week"
	tests := []struct{ expr, want string }{
		{"61 * * * *", `cron "61 * * * *": minute: 61 is not in 0-59`},
		{"60 * * * *", `minute: 60 is not in 0-59`},
		{"* 24 * * *", `hour: 24 is not in 0-23`},
		{"* * 0 * *", `day-of-month: 0 is not in 1-31`},
		{"* * 32 * *", `day-of-month: 32 is not in 1-31`},
		{"* * * 0 *", `month: 0 is not in 1-12`},
		{"* * * 13 *", `month: 13 is not in 1-12`},
		{"* * * * 8", `day-of-week: 8 is not in 0-7`},
		{"99999999999999999999 * * * *", `minute: 99999999999999999999 is not in 0-59`},
		{"18446744073709551616/1 * * * *", `minute: 18446744073709551616 is not in 0-59`},
		{"* 5-1 * * *", `hour: 5-1 runs backwards`},
		{"* * * * FRI-SUN", `day-of-week: FRI-SUN runs backwards`},
		{"* 5-24 * * *", `hour: 24 is not in 0-23`},
		{"*/0 * * * *", `minute: "*/0": the step must be 1 or more`},
		{"*/90 * * * *", `minute: "*/90": the step 90 is larger than the range 0-59`},
		{"*/99999999999999999999 * * * *", `larger than the range 0-59`},
		{"5-9/6 * * * *", `minute: "5-9/6": the step 6 is larger than the range 5-9`},
		{"50/11 * * * *", `minute: "50/11": the step 11 is larger than the range 50-59`},
		{"*/ * * * *", `minute: "*/": the step "" is not a number`},
		{"*/x * * * *", `minute: "*/x": the step "x" is not a number`},
		{"*/2/3 * * * *", `minute: "*/2/3": the step "2/3" is not a number`},
		{"*/-1 * * * *", `minute: "*/-1": the step "-1" is not a number`},
		{"/5 * * * *", `minute: "" is not a number`},
		{"*5 * * * *", `minute: "*5" is not a number`},
		{"*-5 * * * *", `minute: "*" is not a number`},
		{"1,,2 * * * *", `minute: "" is not a number`},
		{"1, * * * *", `minute: "" is not a number`},
		{"1-2-3 * * * *", `minute: "2-3" is not a number`},
		{"-5 * * * *", `minute: "" is not a number`},
		{"+5 * * * *", `minute: "+5" is not a number`},
		{"٣ * * * *", `minute: "٣" is not a number`},
		{"? * * * *", `minute: "?" is not a number`},
		{"JAN * * * *", `minute: "JAN" is not a number`},
		{"* * * MON *", `month: "MON" is neither a number nor one of JAN to DEC`},
		{"* * * * MONDAY", `day-of-week: "MONDAY" is neither a number nor one of SUN to SAT`},
		{"* * * * ſUN", `day-of-week: "ſUN" is neither a number nor one of SUN to SAT`},
		{"* * * * L", `day-of-week: "L" is neither a number`},
		{"", `cron "": 0` + five},
		{" \t\n ", `0` + five},
		{"* * * *", `4` + five},
		{"0 * * * * *", `6` + five},
		{"@fortnightly", `1` + five},
		{"@reboot", `1` + five},
		{"@every 90s", `2` + five},
		{"TZ=UTC", `1` + five},
		{"0 0 30 2 *", `cron "0 0 30 2 *": never due`},
		{"0 0 31 4 *", `never due`},
		{"0 0 31 2,4,6,9,11 *", `never due`},
		{"0 0 30-31 FEB ?", `never due`},
	}
	for _, tt := range tests {
		c, err := calendar.ParseCron(tt.expr)
		if err == nil || c != nil {
			t.Errorf("%q: got %v, want an error", tt.expr, c)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %q, want %q", tt.expr, err, tt.want)
		}
	}
}

func TestParseCronNext(t *testing.T) {
	t.Parallel()
	const from = "2026-01-01T00:00:00Z" // a Thursday
	tests := []struct{ expr, want string }{
		{"* * * * *", "2026-01-01T00:01:00Z 2026-01-01T00:02:00Z"},
		{"0 3 * * *", "2026-01-01T03:00:00Z 2026-01-02T03:00:00Z"},
		{"003 03 * * *", "2026-01-01T03:03:00Z"},
		{"5,3,4 3 * * *", "2026-01-01T03:03:00Z 2026-01-01T03:04:00Z 2026-01-01T03:05:00Z 2026-01-02T03:03:00Z"},
		{"*/25 9-10 * * *", "2026-01-01T09:00:00Z 2026-01-01T09:25:00Z 2026-01-01T09:50:00Z 2026-01-01T10:00:00Z"},
		{"10-30/20,59 0 * * *", "2026-01-01T00:10:00Z 2026-01-01T00:30:00Z 2026-01-01T00:59:00Z"},
		{"50/5 0 * * *", "2026-01-01T00:50:00Z 2026-01-01T00:55:00Z 2026-01-02T00:50:00Z"},
		{"*/60 */24 * * *", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z"},
		{"0 0 1 * *", "2026-02-01T00:00:00Z 2026-03-01T00:00:00Z"},
		{"0 0 1 jan-MAR/2 ?", "2026-03-01T00:00:00Z 2027-01-01T00:00:00Z"},
		{"0 0 * * 0", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * 7", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 ? * sun", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * 5-7", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"},
		{"0 0 * * 7/2", "2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-06T00:00:00Z"},
		{"0 0 * * 5/1", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-09T00:00:00Z"},
		{"0 0 * * MON-FRI", "2026-01-02T00:00:00Z 2026-01-05T00:00:00Z"},
		{"0 0 29 2 *", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},

		// Either day is enough when both are restricted, else both must match; "*/2" does not restrict.
		{"0 9 13 * FRI", "2026-01-02T09:00:00Z 2026-01-09T09:00:00Z 2026-01-13T09:00:00Z 2026-01-16T09:00:00Z"},
		{"0 9 1-31 * FRI", "2026-01-01T09:00:00Z 2026-01-02T09:00:00Z"},
		{"0 9 */2 * FRI", "2026-01-09T09:00:00Z 2026-01-23T09:00:00Z 2026-02-13T09:00:00Z"},
		{"0 9 2,3 * */3", "2026-01-03T09:00:00Z 2026-05-02T09:00:00Z 2026-05-03T09:00:00Z"},
		{"0 0 30 2 MON", "2026-02-02T00:00:00Z 2026-02-09T00:00:00Z"},

		{"@yearly", "2027-01-01T00:00:00Z"},
		{"@annually", "2027-01-01T00:00:00Z"},
		{"@monthly", "2026-02-01T00:00:00Z"},
		{"@weekly", "2026-01-04T00:00:00Z"},
		{"@daily", "2026-01-02T00:00:00Z"},
		{" @Midnight ", "2026-01-02T00:00:00Z"},
		{"@hourly", "2026-01-01T01:00:00Z 2026-01-01T02:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.expr, func(t *testing.T) {
			t.Parallel()
			c, err := calendar.ParseCron(tt.expr)
			if err != nil {
				t.Fatal(err)
			}
			wantNext(t, c, at(t, from, time.UTC), strings.Fields(tt.want)...)
		})
	}
}

func TestNextIsStrictlyAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ expr, after, want string }{
		{"0 3 * * *", "2026-01-01T02:59:59.999999999Z", "2026-01-01T03:00:00Z"},
		{"0 3 * * *", "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"},
		{"0 3 * * *", "2026-01-01T03:00:00.000000001Z", "2026-01-02T03:00:00Z"},
		{"* * * * *", "2026-12-31T23:59:30Z", "2027-01-01T00:00:00Z"},
		{"* * * * *", "1969-12-31T23:58:59.5Z", "1969-12-31T23:59:00Z"},
	} {
		wantNext(t, parse(t, tt.expr), at(t, tt.after, time.UTC), tt.want)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ expr, want string }{
		{"", `cron "": empty`},
		{"TZ=UTC", `cron "TZ=UTC": nothing after the time zone`},
		{"CRON_TZ=Europe/Berlin ", `nothing after the time zone`},
		{"CRON_TZ=", `cron "CRON_TZ=": no name after the time zone's =`},
		{"TZ= 0 3 * * *", `no name after the time zone's =`},
		{"TZ=Local 0 3 * * *", `time zone Local is not the same on every machine, name the zone`},
		{"TZ=Mars/Phobos 0 3 * * *", `cron "TZ=Mars/Phobos 0 3 * * *": unknown time zone Mars/Phobos`},
		{"TZ=../../etc/passwd 0 3 * * *", `cron "TZ=../../etc/passwd 0 3 * * *": time: invalid location name`},
		{"TZ=UTC TZ=UTC 0 3 * * *", `6 fields`},
		{"TZ=UTC 61 3 * * *", `minute: 61 is not in 0-59`},
		{"61 * * * *", `cron "61 * * * *": minute: 61 is not in 0-59`},
		{"@every", `@every "": not a duration such as 90s or 1h30m`},
		{"@every tuesday", `@every "tuesday": not a duration`},
		{"@every 1h 1m", `@every "1h 1m": not a duration`},
		{"@every 500ms", `@every 500ms: the period must be whole seconds, at least 1s`},
		{"@every 1.5s", `@every 1.5s: the period must be whole seconds`},
		{"@every 0s", `@every 0s: the period must be`},
		{"@every -1m", `@every -1m0s: the period must be`},
		{"TZ=UTC @every 0s", `@every 0s: the period must be`},
	}
	for _, tt := range tests {
		s, err := calendar.Parse(tt.expr)
		if err == nil || s != nil {
			t.Errorf("%q: got %v, want an error", tt.expr, s)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %q, want %q", tt.expr, err, tt.want)
		}
	}
}

func TestExpression(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ expr, want string }{
		{" 0\t3 * *   * ", "0 3 * * *"},
		{"0 3 * * mon", "0 3 * * mon"},
		{" @daily", "@daily"},
		{"@every  90s", "@every 1m30s"},
		{"CRON_TZ=Europe/Berlin  0 3  * * *", "CRON_TZ=Europe/Berlin 0 3 * * *"},
		{"TZ=Europe/Berlin @every 3600s", "CRON_TZ=Europe/Berlin @every 1h0m0s"},
	} {
		s := parse(t, tt.expr)
		if got := calendar.Expression(s); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.expr, got, tt.want)
		}
		if again := calendar.Expression(parse(t, tt.want)); again != tt.want {
			t.Errorf("%q reads back as %q", tt.want, again)
		}
	}
	if got, want := calendar.Expression(silent{}), "calendar_test.silent"; got != want {
		t.Errorf("without String: got %q, want %q", got, want)
	}
}

type silent struct{}

func (silent) Next(after time.Time) time.Time { return after.Add(time.Hour) }

func TestDaily(t *testing.T) {
	t.Parallel()
	c, err := calendar.Daily(3, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.String(); got != "5 3 * * *" {
		t.Errorf("got %q", got)
	}
	wantNext(t, c, at(t, "2026-01-01T12:00:00Z", time.UTC), "2026-01-02T03:05:00Z", "2026-01-03T03:05:00Z")
	for _, bad := range [][2]int{{-1, 0}, {24, 0}, {0, -1}, {0, 60}} {
		if _, err := calendar.Daily(bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "hours are 0-23") {
			t.Errorf("%v: got %v, want an error", bad, err)
		}
	}
}
