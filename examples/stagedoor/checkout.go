package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

// purchase is what a buyer's browser sends once Payrail's form has taken the money.
type purchase struct {
	Key       string // made by the browser: a checkout that is sent twice is one order
	Email     string
	SeatIDs   []int64 // held by Email
	PaymentID string
}

var errHoldGone = errors.New("the hold on a seat has expired")

// checkout turns a hold into an order. The order, its payment and the jobs that follow from it are one transaction: a
// crash after it loses no job, and where it is rolled back there was none.
func (b *boxOffice) checkout(ctx context.Context, p purchase) (orderID int64, err error) {
	err = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		orderID, err = knownOrder(ctx, tx, p.Key)
		if err != nil || orderID != 0 {
			return err
		}
		orderID, err = placeOrder(ctx, tx, p)
		if err != nil {
			return err
		}
		decided, err := decide(ctx, tx, orderID)
		if err != nil {
			return err
		}
		return b.outbox.Enqueue(ctx, tx, decided...)
	})
	if err != nil {
		return 0, fmt.Errorf("checkout: %w", err)
	}
	return orderID, nil
}

// knownOrder returns the order that a key has led to, or takes the key. A second checkout with the key that comes
// while the first is at work waits here for its end.
func knownOrder(ctx context.Context, tx pgx.Tx, key string) (orderID int64, err error) {
	tag, err := tx.Exec(ctx, `INSERT INTO idempotency_keys (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
	if err != nil || tag.RowsAffected() == 1 {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT order_id FROM idempotency_keys WHERE key = $1`, key).Scan(&orderID)
	return orderID, err
}

// placeOrder sells the seats, if they are still held, and notes the payment.
func placeOrder(ctx context.Context, tx pgx.Tx, p purchase) (orderID int64, err error) {
	freed, err := tx.Exec(ctx, `
		DELETE FROM holds WHERE seat_id = ANY($1) AND buyer = $2 AND expires_at > now()`, p.SeatIDs, p.Email)
	if err != nil {
		return 0, err
	}
	if freed.RowsAffected() != int64(len(p.SeatIDs)) {
		return 0, errHoldGone
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO orders (event_id, email, total_cents)
		SELECT event_id, $2, sum(price_cents) FROM seats WHERE id = ANY($1) GROUP BY event_id
		RETURNING id`, p.SeatIDs, p.Email).Scan(&orderID)
	if err != nil {
		return 0, err
	}
	var rest pgx.Batch
	rest.Queue(`UPDATE seats SET status = 'sold', order_id = $2, version = version + 1 WHERE id = ANY($1)`,
		p.SeatIDs, orderID)
	rest.Queue(`INSERT INTO payments (id, order_id, cents) SELECT $1, id, total_cents FROM orders WHERE id = $2`,
		p.PaymentID, orderID)
	rest.Queue(`UPDATE idempotency_keys SET order_id = $2 WHERE key = $1`, p.Key, orderID)
	return orderID, tx.SendBatch(ctx, &rest).Close()
}

// decide returns the jobs that follow from an order.
func decide(ctx context.Context, tx pgx.Tx, orderID int64) ([]jobs.Job, error) {
	var startsAt time.Time
	err := tx.QueryRow(ctx, `
		SELECT starts_at FROM events WHERE id = (SELECT event_id FROM orders WHERE id = $1)`, orderID).Scan(&startsAt)
	if err != nil {
		return nil, err
	}
	args := orderArgs{OrderID: orderID}
	return []jobs.Job{
		renderTickets.Job(args),
		sendTickets.Job(args),
		sendReminder.Job(args).At(startsAt.Add(-remindBefore)),
	}, nil
}
