package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// The floor is the least that can be done by hand on a stream: one goroutine reads 100 entries, calls the handler, and
// settles all of them in one more round trip. No decoding, no leases, no retries beyond the one asked for, nothing that
// survives a crash, and slots it does not know.
var floorEntry = entry{
	name:     "floor",
	about:    "by hand with go-redis: pipelined XADD; XREADGROUP COUNT 100; then XACK and XDEL of the whole batch in one trip",
	measures: "drain8 drain64 enqueue bulk pickup memory delayed due failonce dead",
	bulk:     true,
	share:    1,
	open:     openFloor,
}

type floor struct {
	rdb *redis.Client
	setup
}

func openFloor(_ context.Context, s setup) (peer, error) { return &floor{newRedis(s), s}, nil }

// floorFields are a job's six fields.
func floorFields(of order) []string {
	return []string{
		"kind", kindName, "job_id", uuid.Must(uuid.NewV7()).String(), "attempts", "0",
		"order_id", strconv.Itoa(of.ID), "request_id", of.RequestID, "trace", of.Trace,
	}
}

func (f *floor) enqueue(ctx context.Context, due time.Time, orders ...order) error {
	pipe := f.rdb.Pipeline()
	for _, of := range orders {
		if due.IsZero() {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: "jobs", Values: floorFields(of)})
			continue
		}
		member, err := floorMember(of)
		if err != nil {
			return err
		}
		pipe.ZAdd(ctx, "delayed", redis.Z{Score: float64(due.UnixMilli()) / 1000, Member: member})
	}
	_, err := pipe.Exec(ctx)
	return err
}

func floorMember(of order) ([]byte, error) {
	pairs, m := floorFields(of), map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return json.Marshal(m)
}

func (f *floor) work(ctx context.Context, _ int, handle handler) error {
	if err := f.makeGroup(ctx); err != nil {
		return err
	}
	var promoting sync.WaitGroup
	if f.delays {
		promoting.Go(func() { f.promote(ctx) })
	}
	defer promoting.Wait()
	args := &redis.XReadGroupArgs{Group: "workers", Consumer: "floor", Streams: []string{"jobs", ">"}, Count: 100, Block: 500 * time.Millisecond}
	for ctx.Err() == nil {
		streams, err := f.rdb.XReadGroup(ctx, args).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		if err := f.settle(ctx, streams[0].Messages, handle); err != nil {
			return err
		}
	}
	return nil
}

func (f *floor) makeGroup(ctx context.Context) error {
	err := f.rdb.XGroupCreateMkStream(ctx, "jobs", "workers", "0").Err()
	if redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

// settle runs a batch and writes what has become of it.
func (f *floor) settle(ctx context.Context, batch []redis.XMessage, handle handler) error {
	pipe := f.rdb.Pipeline()
	ids := make([]string, len(batch))
	var again []redis.Z
	for i, m := range batch {
		ids[i] = m.ID
		switch err := f.run(m, handle); {
		case err == nil:
		case f.retries == 0:
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: "jobs:dead", MaxLen: 10_000, Values: append(pairs(m.Values), "error", err.Error())})
		default:
			m.Values["attempts"] = "1"
			member, err := json.Marshal(m.Values)
			if err != nil {
				return err
			}
			again = append(again, redis.Z{Score: float64(time.Now().UnixMilli()) / 1000, Member: member})
		}
	}
	if len(again) > 0 {
		pipe.ZAdd(ctx, "delayed", again...)
	}
	pipe.XAck(ctx, "jobs", "workers", ids...)
	pipe.XDel(ctx, "jobs", ids...)
	_, err := pipe.Exec(ctx)
	return err
}

func (f *floor) run(m redis.XMessage, handle handler) error {
	if !f.fails {
		return handle(0)
	}
	id, err := strconv.Atoi(m.Values["order_id"].(string))
	if err != nil {
		return err
	}
	return handle(id - firstOrder)
}

func pairs(m map[string]any) []any {
	list := make([]any, 0, 2*len(m)+2)
	for name, value := range m {
		list = append(list, name, value)
	}
	return list
}

// promote moves due jobs to the stream, 100 in two trips, as soon as they are due. An error ends it, and then the
// measure for want of jobs.
func (f *floor) promote(ctx context.Context) {
	for ctx.Err() == nil {
		now := strconv.FormatFloat(float64(time.Now().UnixMilli())/1000, 'f', 3, 64)
		due, err := f.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "delayed", Start: "-inf", Stop: now, ByScore: true, Count: 100}).Result()
		if err != nil {
			return
		}
		if len(due) == 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if f.move(ctx, due) != nil {
			return
		}
	}
}

func (f *floor) move(ctx context.Context, due []string) error {
	pipe := f.rdb.Pipeline()
	members := make([]any, len(due))
	for i, member := range due {
		var values map[string]any
		if err := json.Unmarshal([]byte(member), &values); err != nil {
			return err
		}
		members[i] = member
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: "jobs", Values: pairs(values)})
	}
	pipe.ZRem(ctx, "delayed", members...)
	_, err := pipe.Exec(ctx)
	return err
}

func (f *floor) left(ctx context.Context, s server) (int64, error) {
	return s.(*redisServer).count(ctx, "XLEN jobs", "ZCARD delayed")
}

func (f *floor) close() error { return f.rdb.Close() }

// strict is the floor of a loop that never has more in hand than it has slots for, as ours: what is lost with a worker, or
// waits behind a job that takes long, is no more than that. Its handlers run one after the other.
var strictEntry = entry{
	name:     "strict",
	about:    "by hand with go-redis: XACK and XDEL of the last batch and XREADGROUP COUNT slots, in one trip",
	measures: "drain8 drain64",
	bulk:     true,
	share:    1,
	open: func(_ context.Context, s setup) (peer, error) {
		return &strict{floor{newRedis(s), s}}, nil
	},
}

type strict struct{ floor }

func (f *strict) work(ctx context.Context, slots int, handle handler) error {
	if err := f.makeGroup(ctx); err != nil {
		return err
	}
	args := &redis.XReadGroupArgs{Group: "workers", Consumer: "strict", Streams: []string{"jobs", ">"}, Count: int64(slots), Block: -1}
	var ids []string
	for ctx.Err() == nil {
		pipe := f.rdb.Pipeline()
		if len(ids) > 0 {
			pipe.XAck(ctx, "jobs", "workers", ids...)
			pipe.XDel(ctx, "jobs", ids...)
		}
		read := pipe.XReadGroup(ctx, args)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		var err error
		if ids, err = f.runAll(read.Val(), handle); err != nil {
			return err
		}
	}
	return nil
}

func (f *strict) runAll(streams []redis.XStream, handle handler) (ids []string, err error) {
	for _, stream := range streams {
		for _, m := range stream.Messages {
			if err := f.run(m, handle); err != nil {
				return nil, err
			}
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}
