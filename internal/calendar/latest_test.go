package calendar_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

// schedule is a Schedule that a caller might write.
type schedule func(after time.Time) time.Time

func (s schedule) Next(after time.Time) time.Time { return s(after) }

func TestLatest(t *testing.T) {
	t.Parallel()
	tests := []struct{ expr, now, want string }{
		{"@every 1s", "2026-01-01T12:00:00.5Z", "2026-01-01T12:00:00Z"},
		{"@every 90s", "2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"}, // now itself
		{"@every 90s", "2026-01-01T12:01:29.9Z", "2026-01-01T12:00:00Z"},
		{"* * * * *", "2026-01-01T12:00:59Z", "2026-01-01T12:00:00Z"},
		{"0 * * * *", "2026-01-01T12:59:59Z", "2026-01-01T12:00:00Z"},
		{"0 3 * * *", "2026-01-01T02:59:59Z", "2025-12-31T03:00:00Z"},
		{"* 3 * * *", "2026-01-01T02:59:59Z", "2025-12-31T03:59:00Z"},
		{"0 3 * * MON", "2026-01-04T00:00:00Z", "2025-12-29T03:00:00Z"},
		{"0 0 31 * *", "2026-07-30T00:00:00Z", "2026-05-31T00:00:00Z"},
		{"* * * 1 *", "2026-12-31T23:59:59Z", "2026-01-31T23:59:00Z"},
		{"@yearly", "2026-12-31T23:59:59Z", "2026-01-01T00:00:00Z"},
		{"0 0 29 2 *", "2104-02-28T23:59:59Z", "2096-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2026-01-01T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T02:00:00Z", "2026-10-25T00:30:00Z"},
		{"CRON_TZ=Europe/Berlin 0 0 * * *", "2026-10-25T22:59:59Z", "2026-10-24T22:00:00Z"}, // a day of 25 hours
		{"@every 100000h", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},                  // further back than it looks
	}
	for _, tt := range tests {
		t.Run(tt.expr+" "+tt.now, func(t *testing.T) {
			t.Parallel()
			calls := 0
			s := parse(t, tt.expr)
			counted := schedule(func(after time.Time) time.Time { calls++; return s.Next(after) })
			got := calendar.Latest(counted, at(t, tt.now, time.UTC))
			if text := got.UTC().Format(time.RFC3339Nano); text != tt.want {
				t.Errorf("got %s, want %s", text, tt.want)
			}
			if calls > 60 {
				t.Errorf("%d calls of Next", calls)
			}
		})
	}
}

func TestLatestOfACallersSchedule(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-01-01T12:00:00Z", time.UTC)
	dice := rand.New(rand.NewPCG(1, 2))
	once := func(due time.Time) schedule {
		return func(after time.Time) time.Time {
			if after.Before(due) {
				return due
			}
			return time.Time{}
		}
	}
	tests := []struct {
		name string
		s    calendar.Schedule
		want time.Time
	}{
		{"nil", nil, time.Time{}},
		{"nil cron", (*calendar.Cron)(nil), time.Time{}},
		{"never", schedule(func(time.Time) time.Time { return time.Time{} }), time.Time{}},
		{"stands still", schedule(func(after time.Time) time.Time { return after }), time.Time{}},
		{"runs back", schedule(func(after time.Time) time.Time { return after.Add(-time.Hour) }), time.Time{}},
		{"the same for ever", schedule(func(time.Time) time.Time { return now.Add(-time.Hour) }), now.Add(-time.Hour)},
		{"always now", schedule(func(time.Time) time.Time { return now }), now},
		{"once", once(now.Add(-time.Minute)), now.Add(-time.Minute)},
		{"once, in a minute", once(now.Add(time.Minute)), time.Time{}},
		{"each nanosecond", schedule(func(after time.Time) time.Time { return after.Add(1) }), now},
	}
	for _, tt := range tests {
		if got := calendar.Latest(bounded(t, tt.name, tt.s), now); !got.Equal(tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	anything := schedule(func(after time.Time) time.Time {
		return after.Add(time.Duration(dice.Int64N(int64(4*time.Hour))) - time.Hour)
	})
	for range 1000 {
		if got := calendar.Latest(bounded(t, "anything", anything), now); got.After(now) {
			t.Fatalf("anything: got %s, later than now", got)
		}
	}
}

// bounded fails the test when s is asked too often in one search.
func bounded(t *testing.T, name string, s calendar.Schedule) calendar.Schedule {
	if s == nil || s == calendar.Schedule((*calendar.Cron)(nil)) {
		return s
	}
	calls := 0
	return schedule(func(after time.Time) time.Time {
		if calls++; calls > 150 {
			t.Fatalf("%s: Next was called %d times", name, calls)
		}
		return s.Next(after)
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-01-01T12:00:00Z", time.UTC)
	hour := now.Add(time.Hour)
	tests := []struct {
		name string
		s    calendar.Schedule
		want string // "": passes
	}{
		{"cron", parse(t, "0 3 * * *"), ""},
		{"rare", parse(t, "0 0 29 2 *"), ""},
		{"every", parse(t, "@every 1s"), ""},
		{"in a zone", parse(t, "TZ=Asia/Tokyo @daily"), ""},
		{"once more", schedule(func(after time.Time) time.Time {
			if after.Before(hour) {
				return hour
			}
			return time.Time{}
		}), ""},
		{"nil", nil, "schedule is nil"},
		{"nil cron", (*calendar.Cron)(nil), "schedule is nil"},
		{"zero every", calendar.Every{}, "schedule @every 0s is never due after 2026-01-01T12:00:00Z"},
		{"zero cron", new(calendar.Cron), "is never due after 2026-01-01T12:00:00Z"},
		{"never", schedule(func(time.Time) time.Time { return time.Time{} }), "schedule calendar_test.schedule is never due after"},
		{"stands still", schedule(func(after time.Time) time.Time { return after }),
			"schedule calendar_test.schedule does not advance: next after 2026-01-01T12:00:00Z is 2026-01-01T12:00:00Z"},
		{"runs back", schedule(func(after time.Time) time.Time { return after.Add(-1) }), "does not advance"},
		{"sticks an hour later", schedule(func(time.Time) time.Time { return hour }),
			"does not advance: next after 2026-01-01T13:00:00Z is 2026-01-01T13:00:00Z"},
		{"past", schedule(func(time.Time) time.Time { return now.Add(-time.Hour) }), "does not advance"},
	}
	for _, tt := range tests {
		err := calendar.Check(tt.s, now)
		if tt.want == "" && err != nil {
			t.Errorf("%s: got %v, want no error", tt.name, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
