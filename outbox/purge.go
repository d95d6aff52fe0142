package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// purgeBatch bounds how many rows a statement locks and deletes.
const purgeBatch = 1000

// slice is how much of a table a statement looks through, in PostgreSQL's blocks of 8 KiB.
const slice = 100

// Purge deletes the rows that were published longer ago than olderThan (0: 7 days) and returns how many that were. It
// goes in batches of 1,000 at most, each a transaction of its own (db is no transaction, then), passes over what others
// have locked, and may run anywhere at any time. What was not published stays. It looks through the whole table, from
// its beginning, which is for once a night: an index of the time would have to be kept by every row that is carried.
func (o Outbox) Purge(ctx context.Context, db DB, olderThan time.Duration) (int64, error) {
	n, err := o.purge(ctx, db, or(olderThan, 7*24*time.Hour))
	if err != nil {
		return n, fmt.Errorf("outbox: purge: %w", err)
	}
	return n, nil
}

func (o Outbox) purge(ctx context.Context, db DB, olderThan time.Duration) (n int64, err error) {
	old, err := before(olderThan)
	if err != nil {
		return 0, err
	}
	var blocks int64
	err = db.QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::int`,
		pgx.QueryExecModeExec, o.table("outbox")).Scan(&blocks)
	for from := int64(0); err == nil && from < blocks; from += slice {
		var some int64
		some, err = purge(ctx, db, fmt.Sprintf(`
			DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM %[1]s WHERE ctid >= '(%[2]d,0)' AND ctid < '(%[3]d,0)' AND published_at < %[4]s
				LIMIT %[5]d FOR UPDATE SKIP LOCKED))`, o.table("outbox"), from, from+slice, old, purgeBatch))
		n += some
	}
	return n, err
}

// before is when something was that is older than that, as PostgreSQL reads it.
func before(olderThan time.Duration) (string, error) {
	if olderThan < 0 {
		return "", fmt.Errorf("a negative age: %s", olderThan)
	}
	return fmt.Sprintf("now() - %d * interval '1 microsecond'", olderThan.Microseconds()), nil
}

// purge runs a statement until it finds less than a batch. (An array is made once; what stands behind IN may be asked for
// again and again, and then there are more than the limit.)
func purge(ctx context.Context, db DB, statement string) (n int64, err error) {
	for {
		tag, err := db.Exec(ctx, statement)
		n += tag.RowsAffected()
		if err != nil || tag.RowsAffected() < purgeBatch {
			return n, err
		}
	}
}

// Lag is what an outbox has that no relay has carried yet.
type Lag struct {
	Rows   int64         // that wait
	Oldest time.Duration // for how long the oldest of them has, counted from when its transaction began
}

// Lag counts what waits. It is zero, but for moments, where a relay runs; its age is what to alert on.
func (o Outbox) Lag(ctx context.Context, db DB) (Lag, error) {
	var rows, micros int64
	// Who writes a row may have given it a time that is no age: infinity, say.
	err := db.QueryRow(ctx, `
		SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() -
			min(least(greatest(created_at, 'epoch'), clock_timestamp()))) * 1000000, 0)::bigint
		FROM `+o.table("outbox")+` WHERE published_at IS NULL`, pgx.QueryExecModeSimpleProtocol).Scan(&rows, &micros)
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: lag: %w", err)
	}
	return Lag{Rows: rows, Oldest: time.Duration(micros) * time.Microsecond}, nil
}

func or[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}
