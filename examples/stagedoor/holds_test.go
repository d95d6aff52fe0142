package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
)

func TestExpireHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for label, ttl := range map[string]time.Duration{"1A": -time.Second, "2A": -time.Hour, "3A": time.Hour} {
		seats, err := f.seatIDs(t.Context(), label)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.hold(t.Context(), "ada@example.org", seats, ttl); err != nil {
			t.Fatal(err)
		}
	}
	f.order1(t, "2A") // sold meanwhile: its hold is stale, and the seat stays sold

	twice(t, f, t.Context(), f.expireHolds, jobs.None{})

	for label, want := range map[string]string{"1A": "available 2", "2A": "sold 1", "3A": "held 1", "4A": "available 0"} {
		if got := one[string](t, f, `SELECT status || ' ' || version FROM seats WHERE label = $1`, label); got != want {
			t.Errorf("seat %s is %s, want %s", label, got, want)
		}
	}
	if n := one[int](t, f, `SELECT count(*) FROM holds`); n != 1 {
		t.Errorf("%d holds are left, want the one that has time", n)
	}
}

func TestHoldIsAllOrNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pair, err := f.seatIDs(t.Context(), "1A", "2A")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.hold(t.Context(), "bob@example.org", pair[1:], time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := f.hold(t.Context(), "ada@example.org", pair, time.Hour); !errors.Is(err, errSeatTaken) {
		t.Errorf("holding a seat that is held: %v", err)
	}
	if status := one[string](t, f, `SELECT status FROM seats WHERE label = '1A'`); status != "available" {
		t.Errorf("the other seat is %s", status)
	}
}

func TestOneOfManyBuyersGetsTheSeat(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seat, err := f.seatIDs(t.Context(), "1A")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	for range 10 {
		go func() { results <- f.hold(t.Context(), "ada@example.org", seat, time.Hour) }()
	}
	got := 0
	for range 10 {
		switch err := <-results; {
		case err == nil:
			got++
		case !errors.Is(err, errSeatTaken):
			t.Error(err)
		}
	}
	if got != 1 {
		t.Errorf("%d buyers hold the seat", got)
	}
}

// A buyer's statement began while the seat was free and waits for another's hold, which becomes a sale meanwhile.
func TestHoldOfASeatThatIsJustBeingSold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seat, err := f.seatIDs(t.Context(), "1A")
	if err != nil {
		t.Fatal(err)
	}
	sale, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sale.Rollback(t.Context())
	if _, err := sale.Exec(t.Context(), `INSERT INTO holds VALUES ($1, 'bob@example.org', now())`, seat[0]); err != nil {
		t.Fatal(err)
	}
	late := make(chan error)
	go func() { late <- f.hold(t.Context(), "ada@example.org", seat, time.Hour) }()
	waiting := `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
	for !one[bool](t, f, waiting) {
	}
	for _, sql := range []string{`UPDATE seats SET status = 'sold' WHERE id = $1`, `DELETE FROM holds WHERE seat_id = $1`} {
		if _, err := sale.Exec(t.Context(), sql, seat[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := sale.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-late; !errors.Is(err, errSeatTaken) {
		t.Errorf("holding a sold seat: %v", err)
	}
	if status := one[string](t, f, `SELECT status FROM seats WHERE label = '1A'`); status != "sold" {
		t.Errorf("the seat is %s", status)
	}
}
