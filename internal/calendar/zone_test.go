package calendar_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

func TestInZone(t *testing.T) {
	t.Parallel()
	berlin, tokyo := zone(t, "Europe/Berlin"), zone(t, "Asia/Tokyo")
	now := at(t, "2026-01-01T12:00:00Z", time.UTC)
	three := parse(t, "0 3 * * *")
	tests := []struct {
		name, want, text string
		s                calendar.Schedule
	}{
		{"cron", "2026-01-02T03:00:00+01:00", "CRON_TZ=Europe/Berlin 0 3 * * *", calendar.InZone(berlin, three)},
		{"nested", "2026-01-02T03:00:00+09:00", "CRON_TZ=Asia/Tokyo 0 3 * * *",
			calendar.InZone(berlin, calendar.InZone(tokyo, three))},
		{"parsed with a zone", "2026-01-02T03:00:00+09:00", "CRON_TZ=Asia/Tokyo 0 3 * * *",
			calendar.InZone(berlin, parse(t, "TZ=Asia/Tokyo 0 3 * * *"))},
		{"a caller's", "2026-01-01T14:00:00+01:00", "CRON_TZ=Europe/Berlin calendar_test.silent",
			calendar.InZone(berlin, silent{})},
		{"a caller's that answers in UTC", "2026-01-01T14:00:00+01:00", "CRON_TZ=Europe/Berlin calendar_test.schedule",
			calendar.InZone(berlin, schedule(func(after time.Time) time.Time { return after.Add(time.Hour).UTC() }))},
	}
	for _, tt := range tests {
		if got := tt.s.Next(now).Format(time.RFC3339); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if got := calendar.Expression(tt.s); got != tt.text {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.text)
		}
	}
	never := calendar.InZone(berlin, schedule(func(time.Time) time.Time { return time.Time{} }))
	if next := never.Next(now); next != (time.Time{}) {
		t.Errorf("never: got %v, want the zero time", next)
	}
}

func TestInZoneWithNil(t *testing.T) {
	t.Parallel()
	if s := calendar.InZone(time.UTC, nil); calendar.Check(s, time.Unix(0, 0)) == nil {
		t.Errorf("a nil schedule in a zone passes: %v", s)
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil location was taken for something")
		}
	}()
	calendar.InZone(nil, parse(t, "@hourly"))
}

// TestZoneOfARule asks around the ends of years in a zone that is little more than its rule, where package time's
// ZoneBounds answers with a start after the instant (before 1970) or an end before it (in leap years).
func TestZoneOfARule(t *testing.T) {
	t.Parallel()
	loc := zoneOfRule(t, "CET-1CEST,M3.5.0,M10.5.0/3")
	for _, year := range []int{1904, 1959, 1960, 1967, 1968, 1969, 1970, 2028, 2029, 2040} {
		for hour := range 96 {
			after := time.Date(year, 12, 30, hour, 30, 0, 0, loc)
			hourly := after.Add(30 * time.Minute).Format(time.RFC3339)
			wantNext(t, parse(t, "0 * * * *"), after, hourly)
			wantNext(t, parse(t, "0 0-23 * * *"), after, hourly)
			wantNext(t, parse(t, "0 2 1 7 *"), after, time.Date(year+1, 7, 1, 2, 0, 0, 0, loc).Format(time.RFC3339))
		}
	}
}

// zoneOfRule makes a location by RFC 8536: one type, one transition to it in 1900, and from then on the rule.
func zoneOfRule(t *testing.T, rule string) *time.Location {
	t.Helper()
	header := func(transitions, types, letters uint32) []byte {
		h := append([]byte("TZif2"), make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, transitions, types, letters} {
			h = binary.BigEndian.AppendUint32(h, n)
		}
		return h
	}
	data := append(header(0, 1, 1), make([]byte, 6+1)...)
	data = append(data, header(1, 1, 4)...)
	data = binary.BigEndian.AppendUint64(data, uint64(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).Unix()))
	data = append(data, 0)
	data = binary.BigEndian.AppendUint32(data, 3600)
	data = append(data, "\x00\x00CET\x00\n"+rule+"\n"...)
	loc, err := time.LoadLocationFromTZData("CET", data)
	if err != nil {
		t.Fatal(err)
	}
	if summer := time.Date(2026, 7, 1, 0, 0, 0, 0, loc).Format("MST"); summer != "CEST" {
		t.Fatalf("July is in %s", summer)
	}
	return loc
}
