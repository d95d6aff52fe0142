package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A subscriber of watermill's runs one message at a time, so that slots are subscribers of one group. A failed message
// is tried again in the process (Nack), or published to another topic (PoisonQueue). It has no delays, and no entry
// leaves the stream.
var watermillEntry = entry{
	name:     "watermill",
	about:    "watermill-redisstream v1.4.5 as it is without being told; one subscriber a slot; a pool that has room for them",
	measures: "drain8 drain64 enqueue pickup memory failonce dead kill",
	share:    4,
	open:     openWatermill,
}

const topic, group = "jobs", "workers"

type watermillPeer struct {
	rdb     *redis.Client
	pub     *redisstream.Publisher
	retries int
}

func openWatermill(_ context.Context, s setup) (peer, error) {
	rdb := newRedis(s, func(o *redis.Options) { o.PoolSize = s.slots + 20 })
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: rdb}, watermill.NopLogger{})
	return &watermillPeer{rdb, pub, s.retries}, err
}

func (w *watermillPeer) enqueue(ctx context.Context, _ time.Time, orders ...order) error {
	for _, of := range orders {
		payload, err := json.Marshal(of)
		if err != nil {
			return err
		}
		msg := message.NewMessageWithContext(ctx, uuid.Must(uuid.NewV7()).String(), payload)
		msg.Metadata = message.Metadata{"kind": kindName, "attempts": "0"}
		if err := w.pub.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

func (w *watermillPeer) work(ctx context.Context, slots int, handle handler) error {
	run := func(msg *message.Message) ([]*message.Message, error) {
		var of order
		if err := json.Unmarshal(msg.Payload, &of); err != nil {
			return nil, err
		}
		return nil, handle(of.ID - firstOrder)
	}
	if w.retries == 0 {
		poison, err := middleware.PoisonQueue(w.pub, "dead")
		if err != nil {
			return err
		}
		run = poison(run)
	}
	var wg sync.WaitGroup
	for i := range slots {
		messages, err := w.subscribe(ctx, i)
		if err != nil {
			return err
		}
		wg.Go(func() { consume(messages, run) })
	}
	wg.Wait()
	return nil
}

func (w *watermillPeer) subscribe(ctx context.Context, i int) (<-chan *message.Message, error) {
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: w.rdb, ConsumerGroup: group, Consumer: fmt.Sprintf("%d-%s", i, watermill.NewShortUUID()),
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return sub.Subscribe(ctx, topic)
}

func consume(messages <-chan *message.Message, run message.HandlerFunc) {
	for msg := range messages {
		if _, err := run(msg); err != nil {
			msg.Nack()
			continue
		}
		msg.Ack()
	}
}

// left is what was not acknowledged: nothing leaves the stream.
func (w *watermillPeer) left(ctx context.Context, s server) (int64, error) {
	groups, err := s.(*redisServer).rdb.XInfoGroups(ctx, topic).Result()
	if err != nil || len(groups) == 0 {
		return 0, err
	}
	return groups[0].Lag + groups[0].Pending, nil
}

func (w *watermillPeer) close() error { return w.rdb.Close() }
