package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
)

var night = time.Date(2026, 3, 29, 3, 0, 0, 0, time.UTC)

// nightly is the context of the run that is due at 03:00 on 29 March.
func nightly(t *testing.T) context.Context {
	return withJob(t, jobs.Job{ID: "1", Kind: reconcilePayments.Name(), Tick: night})
}

// payments puts five payments of the day before on the books, ours and Payrail's. Payrail shows two to a page.
func (f *fixture) payments(t *testing.T) {
	t.Helper()
	f.exec(t, `
		INSERT INTO orders (id, event_id, email, total_cents)
		SELECT n, 1, 'ada@example.org', 8900 FROM generate_series(1, 5) n`)
	f.exec(t, `
		INSERT INTO payments (id, order_id, cents) SELECT 'pay_' || n, n, 8900 FROM generate_series(1, 5) n`)
	for i, status := range []string{"captured", "authorized", "captured", "refunded", "captured"} {
		f.payrail.add(payment{
			ID:         "pay_" + string(rune('1'+i)),
			Cents:      8900,
			Status:     status,
			CapturedAt: night.Add(-time.Duration(4+i) * time.Hour),
		})
	}
}

func (f *fixture) statuses(t *testing.T) string {
	t.Helper()
	return one[string](t, f, `
		SELECT string_agg(payments.status || '/' || orders.status, ' ' ORDER BY orders.id)
		FROM payments JOIN orders ON orders.id = payments.order_id`)
}

func TestReconcilePayments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payments(t)

	twice(t, f, nightly(t), f.reconcilePayments, jobs.None{})

	want := "captured/paid authorized/pending captured/paid refunded/pending captured/paid"
	if got := f.statuses(t); got != want {
		t.Errorf("payments are\n%s, want\n%s", got, want)
	}
	if strings.Contains(f.log.String(), "WARN") {
		t.Errorf("warned:\n%s", f.log)
	}
}

func TestReconcilePaymentsWalksTheDaysBeforeItsTick(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.reconcilePayments(nightly(t), jobs.None{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"2026-03-27", "2026-03-28"}; !slices.Equal(f.payrail.asked, want) {
		t.Errorf("asked for %v, want %v", f.payrail.asked, want)
	}
}

func TestReconcilePaymentsChangesNoPaymentThatIsNotOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payments(t)
	f.exec(t, `UPDATE payments SET cents = 100 WHERE id = 'pay_1'`)
	f.exec(t, `DELETE FROM payments WHERE id = 'pay_3'`)

	twice(t, f, nightly(t), f.reconcilePayments, jobs.None{})

	want := "authorized/pending authorized/pending refunded/pending captured/paid"
	if got := f.statuses(t); got != want {
		t.Errorf("payments are\n%s, want\n%s", got, want)
	}
	for _, id := range []string{"payment=pay_1", "payment=pay_3"} {
		if !strings.Contains(f.log.String(), id) {
			t.Errorf("no warning with %s:\n%s", id, f.log)
		}
	}
}

// Payrail fails in the middle of the walk. Nothing is retried that night, and the next night's run covers it.
func TestReconcilePaymentsTheNightAfterAFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.payments(t)
	f.payrail.failNext(1)
	err := f.reconcilePayments(nightly(t), jobs.None{})
	if want := "payrail: payments of 2026-03-27: answered 503 Service Unavailable"; err == nil || err.Error() != want {
		t.Fatalf("with Payrail down: %v, want %s", err, want)
	}
	tomorrow := withJob(t, jobs.Job{ID: "2", Kind: reconcilePayments.Name(), Tick: night.AddDate(0, 0, 1)})
	if err := f.reconcilePayments(tomorrow, jobs.None{}); err != nil {
		t.Fatal(err)
	}
	if got := f.statuses(t); strings.Count(got, "captured/paid") != 3 {
		t.Errorf("payments are %s, want 3 captured and paid", got)
	}
}
