package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs/internal/loops"
)

// channel is what rows are told on, by the name of their schema; schema.sql has it too.
const channel = "jobs_outbox"

// Why there are no notifications, though PostgreSQL is well.
var (
	errPooled = errors.New("the pool's connections go through a pooler")
	errDeaf   = errors.New("a notification did not arrive")
)

// listen wakes the relay when rows are committed, until ctx ends. Where that cannot be, the relay polls, and it is tried
// again a minute later.
func (r *Relay) listen(ctx context.Context) {
	said := false
	for ctx.Err() == nil {
		err := r.hear(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errPooled), errors.Is(err, errDeaf):
			if !said {
				r.cfg.Logger.Info("jobs: the outbox is polled", "every", r.cfg.Poll, "why", err)
				said = true
			}
			loops.Sleep(ctx, time.Minute)
		default:
			loops.Sleep(ctx, r.ear.Met(err))
		}
	}
}

// hear listens on one connection for as long as that goes well.
func (r *Relay) hear(ctx context.Context) error {
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer hangUp(context.WithoutCancel(ctx), conn)
	if err := begin(ctx, conn); err != nil {
		return err
	}
	for {
		if err := r.probe(ctx, conn); err != nil {
			return err
		}
		r.ear.Over()
		r.rouse()                      // something may have been committed while nobody listened
		const trust = 30 * time.Second // in silence
		if err := r.until(ctx, conn, trust, "none"); !errors.Is(err, errDeaf) {
			return err
		}
	}
}

// hangUp closes the connection. What was interrupted in the middle of a query closes by itself, and is waited for.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	_ = conn.Close(ctx) // it is not used any more
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// dial makes the connection, which is none of the pool's, but made like them.
func (r *Relay) dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	pool := r.pool.Config()
	config := pool.ConnConfig
	switch {
	case r.cfg.Listen != nil:
		config = r.cfg.Listen.Copy()
	case pool.BeforeConnect != nil:
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil // which would be told instead of us
	return pgx.ConnectConfig(ctx, config)
}

// begin begins to listen, unless somebody stands between the connection and its server process: who does numbers
// connections in his own way. LISTEN through a pooler would come to an end with the transaction or, worse, stay behind in
// a session that is others'.
func begin(ctx context.Context, conn *pgx.Conn) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	switch {
	case err != nil:
		return err
	case pid != conn.PgConn().PID():
		return errPooled
	}
	_, err = conn.Exec(ctx, "LISTEN "+channel)
	return err
}

// probe sends a notification by way of the pool, and waits for it.
func (r *Relay) probe(ctx context.Context, conn *pgx.Conn) error {
	token := uuid.NewString()
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if _, err := r.pool.Exec(ctx, fmt.Sprintf("NOTIFY %s, '%s'", channel, token)); err != nil {
		return err
	}
	return r.until(ctx, conn, patience/2, token)
}

// until wakes the relay at each notification of its schema, until one with the token comes. It gives up after a while,
// with errDeaf.
func (r *Relay) until(ctx context.Context, conn *pgx.Conn, wait time.Duration, token string) error {
	waiting, stop := context.WithTimeout(ctx, wait)
	defer stop()
	for {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			return errDeaf
		case err != nil:
			return err
		case n.Payload == r.schema:
			r.rouse()
		case n.Payload == token:
			return nil
		}
	}
}

// rouse has the relay look for rows, at once or when it has done what it is at.
func (r *Relay) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
