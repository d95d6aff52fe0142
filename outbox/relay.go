package outbox

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/handoff"
	"github.com/stagedoor/jobs/internal/loops"
	"github.com/stagedoor/jobs/internal/store"
)

// RelayConfig of a Relay; the zero value is ready to use.
type RelayConfig struct {
	Schema   string        // as in Outbox
	Poll     time.Duration // how long a row waits at most that no notification tells of, or whose transaction was long; 0: 1 s
	KeepDead int           // as in jobs.Config, and the same as there; 0: 10,000
	Logger   *slog.Logger  // nil: slog.Default()

	// Listen is for the one connection that waits for notifications, where the pool's own go through a pooler in
	// transaction mode (pgbouncer), which delivers none: it leads to PostgreSQL itself. nil: a connection of the pool's.
	// Without notifications the relay polls.
	Listen *pgx.ConnConfig
}

func (c *RelayConfig) fill() error {
	if c.Poll < 0 || c.KeepDead < 0 {
		return fmt.Errorf("negative RelayConfig.Poll or RelayConfig.KeepDead: %s, %d", c.Poll, c.KeepDead)
	}
	if err := checkSchema(c.Schema); err != nil {
		return err
	}
	c.Poll, c.KeepDead = or(c.Poll, time.Second), or(c.KeepDead, 10_000)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

// A Relay carries the rows of an outbox to the queue of a client, oldest first. Run one in every worker: one at a time
// publishes, and the others take over when it is gone.
type Relay struct {
	cfg     RelayConfig
	schema  string
	pool    *pgxpool.Pool
	store   *store.Store
	sql     statements
	pace    *loops.Loop
	ear     *loops.Loop
	wake    chan struct{}
	reach   reach
	rows    []row // the last batch's memory
	most    int   // rows to read at once
	wary    bool  // Redis is asked first whether all is as it should be
	started atomic.Bool
}

// maxRows and maxBytes bound what one transaction carries.
const (
	maxRows  = 1000 // of them one MULTI
	maxBytes = 8 << 20
)

// NewRelay returns a Relay from pool's database to client's queue. It panics on a RelayConfig that cannot be meant.
func NewRelay(pool *pgxpool.Pool, client *jobs.Client, cfg RelayConfig) *Relay {
	if err := cfg.fill(); err != nil {
		panic("outbox: NewRelay: " + err.Error())
	}
	if pool == nil || client == nil {
		panic("outbox: NewRelay without a pool or a client")
	}
	const servers = "PostgreSQL or Redis"
	pace, ear := loops.With(servers, "relay", cfg.Logger), loops.With(servers, "listen", cfg.Logger)
	pace.Hurry(time.Second) // it has two servers to wait for, one after the other
	return &Relay{
		cfg: cfg, schema: Outbox{Schema: cfg.Schema}.name(), pool: pool, store: handoff.Store(client), sql: newStatements(Outbox{Schema: cfg.Schema}),
		pace: pace, ear: ear, wake: make(chan struct{}, 1), most: maxRows,
	}
}

// statements of a relay. They have no arguments, so that they travel by the simple protocol, which every pooler knows,
// and more than one in a trip.
type statements struct{ begin, read, mark, try string }

func newStatements(o Outbox) statements {
	table, key := o.format("outbox"), fnv.New32a()
	_, _ = key.Write([]byte(o.name()))
	// A relay that is paused in its transaction is in the way of the others until PostgreSQL ends it. And whatever
	// PostgreSQL thinks of how many rows wait, it is to read the first of them in the index, and not all to sort them.
	begin := `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
		SET LOCAL idle_in_transaction_session_timeout = 5000; SET LOCAL statement_timeout = 10000;
		SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; `
	// Where a row lies is an address as long as it is locked.
	read := `SELECT ctid::text, seq, outbox_id::text, kind, fields::text, coalesce(request_id, ''), coalesce(trace, ''),
			extract(epoch FROM scheduled_at)::bigint, (extract(epoch FROM due) * 1000000)::bigint
		FROM ` + table + ` WHERE published_at IS NULL AND seq > %d ORDER BY seq LIMIT %d FOR UPDATE SKIP LOCKED`
	return statements{
		begin: begin + fmt.Sprintf(`SELECT WHERE pg_try_advisory_xact_lock(1886547833, %d)`, int32(key.Sum32())),
		read:  read,
		mark:  `UPDATE ` + table + ` SET published_at = clock_timestamp() WHERE ctid = ANY ('{%s}')`,
		try:   begin + fmt.Sprintf(read, 0, 0) + `; UPDATE ` + o.table("outbox") + ` SET published_at = NULL WHERE false; ROLLBACK`,
	}
}

// Run carries rows until ctx ends, and then returns nil, a row that is on its way carried to its end.
//
// Before it has worked for the first time Run returns at once for what waiting does not mend, and logs it: a table or a
// right that is missing, a wrong password, and of Redis what jobs.Runner.Run returns for. All else, at any time, it
// waits out: either server may be down when Run is called and go away at any time. A Relay runs once.
func (r *Relay) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return errors.New("outbox: a Relay runs once")
	}
	if ready, err := r.prepare(ctx); !ready {
		return err
	}
	var listening sync.WaitGroup
	listening.Go(func() { r.listen(ctx) })
	for ctx.Err() == nil {
		wait, err := r.step(ctx)
		if err != nil && ctx.Err() == nil {
			loops.Sleep(ctx, r.pace.Met(err))
			continue
		}
		r.rest(ctx, wait)
	}
	listening.Wait()
	return nil
}

