package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

// expireHolds runs each minute, and the next minute covers a run that failed.
var expireHolds = jobs.NewKind[jobs.None]("expire_holds", jobs.Policy{})

var errSeatTaken = errors.New("a seat is not free any more")

// hold keeps free seats for one buyer: all of them or none.
func (b *boxOffice) hold(ctx context.Context, buyer string, seatIDs []int64, ttl time.Duration) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		held, err := tx.Exec(ctx, `
			INSERT INTO holds (seat_id, buyer, expires_at)
			SELECT id, $2, now() + $3::interval FROM seats WHERE id = ANY($1) AND status = 'available' ORDER BY id
			ON CONFLICT DO NOTHING`, seatIDs, buyer, ttl)
		if err != nil {
			return err
		}
		// The status is asked again: a seat may have been sold between the snapshot and the insert.
		marked, err := tx.Exec(ctx, `
			UPDATE seats SET status = 'held', version = version + 1
			WHERE id = ANY($1) AND status = 'available'`, seatIDs)
		if err != nil {
			return err
		}
		if n := int64(len(seatIDs)); held.RowsAffected() != n || marked.RowsAffected() != n {
			return errSeatTaken
		}
		return nil
	})
}

// expireHolds deletes the holds whose time has passed and returns their seats to the map. A second run finds nothing
// expired, so it updates nothing either.
func (b *boxOffice) expireHolds(ctx context.Context, _ jobs.None) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `DELETE FROM holds WHERE expires_at < now() RETURNING seat_id`)
		if err != nil {
			return err
		}
		seatIDs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE seats SET status = 'available', version = version + 1
			WHERE id = ANY($1) AND status = 'held'`, seatIDs)
		return err
	})
}
