package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/jobstest"
	"github.com/stagedoor/jobs/outbox"
)

// ada's purchase of seats that she holds.
func (f *fixture) ada(t *testing.T, ttl time.Duration, labels ...string) purchase {
	t.Helper()
	seats, err := f.seatIDs(t.Context(), labels...)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.hold(t.Context(), "ada@example.org", seats, ttl); err != nil {
		t.Fatal(err)
	}
	return purchase{Key: "k1", Email: "ada@example.org", SeatIDs: seats, PaymentID: "pay_1"}
}

// carry has a relay carry what checkouts have decided on, all of it.
func (f *fixture) carry(t *testing.T, q *jobstest.Queue) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- outbox.NewRelay(f.db, q.Client(), outbox.RelayConfig{}).Run(ctx) }()
	for one[bool](t, f, `SELECT EXISTS (SELECT FROM jobs.outbox WHERE published_at IS NULL)`) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestCheckout(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), jobstest.New(t, jobs.Config{})
	p := f.ada(t, time.Hour, "1A", "2A")

	orderID, err := f.checkout(t.Context(), p)
	if err != nil || orderID != 4471 {
		t.Fatalf("checkout: %d, %v", orderID, err)
	}
	for query, want := range map[string]string{
		`SELECT concat_ws(' ', email, total_cents, status) FROM orders WHERE id = 4471`:                    "ada@example.org 17800 pending",
		`SELECT concat_ws(' ', id, cents, status) FROM payments WHERE order_id = 4471`:                     "pay_1 17800 authorized",
		`SELECT string_agg(label || ' ' || status, ', ') FROM seats WHERE order_id = 4471`:                 "1A sold, 2A sold",
		`SELECT count(*)::text FROM holds`:                                                                 "0",
		`SELECT string_agg(concat_ws(' ', kind, fields->>'order_id'), ', ' ORDER BY seq) FROM jobs.outbox`: "render_tickets 4471, send_tickets 4471, send_reminder 4471",
		`SELECT count(published_at)::text FROM jobs.outbox`:                                                "0",
	} {
		if got := one[string](t, f, query); got != want {
			t.Errorf("%s:\n%s, want %s", query, got, want)
		}
	}
	f.carry(t, q)
	var ready []string
	for _, job := range q.Ready() {
		ready = append(ready, job.Kind)
	}
	if diff := cmp.Diff([]string{"render_tickets", "send_tickets"}, ready); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	due := one[time.Time](t, f, `SELECT starts_at - interval '24 hours' FROM events`)
	if delayed := q.Delayed(); len(delayed) != 1 || delayed[0].Kind != "send_reminder" || !delayed[0].Due.Equal(due) {
		t.Errorf("delayed: %v, want the reminder at %v", delayed, due)
	}
}

func TestCheckoutTwiceIsOneOrder(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), jobstest.New(t, jobs.Config{})
	p := f.ada(t, time.Hour, "1A")
	type answer struct {
		orderID int64
		err     error
	}
	answers := make(chan answer)
	for range 5 {
		go func() {
			id, err := f.checkout(t.Context(), p)
			answers <- answer{id, err}
		}()
	}
	for range 5 {
		if got := <-answers; got.err != nil || got.orderID != 4471 {
			t.Errorf("checkout: %v, want order 4471", got)
		}
	}
	f.carry(t, q)
	if n := len(q.Ready()) + len(q.Delayed()); n != 3 {
		t.Errorf("%d jobs were enqueued, want 3", n)
	}
}

func TestCheckoutThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), jobstest.New(t, jobs.Config{})
	if _, err := f.checkout(t.Context(), f.ada(t, time.Hour, "1A")); err != nil {
		t.Fatal(err)
	}
	late := f.ada(t, -time.Second, "2A")
	late.Key = "k2"
	paidBefore := f.ada(t, time.Hour, "3A")
	paidBefore.Key = "k3"
	before := f.contents(t)

	if _, err := f.checkout(t.Context(), late); !errors.Is(err, errHoldGone) {
		t.Errorf("checkout of an expired hold: %v", err)
	}
	if _, err := f.checkout(t.Context(), paidBefore); err == nil {
		t.Error("one payment paid two orders")
	}
	if diff := cmp.Diff(before, f.contents(t)); diff != "" {
		t.Errorf("they changed:\n%s", diff)
	}
	f.carry(t, q)
	if n := len(q.Ready()); n != 2 {
		t.Errorf("%d jobs are ready, want the 2 of the first order", n)
	}
}