// prepare waits until both servers are there and as a relay needs them, or until ctx ends.
func (r *Relay) prepare(ctx context.Context) (ready bool, err error) {
	for ctx.Err() == nil {
		err := r.store.PrepareRelay(ctx)
		if err == nil {
			err = r.try(ctx)
		}
		switch {
		case err == nil:
			r.pace.Over()
			return true, nil
		case final(err):
			// Said here, too: what a worker beside it does goes on, and who calls Run in a goroutine may not look.
			r.cfg.Logger.Error("outbox: the relay cannot start", "err", err)
			return false, fmt.Errorf("outbox: Run: %w", err)
		case ctx.Err() == nil:
			loops.Sleep(ctx, r.pace.Met(err))
		}
	}
	return false, nil
}

// try finds out whether PostgreSQL has what a relay needs.
func (r *Relay) try(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	_, err := r.pool.Exec(ctx, r.sql.try)
	return err
}

// final tells what time does not mend from what it does.
func final(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "42P01", "42703", "3F000", "3D000", // no such table, column, schema, database
			"42501", "28000", "28P01": // no right, no such user, wrong password
			return true
		}
	}
	_, ok := errors.AsType[*store.FinalError](err)
	return ok
}

// breath is the least time between two batches, the first of which was not full: under load rows go together, and not
// one by one.
const breath = 5 * time.Millisecond

// rest waits until something wakes the relay.
func (r *Relay) rest(ctx context.Context, wait time.Duration) {
	if wait > 0 {
		loops.Sleep(ctx, min(wait, breath))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.wake:
	case <-ctx.Done():
	}
}

