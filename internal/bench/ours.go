package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

var oursEntry = entry{
	name:     "ours",
	about:    "jobs.Config and jobs.Options as they are without being told, but for the slots",
	measures: "drain8 drain64 enqueue bulk pickup memory delayed due failonce dead kill",
	bulk:     true,
	share:    1,
	open:     openOurs,
}

type ticketArgs struct {
	OrderID int `job:"order_id"`
}

type ours struct {
	rdb    *redis.Client
	client *jobs.Client
	kind   jobs.Kind[ticketArgs]
}

func openOurs(_ context.Context, s setup) (peer, error) {
	rdb := newRedis(s)
	atOnce := func(int) time.Duration { return 0 }
	return &ours{
		rdb:    rdb,
		client: jobs.NewClient(rdb, jobs.Options{}),
		kind:   jobs.NewKind[ticketArgs](kindName, jobs.Policy{Retries: s.retries, Backoff: atOnce}),
	}, nil
}

func (o *ours) enqueue(ctx context.Context, due time.Time, orders ...order) error {
	batch := make([]jobs.Job, len(orders))
	for i, of := range orders {
		j := o.kind.Job(ticketArgs{OrderID: of.ID})
		j.RequestID, j.Trace = of.RequestID, of.Trace
		if !due.IsZero() {
			j = j.At(due)
		}
		batch[i] = j
	}
	return o.client.Enqueue(ctx, batch...)
}

func (o *ours) work(ctx context.Context, slots int, handle handler) error {
	r := jobs.NewRunner(o.client, jobs.Config{Slots: slots, Logger: silent})
	jobs.Handle(r, o.kind, func(_ context.Context, a ticketArgs) error { return handle(a.OrderID - firstOrder) })
	return r.Run(ctx)
}

func (o *ours) left(ctx context.Context, s server) (int64, error) {
	return s.(*redisServer).count(ctx, "XLEN jobs", "ZCARD delayed")
}

func (o *ours) close() error {
	if err := o.rdb.Close(); err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	return nil
}
