package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// The two intervals are those of River's own `river bench`, whose comment says that they are for throughput and much
// better than the defaults (100 ms and 1 s). Its slots are the measure's.
var riverEntry = entry{
	name: "river",
	about: "v0.51.2 on PostgreSQL with fsync off; tuned as its own benchmark is: FetchCooldown 2ms, FetchPollInterval 20ms; " +
		"bulk by InsertManyFast (COPY); pool of 20 connections; a failed job's delay is 0",
	measures: "drain8 drain64 enqueue bulk pickup memory delayed due failonce dead transact1 transact100 commit",
	bulk:     true,
	share:    8,
	postgres: true,
	open:     openRiver,
}

// Kind makes an order River's arguments.
func (order) Kind() string { return kindName }

type riverWorker struct {
	river.WorkerDefaults[order]
	handle handler
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[order]) error {
	return w.handle(j.Args.ID - firstOrder)
}

// retryAtOnce is River's retry policy without a delay.
type retryAtOnce struct{}

func (retryAtOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

type riverPeer struct {
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx] // that only inserts
	attempts int
}

func openRiver(ctx context.Context, s setup) (peer, error) {
	pool, err := newPool(ctx, s)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: silent})
	return &riverPeer{pool, client, s.retries + 1}, err
}

// prepareRiver makes River's tables.
func prepareRiver(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: silent})
	if err != nil {
		return err
	}
	if _, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("river: migrate: %w", err)
	}
	return nil
}

func (r *riverPeer) enqueue(ctx context.Context, due time.Time, orders ...order) error {
	if len(orders) == 1 {
		_, err := r.client.Insert(ctx, orders[0], r.options(due))
		return err
	}
	_, err := r.client.InsertManyFast(ctx, r.params(due, orders))
	return err
}

func (r *riverPeer) options(due time.Time) *river.InsertOpts {
	return &river.InsertOpts{MaxAttempts: r.attempts, ScheduledAt: due}
}

func (r *riverPeer) params(due time.Time, orders []order) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(orders))
	for i, of := range orders {
		params[i] = river.InsertManyParams{Args: of, InsertOpts: r.options(due)}
	}
	return params
}

func (r *riverPeer) work(ctx context.Context, slots int, handle handler) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger:            silent,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		RetryPolicy:       retryAtOnce{},
		Workers:           workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

func (r *riverPeer) left(ctx context.Context, _ server) (n int64, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE finalized_at IS NULL").Scan(&n)
	return n, err
}

func (r *riverPeer) close() error {
	r.pool.Close()
	return nil
}
