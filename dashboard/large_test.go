package dashboard_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/dashboard"
	"github.com/stagedoor/jobs/internal/servers"
)

// A page of a large set is as small as any. How long it takes is reported, not judged; JOBS_LARGE=1 makes the sets as
// large as promised: 10,000 dead letters and 1,000,000 delayed jobs.
func TestLargeSets(t *testing.T) {
	t.Parallel()
	dead, delayed := 1000, 20_000
	if os.Getenv("JOBS_LARGE") != "" {
		dead, delayed = 10_000, 1_000_000
	}
	s := newSite(t, servers.NewRedis(t).Client(t), dashboard.Options{Authenticated: true})
	traceback := strings.Repeat("  File stagedoor/pdf.go, line 88, in barcode_for\n", 40)
	fill := func(n int, add func(p redis.Pipeliner, i int)) {
		for i := 0; i < n; {
			p := s.rdb.Pipeline()
			for end := min(n, i+5000); i < end; i++ {
				add(p, i)
			}
			_, err := p.Exec(t.Context())
			must(t, err)
		}
	}
	fill(dead, func(p redis.Pipeliner, i int) {
		p.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs:dead", Values: []any{"kind", "render_tickets", "job_id", i,
			"order_id", i, "attempts", 2, "error", "SeatLabelInvalid: '14-C'", "traceback", traceback}})
	})
	begin := time.Now().Add(time.Hour).Unix()
	fill(delayed, func(p redis.Pipeliner, i int) {
		member := fmt.Sprintf(`{"kind":"send_reminder","job_id":"%d","order_id":"%d","attempts":"0"}`, i, i)
		p.ZAdd(t.Context(), "delayed", redis.Z{Score: float64(begin + int64(i)), Member: member})
	})
	middle := time.Unix(begin+int64(delayed/2), 0).UTC().Format("2006-01-02T15:04")
	for _, path := range []string{"", "dead", "dead?error=nowhere", "confirm?do=replay-all&kind=render_tickets",
		"delayed", "delayed?from=" + middle, "delayed?id=nobody"} {
		began := time.Now()
		page := s.get(path)
		t.Logf("%-45s %6s  %d bytes", path, time.Since(began).Round(time.Millisecond), len(page))
		if len(page) > 128<<10 {
			t.Errorf("%s has %d bytes", path, len(page))
		}
	}
}
