package calendar_test

import (
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

func TestEvery(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	tests := []struct {
		period      time.Duration
		after, want string
	}{
		{90 * time.Second, "2026-01-01T12:00:07.5Z", "2026-01-01T13:01:30+01:00"}, // not 90 s after the question
		{90 * time.Second, "2026-01-01T12:01:30Z", "2026-01-01T13:03:00+01:00"},
		{time.Second, "2026-01-01T12:00:00.000000001Z", "2026-01-01T13:00:01+01:00"},
		{time.Second, "2026-01-01T12:00:00Z", "2026-01-01T13:00:01+01:00"},
		{time.Hour, "1969-12-31T22:59:59.5Z", "1970-01-01T00:00:00+01:00"},
		{time.Hour, "1969-12-31T23:00:00Z", "1970-01-01T01:00:00+01:00"},
		{7 * 24 * time.Hour, "1970-01-01T00:00:00Z", "1970-01-08T01:00:00+01:00"},
		{24 * time.Hour, "2026-03-29T00:30:00Z", "2026-03-30T02:00:00+02:00"}, // midnight UTC
	}
	for _, tt := range tests {
		e, err := calendar.NewEvery(tt.period)
		if err != nil {
			t.Fatal(err)
		}
		wantNext(t, e, at(t, tt.after, berlin), tt.want)
	}
}

func TestNewEveryRefuses(t *testing.T) {
	t.Parallel()
	for period, want := range map[time.Duration]string{
		0:                      "@every 0s: the period must be whole seconds, at least 1s",
		-time.Minute:           "@every -1m0s: the period must be whole seconds, at least 1s",
		999 * time.Millisecond: "@every 999ms: the period must be whole seconds, at least 1s",
		time.Second + 1:        "@every 1.000000001s: the period must be whole seconds, at least 1s",
	} {
		if e, err := calendar.NewEvery(period); err == nil || err.Error() != want {
			t.Errorf("%v: got %v, %v; want %q", period, e, err, want)
		}
	}
	if next := (calendar.Every{}).Next(time.Unix(0, 0)); !next.IsZero() {
		t.Errorf("the zero value is due at %s", next)
	}
}
