package main

import (
	"context"

	"github.com/stagedoor/jobs"
)

// What a purge leaves behind the next one takes, so none is retried.
var (
	purgeIdempotencyKeys = jobs.NewKind[jobs.None]("purge_idempotency_keys", jobs.Policy{})
	purgeOutbox          = jobs.NewKind[jobs.None]("purge_outbox", jobs.Policy{})
)

// purgeBatch bounds how many rows one statement of purgeOutbox locks and deletes.
const purgeBatch = 1000

// purgeIdempotencyKeys forgets the keys that no browser will send again.
func (b *boxOffice) purgeIdempotencyKeys(ctx context.Context, _ jobs.None) error {
	_, err := b.db.Exec(ctx, `DELETE FROM idempotency_keys WHERE created_at < now() - interval '24 hours'`)
	return err
}

// purgeOutbox deletes the rows published more than 7 days ago, each batch in a transaction of its own. Rows that
// were never published stay, however old.
func (b *boxOffice) purgeOutbox(ctx context.Context, _ jobs.None) error {
	for {
		tag, err := b.db.Exec(ctx, `
			DELETE FROM outbox WHERE id IN (
				SELECT id FROM outbox WHERE published_at < now() - interval '7 days'
				ORDER BY published_at LIMIT $1)`, purgeBatch)
		if err != nil || tag.RowsAffected() < purgeBatch {
			return err
		}
	}
}
