// Package outbox enqueues jobs inside a PostgreSQL transaction. A job is a row that is written beside the data it is
// about, and a relay carries the rows to Redis once their transaction has committed: an order that is rolled back sends
// no tickets, and one that is committed sends them whatever dies in between.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		…
//		return outbox.Enqueue(ctx, tx, sendTickets.Job(Tickets{OrderID: id}))
//	})
//
// Every worker runs a Relay beside its Runner, and ends where Run returns an error: else what is committed waits.
//
// # What is promised
//
// A committed row becomes at least one entry of the queue, as a job whose ID is the row's outbox_id, oldest first; a row
// that was rolled back becomes none. Where a relay dies, or PostgreSQL or Redis goes away, between the entry and the mark
// that it was made, there are two entries of one ID, and the job may run twice: Once makes one effect of that. What Redis
// itself loses after the mark (see Persistence in the README) is carried again where published_at is set to NULL.
//
// # The other half
//
// Once, in a handler's own transaction, tells whether the job has had its effect in this database before.
//
// Nothing here keeps state in a session of PostgreSQL, so that a pooler in transaction mode may be in between; what LISTEN
// needs is said at RelayConfig.Listen.
package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stagedoor/jobs"
)

// An Outbox is where its tables are. The zero value is ready to use, and the functions Enqueue and Once are its methods.
type Outbox struct {
	// Schema of the tables, any name; "": jobs.
	Schema string

	// Annotate is what jobs.Options.Annotate is for a Client.
	Annotate func(ctx context.Context, j *jobs.Job)
}

// DB is a pool, a connection or a transaction of pgx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Enqueue is Outbox.Enqueue in the schema jobs.
func Enqueue(ctx context.Context, tx pgx.Tx, js ...jobs.Job) error {
	return Outbox{}.Enqueue(ctx, tx, js...)
}

// Once is Outbox.Once in the schema jobs.
func Once(ctx context.Context, tx pgx.Tx, job jobs.Job) (first bool, err error) {
	return Outbox{}.Once(ctx, tx, job)
}

// Enqueue writes jobs as rows, in one round trip: all or none, with tx. A job that Client.Enqueue would refuse is refused
// here as there, with a *jobs.EnqueueError and before anything is written, and so is one with more than 64 MiB of fields as
// JSON, and one whose ID is no UUID: a number would come again in another database. A Job value that has a row already gets no second one, so that a transaction may
// be tried again whose COMMIT was never answered.
//
// A job's RequestID and Trace come from Annotate or from the job in ctx where they are empty. In(d) counts from when tx
// began, by PostgreSQL's clock; whether that time or the one of At has come is as ever for Redis's clock to say.
func (o Outbox) Enqueue(ctx context.Context, tx pgx.Tx, js ...jobs.Job) error {
	c := newColumns(len(js))
	for i, j := range js {
		if err := c.add(ctx, j, o.Annotate); err != nil {
			return &jobs.EnqueueError{Err: fmt.Errorf("job %d, kind %q: %w", i, j.Kind, err)}
		}
	}
	if len(js) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, o.insert(len(js)), c.arguments()...)
	if err != nil {
		return fmt.Errorf("outbox: enqueue: %w", err)
	}
	return nil
}

// insert is the statement that writes n rows. One is the most frequent, and PostgreSQL plans it sooner without arrays.
func (o Outbox) insert(n int) string {
	from := `(SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int, $8::bigint)`
	order := ""
	if n > 1 {
		from = `unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::bigint[])
			WITH ORDINALITY`
		order = "ORDER BY ordinality"
	}
	return `
		INSERT INTO ` + o.table("outbox") + ` (outbox_id, kind, fields, request_id, trace, scheduled_at, due)
		SELECT id::uuid, kind, fields::json, nullif(request_id, ''), nullif(trace, ''), nullif(tick, '')::timestamptz,
			CASE how WHEN 1 THEN now() + micros * interval '1 microsecond'
				WHEN 2 THEN 'epoch'::timestamptz + micros * interval '1 microsecond' END
		FROM ` + from + ` AS j (id, kind, fields, request_id, trace, tick, how, micros) ` + order + `
		ON CONFLICT DO NOTHING`
}
