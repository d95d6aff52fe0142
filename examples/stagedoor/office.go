package main

import (
	"context"
	_ "embed"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stagedoor/jobs/outbox"
)

//go:embed schema.sql
var schema string

// boxOffice is the shop. The handlers are its methods: functions of the domain that know nothing of the queue but
// what the context says about their job, and that may all run twice.
type boxOffice struct {
	db      *pgxpool.Pool
	payrail payrailClient
	mail    mailClient
	outbox  outbox.Outbox
	log     *slog.Logger
}

// createSchema makes the tables that are missing.
func createSchema(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// Workers start together, and CREATE TABLE IF NOT EXISTS is not safe against itself.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(4471)`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
}

// seatCents is the price of every seat.
const seatCents = 8900

// seed puts one event with 80 seats on sale, and tells whether it did: a database that has the event is left as it
// is. Seat 14 of row C is labelled 14-C, as its organizer typed it.
func seed(ctx context.Context, db *pgxpool.Pool) (fresh bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO events (id, name, starts_at)
			VALUES (1, 'Kammerorchester, Großer Saal', date_trunc('hour', now()) + interval '30 days')
			ON CONFLICT DO NOTHING`)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		fresh = true
		_, err = tx.Exec(ctx, `
			INSERT INTO seats (event_id, label, price_cents)
			SELECT 1, CASE WHEN n = 14 AND r = 'C' THEN '14-C' ELSE n || r END, $1
			FROM unnest(ARRAY['A', 'B', 'C', 'D']) r, generate_series(1, 20) n
			ORDER BY r, n`, seatCents)
		return err
	})
	return fresh, err
}

// seatIDs looks seats of the event up by their labels.
func (b *boxOffice) seatIDs(ctx context.Context, labels ...string) ([]int64, error) {
	rows, err := b.db.Query(ctx, `SELECT id FROM seats WHERE event_id = 1 AND label = ANY($1) ORDER BY id`, labels)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// relabel corrects the label of a seat in the seat map, as its organizer would.
func (b *boxOffice) relabel(ctx context.Context, from, to string) error {
	_, err := b.db.Exec(ctx, `UPDATE seats SET label = $2 WHERE event_id = 1 AND label = $1`, from, to)
	return err
}
