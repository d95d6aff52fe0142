package calendar_test

import (
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

// FuzzParse: whatever the text, no panic; and what can be read advances, can be read again from its own text, and has
// answers that Latest finds again.
func FuzzParse(f *testing.F) {
	f.Add("30 2 * * *", int64(1774746000))
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Monrovia"} {
		zones = append(zones, zone(f, name))
	}
	f.Fuzz(func(t *testing.T, expr string, unix int64) {
		s, err := calendar.Parse(expr)
		if err != nil {
			return
		}
		after := time.Unix(unix, 0).In(zones[uint64(unix)%uint64(len(zones))])
		for range 5 {
			next := s.Next(after)
			if next.IsZero() {
				break
			}
			if !next.After(after) || next.Nanosecond() != 0 {
				t.Fatalf("%q: next after %s is %s", expr, after, next)
			}
			if last := calendar.Latest(s, next); !last.Equal(next) {
				t.Fatalf("%q: latest up to %s is %s", expr, next, last)
			}
			after = next
		}
		text := calendar.Expression(s)
		again, err := calendar.Parse(text)
		if err != nil || calendar.Expression(again) != text || !again.Next(after).Equal(s.Next(after)) {
			t.Fatalf("%q reads as %q, which reads as %v (%v)", expr, text, again, err)
		}
	})
}
