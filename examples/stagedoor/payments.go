package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

// reconcilePayments is never retried: a retry would walk every payment a second time in one night, and the next
// night's run covers it.
var reconcilePayments = jobs.NewKind[jobs.None]("reconcile_payments", jobs.Policy{})

// reconciledDays is how many days before its tick a run walks: the day before, and one more for a night that failed.
const reconciledDays = 2

// reconcilePayments brings our payments and orders to what Payrail says of the last days. The days are counted from
// the job's tick, so that a run which a deploy made late still walks the days it was meant for.
func (b *boxOffice) reconcilePayments(ctx context.Context, _ jobs.None) error {
	tick := time.Now()
	if job, ok := jobs.FromContext(ctx); ok && !job.Tick.IsZero() {
		tick = job.Tick
	}
	for back := reconciledDays; back > 0; back-- {
		day := tick.UTC().AddDate(0, 0, -back)
		for page, err := range b.payrail.payments(ctx, day) {
			if err != nil {
				return err
			}
			if err := b.settle(ctx, page); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle writes one page of Payrail's payments in one transaction. A payment that we do not know, or know with
// another amount, changes nothing: it is for a human.
func (b *boxOffice) settle(ctx context.Context, page []payment) error {
	ids, cents, statuses := columns(page)
	var unmatched []string
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE payments SET status = theirs.status, reconciled_at = now()
			FROM unnest($1::text[], $2::bigint[], $3::text[]) AS theirs (id, cents, status)
			WHERE payments.id = theirs.id AND payments.cents = theirs.cents
			  AND payments.status <> theirs.status`, ids, cents, statuses)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE orders SET status = 'paid' FROM payments
			WHERE payments.order_id = orders.id AND payments.id = ANY($1)
			  AND payments.status = 'captured' AND orders.status = 'pending'`, ids)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			SELECT theirs.id FROM unnest($1::text[], $2::bigint[]) AS theirs (id, cents)
			WHERE NOT EXISTS (SELECT 1 FROM payments
				WHERE payments.id = theirs.id AND payments.cents = theirs.cents)`, ids, cents)
		if err != nil {
			return err
		}
		unmatched, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	for _, id := range unmatched {
		b.log.WarnContext(ctx, "payment at Payrail that is not ours, or has another amount", "payment", id)
	}
	return err
}

func columns(page []payment) (ids []string, cents []int64, statuses []string) {
	for _, p := range page {
		ids = append(ids, p.ID)
		cents = append(cents, p.Cents)
		statuses = append(statuses, p.Status)
	}
	return ids, cents, statuses
}

// payment is one payment as Payrail's API shows it.
type payment struct {
	ID         string    `json:"id"`
	Cents      int64     `json:"amount_cents"`
	Status     string    `json:"status"` // authorized, captured or refunded
	CapturedAt time.Time `json:"captured_at"`
}

// paymentPage is the answer of GET /payments; Next is empty on the last page.
type paymentPage struct {
	Payments []payment `json:"payments"`
	Next     string    `json:"next"`
}

// payrailClient reads payments over HTTP. It does not retry: that is the queue's business.
type payrailClient struct {
	url  string
	http *http.Client
}

// payments walks the payments of one day (UTC), page by page. After an error it yields nothing more.
func (c payrailClient) payments(ctx context.Context, day time.Time) iter.Seq2[[]payment, error] {
	return func(yield func([]payment, error) bool) {
		query := url.Values{"day": {day.Format(time.DateOnly)}}
		for {
			page, err := c.page(ctx, query)
			if err != nil {
				yield(nil, fmt.Errorf("payrail: payments of %s: %w", query.Get("day"), err))
				return
			}
			if !yield(page.Payments, nil) || page.Next == "" {
				return
			}
			query.Set("page", page.Next)
		}
	}
}

func (c payrailClient) page(ctx context.Context, query url.Values) (page paymentPage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/payments?"+query.Encode(), nil)
	if err != nil {
		return page, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return page, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return page, fmt.Errorf("answered %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&page)
	return page, err
}
