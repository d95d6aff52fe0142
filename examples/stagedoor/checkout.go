package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// checkout turns a hold into an order. Order, payment and outbox rows are one transaction; the jobs are enqueued once
// it is committed. A crash between the two leaves rows with published_at NULL, which nobody here enqueues later: that
// takes an outbox relay.
func (b *boxOffice) checkout(ctx context.Context, queue *jobs.Client, p purchase) (orderID int64, err error) {
	var decided []jobs.Job
	err = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		orderID, err = knownOrder(ctx, tx, p.Key)
		if err != nil || orderID != 0 {
			return err
		}
		orderID, err = placeOrder(ctx, tx, p)
		if err != nil {
			return err
		}
		decided, err = addToOutbox(ctx, tx, orderID)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("checkout: %w", err)
	}
	if err := b.publish(ctx, queue, decided); err != nil {
		return orderID, fmt.Errorf("checkout: order %d: %w", orderID, err)
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

// addToOutbox writes down the jobs that follow an order. A job's ID is the number of its row, so it is the same job
// whoever enqueues it, and how often.
func addToOutbox(ctx context.Context, tx pgx.Tx, orderID int64) ([]jobs.Job, error) {
	var startsAt time.Time
	err := tx.QueryRow(ctx, `
		SELECT starts_at FROM events WHERE id = (SELECT event_id FROM orders WHERE id = $1)`, orderID).Scan(&startsAt)
	if err != nil {
		return nil, err
	}
	args, remindAt := orderArgs{OrderID: orderID}, startsAt.Add(-remindBefore)
	decided := []jobs.Job{
		renderTickets.Job(args),
		sendTickets.Job(args),
		sendReminder.Job(args).At(remindAt),
	}
	for i, runAt := range []*time.Time{nil, nil, &remindAt} {
		job := &decided[i]
		var row int64
		err := tx.QueryRow(ctx, `
			INSERT INTO outbox (kind, fields, run_at) VALUES ($1, $2, $3) RETURNING id`,
			job.Kind, job.Fields, runAt).Scan(&row)
		if err != nil {
			return nil, err
		}
		job.ID = strconv.FormatInt(row, 10)
	}
	return decided, nil
}

// publish enqueues jobs of the outbox and marks their rows.
func (b *boxOffice) publish(ctx context.Context, queue *jobs.Client, decided []jobs.Job) error {
	if len(decided) == 0 {
		return nil
	}
	if err := queue.Enqueue(ctx, decided...); err != nil {
		return err
	}
	var rows []string
	for _, job := range decided {
		rows = append(rows, job.ID)
	}
	_, err := b.db.Exec(ctx, `UPDATE outbox SET published_at = now() WHERE id = ANY($1::bigint[])`, rows)
	return err
}
