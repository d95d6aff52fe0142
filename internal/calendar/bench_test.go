package calendar_test

import (
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

var benchmarked = []string{
	"@every 90s",
	"*/15 * * * *",
	"0 3 * * *",
	"0 0 29 2 *",
	"* * * 1 *",
	"CRON_TZ=Europe/Berlin */15 * * * *",
	"CRON_TZ=Europe/Berlin 30 2 * * *",
	"CRON_TZ=Europe/Berlin 0 0 29 2 *",
	"CRON_TZ=Europe/Berlin * * 29 2 *",
}

func BenchmarkNext(b *testing.B) {
	for _, expr := range benchmarked {
		b.Run(expr, func(b *testing.B) {
			s, now := parse(b, expr), at(b, "2026-12-31T12:00:00Z", time.UTC)
			for b.Loop() {
				s.Next(now)
			}
		})
	}
}

func BenchmarkLatest(b *testing.B) {
	for _, expr := range benchmarked {
		b.Run(expr, func(b *testing.B) {
			s, now := parse(b, expr), at(b, "2026-12-31T12:00:01Z", time.UTC)
			for b.Loop() {
				calendar.Latest(s, now)
			}
		})
	}
}
