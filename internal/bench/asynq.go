package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

var asynqEntry = entry{
	name:     "asynq",
	about:    "v0.26.0; asynq.Config as it is without being told, but for Concurrency; a failed job's delay is 0",
	measures: "drain8 drain64 enqueue pickup memory delayed due failonce dead kill",
	share:    4,
	open:     openAsynq,
}

type asynqPeer struct {
	rdb     *redis.Client
	client  *asynq.Client
	retries int
}

func openAsynq(_ context.Context, s setup) (peer, error) {
	rdb := newRedis(s)
	return &asynqPeer{rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), retries: s.retries}, nil
}

func (a *asynqPeer) enqueue(ctx context.Context, due time.Time, orders ...order) error {
	for _, of := range orders {
		payload, err := json.Marshal(of)
		if err != nil {
			return err
		}
		options := []asynq.Option{asynq.MaxRetry(a.retries)}
		if !due.IsZero() {
			options = append(options, asynq.ProcessAt(due))
		}
		if _, err := a.client.EnqueueContext(ctx, asynq.NewTask(kindName, payload), options...); err != nil {
			return err
		}
	}
	return nil
}

func (a *asynqPeer) work(ctx context.Context, slots int, handle handler) error {
	srv := asynq.NewServerFromRedisClient(a.rdb, asynq.Config{
		Concurrency:    slots,
		LogLevel:       asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc(kindName, func(_ context.Context, t *asynq.Task) error {
		var of order
		if err := json.Unmarshal(t.Payload(), &of); err != nil {
			return err
		}
		return handle(of.ID - firstOrder)
	})
	if err := srv.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()
	srv.Shutdown()
	return nil
}

func (a *asynqPeer) left(ctx context.Context, s server) (int64, error) {
	const queue = "asynq:{default}:"
	return s.(*redisServer).count(ctx, "LLEN "+queue+"pending", "LLEN "+queue+"active", "ZCARD "+queue+"scheduled", "ZCARD "+queue+"retry")
}

func (a *asynqPeer) close() error { return a.rdb.Close() }
