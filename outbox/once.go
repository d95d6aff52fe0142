package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

// Once says whether job, known by its kind and its ID, is here for the first time, and notes that it was. A handler asks
// in the transaction that has its effect, and returns nil where it is not the first: then the effect happens exactly once
// however often the job runs.
//
//	job, _ := jobs.FromContext(ctx)
//	first, err := outbox.Once(ctx, tx, job)
//	if err != nil || !first {
//		return err
//	}
//
// Of two runs at the same time the second waits here until the first one's transaction has ended, and is the first if
// that was rolled back. (In a transaction that is REPEATABLE READ or stricter it gets PostgreSQL's serialization failure
// instead, and is to be tried again.) What is outside of this database is not covered: a mail that was sent stays sent.
func (o Outbox) Once(ctx context.Context, tx pgx.Tx, job jobs.Job) (first bool, err error) {
	if job.ID == "" || job.Kind == "" {
		return false, errors.New("outbox: once: a job without kind or ID")
	}
	tag, err := tx.Exec(ctx, `INSERT INTO `+o.table("once")+` (kind, job_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		pgx.QueryExecModeExec, legible(job.Kind), legible(job.ID))
	if err != nil {
		return false, fmt.Errorf("outbox: once: kind %q, job %q: %w", job.Kind, job.ID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// legible is a name of bytes as PostgreSQL takes it for text, and for a key.
func legible(name string) string {
	const most = 500
	if isText(name) && len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// PurgeOnce forgets what Once has noted longer ago than olderThan (0: 30 days), as Purge does, and returns how many jobs
// that were. A job that runs again after that, replayed from the dead letters, say, has its effect again.
func (o Outbox) PurgeOnce(ctx context.Context, db DB, olderThan time.Duration) (int64, error) {
	n, err := o.purgeOnce(ctx, db, or(olderThan, 30*24*time.Hour))
	if err != nil {
		return n, fmt.Errorf("outbox: purge once: %w", err)
	}
	return n, nil
}

func (o Outbox) purgeOnce(ctx context.Context, db DB, olderThan time.Duration) (int64, error) {
	old, err := before(olderThan)
	if err != nil {
		return 0, err
	}
	return purge(ctx, db, fmt.Sprintf(`
		DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM %[1]s WHERE done_at < %[2]s ORDER BY done_at LIMIT %[3]d FOR UPDATE SKIP LOCKED))`,
		o.table("once"), old, purgeBatch))
}