// step carries a batch and says how long to wait for the next, unless something wakes the relay.
func (r *Relay) step(ctx context.Context) (time.Duration, error) {
	mine, err := r.carry(ctx)
	if r.wary = err != nil; r.wary {
		r.reach = reach{}
		if n := len(r.rows); n > 1 {
			r.most = n / 2 // it may have been too much for the time there is
		}
		return 0, err
	}
	r.pace.Over()
	switch {
	case !mine: // who has published may be gone by then
		return jitter(min(200*time.Millisecond, r.cfg.Poll)), nil
	case r.reach.full:
		return 0, nil
	}
	return time.Until(r.reach.whole), nil
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// patience is for what either server may take for one batch before it counts as gone.
const patience = 10 * time.Second

// carry carries a batch, unless another relay is at it. What it read is locked, and marked in the same transaction: of a
// relay that dies in between the marks are not set, and the rows are carried once more.
func (r *Relay) carry(ctx context.Context) (mine bool, err error) {
	// While Redis is away no transaction is to be open. And of a batch that is refused in part, since one key of two has the
	// wrong type, the rest would be in the queue once more each time.
	if r.wary {
		if err := r.store.PrepareRelay(ctx); err != nil {
			return false, err
		}
	}
	reading, stop := context.WithTimeout(ctx, patience)
	defer stop()
	conn, err := r.pool.Acquire(reading)
	if err != nil {
		return false, err
	}
	defer release(ctx, conn)
	tag, err := conn.Exec(reading, r.sql.begin)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	rows, err := r.read(reading, conn)
	if err != nil || len(rows) == 0 {
		return true, err
	}
	defer clear(rows)
	writing, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	// Marked first: where PostgreSQL refuses that (a full disk, an index that is being made), nothing is published yet.
	if _, err := conn.Exec(writing, fmt.Sprintf(r.sql.mark, addresses(rows))); err != nil {
		return true, err
	}
	if err := r.publish(writing, rows); err != nil {
		return true, err
	}
	_, err = conn.Exec(writing, "COMMIT")
	return true, err
}

// release gives a connection back, without a transaction.
func release(ctx context.Context, conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_, _ = conn.Exec(ctx, "ROLLBACK") // one that is left in a transaction is closed by the pool
	}
	conn.Release()
}

// read locks and reads the next rows.
func (r *Relay) read(ctx context.Context, conn *pgxpool.Conn) ([]row, error) {
	start := time.Now()
	from := r.reach.from(start)
	found, err := conn.Query(ctx, fmt.Sprintf(r.sql.read, from, r.most), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := r.rows[:0]
	var highest int64
	bytes := 0
	for bytes < maxBytes && found.Next() {
		rows = append(rows, row{})
		w := &rows[len(rows)-1]
		if err := found.Scan(&w.ctid, &w.seq, &w.id, &w.kind, &w.fields, &w.requestID, &w.trace, &w.tick, &w.due); err != nil {
			return nil, err
		}
		bytes, highest = bytes+len(w.fields), w.seq
	}
	found.Close()
	r.rows = rows
	full := len(rows) == r.most || bytes >= maxBytes
	if r.most = min(maxRows, 2*r.most); bytes >= maxBytes {
		r.most = len(rows) // so that the next read brings no more than is taken
	}
	end := time.Now()
	r.reach.read(from, highest, full, end.Add(max(jitter(r.cfg.Poll), 10*end.Sub(start))))
	return rows, found.Err()
}

// publish puts rows into the queue, in their order and in one round trip, and those that are no jobs into the dead
// letters.
func (r *Relay) publish(ctx context.Context, rows []row) error {
	items := make([]store.Item, 0, len(rows))
	var letters []map[string]string
	for i := range rows {
		item, err := rows[i].item()
		if err != nil {
			letters = append(letters, rows[i].letter(err))
			continue
		}
		items = append(items, item)
	}
	if _, _, err := r.store.Enqueue(ctx, items); err != nil || letters == nil {
		return err
	}
	return r.bury(ctx, letters)
}

func (r *Relay) bury(ctx context.Context, letters []map[string]string) error {
	dropped, err := r.store.BuryRows(ctx, r.cfg.KeepDead, letters)
	if err != nil {
		return err
	}
	for _, m := range letters {
		job := jobs.Job{ID: m["outbox_id"], Kind: m["kind"], RequestID: m["request_id"], Trace: m["trace"]}
		r.cfg.Logger.Error("jobs: dead-lettered", "job", job, "reason", jobs.ReasonUndecodable, "err", m["error"])
	}
	if dropped > 0 {
		r.cfg.Logger.Warn("jobs: the oldest dead letters were dropped", "dropped", dropped, "kept", r.cfg.KeepDead)
	}
	return nil
}

// addresses are where rows lie, as an array of PostgreSQL has them.
func addresses(rows []row) string {
	var b strings.Builder
	for i, w := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(w.ctid))
	}
	return b.String()
}
