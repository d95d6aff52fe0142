package main

import (
	"context"
	"time"

	"github.com/stagedoor/jobs"
)

// What a purge leaves behind the next one takes, so none is retried.
var (
	purgeIdempotencyKeys = jobs.NewKind[jobs.None]("purge_idempotency_keys", jobs.Policy{})
	purgeOutbox          = jobs.NewKind[jobs.None]("purge_outbox", jobs.Policy{})
)

// purgeIdempotencyKeys forgets the keys that no browser will send again.
func (b *boxOffice) purgeIdempotencyKeys(ctx context.Context, _ jobs.None) error {
	_, err := b.db.Exec(ctx, `DELETE FROM idempotency_keys WHERE created_at < now() - interval '24 hours'`)
	return err
}

// purgeOutbox deletes the rows published more than 7 days ago, in batches of 1,000. Rows that were never published stay,
// however old.
func (b *boxOffice) purgeOutbox(ctx context.Context, _ jobs.None) error {
	_, err := b.outbox.Purge(ctx, b.db, 7*24*time.Hour)
	return err
}
