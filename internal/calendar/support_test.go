package calendar_test

import (
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// at reads an RFC 3339 time into a location.
func at(t testing.TB, text string, loc *time.Location) time.Time {
	t.Helper()
	u, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return u.In(loc)
}

func parse(t testing.TB, expr string) calendar.Schedule {
	t.Helper()
	s, err := calendar.Parse(expr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantNext asks s again and again, from after on, and fails at the first answer that is not the one wanted. Every
// answer must be in after's location and print as wanted there.
func wantNext(t testing.TB, s calendar.Schedule, after time.Time, want ...string) {
	t.Helper()
	for i, w := range want {
		got := s.Next(after)
		if got.Location().String() != after.Location().String() {
			t.Errorf("answer %d is in %v, not in %v", i, got.Location(), after.Location())
		}
		if text := got.Format(time.RFC3339Nano); text != w {
			t.Fatalf("next after %s (answer %d): got %s, want %s", after.Format(time.RFC3339Nano), i, text, w)
		}
		after = got
	}
}
