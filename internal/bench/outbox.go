package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/outbox"
)

// outboxEntry is ours with the transactions of PostgreSQL: a row, a relay, an entry.
var outboxEntry = entry{
	name:     "outbox",
	about:    "package outbox with what is zero in its RelayConfig, on the PostgreSQL of River and the Redis of ours; pool of 20 connections",
	measures: "transact1 transact100 commit",
	bulk:     true,
	share:    1,
	postgres: true,
	open:     openOutbox,
}

// transactor is a peer that enqueues in a transaction of PostgreSQL.
type transactor interface {
	// transact enqueues orders in one transaction, and calls committing just before its COMMIT.
	transact(ctx context.Context, committing func(), orders ...order) error
}

type outboxPeer struct {
	ours
	pool *pgxpool.Pool
}

func openOutbox(ctx context.Context, s setup) (peer, error) {
	pool, err := newPool(ctx, s)
	if err != nil {
		return nil, err
	}
	p, err := openOurs(ctx, s)
	if err != nil {
		return nil, err
	}
	o := &outboxPeer{ours: *p.(*ours), pool: pool}
	return o, o.rdb.FlushAll(ctx).Err() // the sample's server is the other one
}

// prepareOutbox makes our tables.
func prepareOutbox(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(outbox.Outbox{}.Migrate(ctx, conn), conn.Close(ctx))
}

func newPool(ctx context.Context, s setup) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 20
	config.ConnConfig.DialFunc = s.trips.dial
	return pgxpool.NewWithConfig(ctx, config)
}

func (o *outboxPeer) transact(ctx context.Context, committing func(), orders ...order) error {
	batch := make([]jobs.Job, len(orders))
	for i, of := range orders {
		batch[i] = o.kind.Job(ticketArgs{OrderID: of.ID})
		batch[i].RequestID, batch[i].Trace = of.RequestID, of.Trace
	}
	return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		defer committing()
		return outbox.Enqueue(ctx, tx, batch...)
	})
}

func (r *riverPeer) transact(ctx context.Context, committing func(), orders ...order) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		defer committing()
		if len(orders) == 1 {
			_, err := r.client.InsertTx(ctx, tx, orders[0], r.options(time.Time{}))
			return err
		}
		_, err := r.client.InsertManyFastTx(ctx, tx, r.params(time.Time{}, orders))
		return err
	})
}

// work runs a relay beside the worker, as an application does.
func (o *outboxPeer) work(ctx context.Context, slots int, handle handler) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	relay := outbox.NewRelay(o.pool, o.client, outbox.RelayConfig{Logger: silent})
	carried := make(chan error, 1)
	go func() {
		defer stop()
		carried <- relay.Run(ctx)
	}()
	err := o.ours.work(ctx, slots, handle)
	stop()
	return errors.Join(err, <-carried)
}

func (o *outboxPeer) left(ctx context.Context, _ server) (int64, error) {
	lag, err := outbox.Outbox{}.Lag(ctx, o.pool)
	if err != nil {
		return 0, err
	}
	n, err := o.rdb.XLen(ctx, "jobs").Result()
	return lag.Rows + n, err
}

func (o *outboxPeer) close() error {
	o.pool.Close()
	return o.ours.close()
}

// transactions has eight goroutines commit so many jobs a transaction while a worker works, and counts from the first
// BEGIN to the last handler.
func transactions(jobs int) func(context.Context, *sample) (figures, error) {
	return func(ctx context.Context, s *sample) (figures, error) {
		n := max(jobs*16, s.Sizes.Jobs/jobs*jobs)
		if jobs == 1 {
			n = max(16, n/4)
		}
		done := newTally(n)
		var start time.Time
		err := s.working(ctx, done.handle, func(ctx context.Context) error {
			if err := s.warm(ctx); err != nil {
				return err
			}
			start = time.Now()
			if err := s.commitAll(ctx, n, jobs); err != nil {
				return err
			}
			return done.wait(ctx)
		})
		return figures{s.Measure + ".rate": float64(n) / done.last.Sub(start).Seconds()}, err
	}
}

// warm waits until the worker has begun.
func (s *sample) warm(ctx context.Context) error {
	select {
	case <-time.After(300 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sample) commitAll(ctx context.Context, n, each int) error {
	var next atomic.Int64
	var producing sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		producing.Go(func() {
			for {
				from := int(next.Add(int64(each))) - each
				if from >= n {
					return
				}
				if err := s.peer.(transactor).transact(ctx, func() {}, newOrders(from, each)...); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	producing.Wait()
	close(errs)
	return <-errs
}

// committed is how long after its COMMIT is sent a job starts, where nothing else is to be done.
func committed(ctx context.Context, s *sample) (figures, error) {
	return s.oneByOne(ctx, "commit", func(ctx context.Context, i int) (before time.Time, err error) {
		err = s.peer.(transactor).transact(ctx, func() { before = time.Now() }, newOrder(i))
		return before, err
	})
}
