package store_test

import (
	"testing"

	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/internal/store"
)

// BenchmarkSettle is a round trip that settles one entry and fetches the next.
func BenchmarkSettle(b *testing.B) {
	s := store.New(servers.SharedRedis(b).Client(b), servers.Prefix(b)).As("w1")
	if err := s.MakeGroup(b.Context()); err != nil {
		b.Fatal(err)
	}
	items := make([]store.Item, 1000)
	for i := range items {
		items[i].Entry = []string{
			"kind", "render_tickets", "order_id", "4471", "job_id", "88210", "attempts", "0",
			"request_id", "7f3a9c2e-5b7d-4b0e-9d0a-3c1f2e4d5a6b", "trace", "4bf92f3577b34da6a3ce929d0e0e4736",
		}
	}
	ready := 0
	var running []store.Entry
	b.ReportAllocs()
	for b.Loop() {
		if ready == 0 {
			b.StopTimer()
			if _, _, err := s.Enqueue(b.Context(), items); err != nil {
				b.Fatal(err)
			}
			ready = len(items)
			b.StartTimer()
		}
		trip := s.Trip(b.Context())
		for _, e := range running {
			trip.Done(e.ID)
		}
		trip.Fetch(1)
		var err error
		if running, err = trip.Go(); err != nil || len(running) != 1 {
			b.Fatal(running, err)
		}
		ready--
	}
}
