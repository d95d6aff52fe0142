package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// order is what a job is about. With its kind, its ID and its attempts a job has six fields, 131 bytes of names and
// values. Where a peer has a place of its own for one of them it lies there; the rest is the peer's payload.
type order struct {
	ID        int    `json:"order_id"`
	RequestID string `json:"request_id"`
	Trace     string `json:"trace"`
}

const (
	kindName   = "render_tickets"
	firstOrder = 1_000_000 // so that every order's number has as many digits
)

func newOrder(i int) order {
	return order{ID: firstOrder + i, RequestID: "7f3a9c2e51d08b46", Trace: "4bf92f3577b34da6"}
}

func newOrders(from, n int) []order {
	orders := make([]order, n)
	for i := range orders {
		orders[i] = newOrder(from + i)
	}
	return orders
}

// handler is the same for every peer: it is given the number of the order, from 0.
type handler func(i int) error

var errFailed = errors.New("the mail provider answered 503")

// peer is a library, or what can be done without one, as the measures see it.
type peer interface {
	// enqueue adds jobs in one call of the peer's own; for a time where due is not zero. Of more than one order only
	// where the peer's entry says bulk.
	enqueue(ctx context.Context, due time.Time, orders ...order) error
	// work runs jobs on so many slots until ctx ends.
	work(ctx context.Context, slots int, handle handler) error
	// left counts the jobs that wait or are not settled yet.
	left(ctx context.Context, s server) (int64, error)
	close() error
}

// setup is what a peer is opened with.
type setup struct {
	redis, postgres string // address and URL
	slots           int
	retries         int
	delays          bool   // jobs may have to wait for their time: the floor looks for them only then
	fails           bool   // handlers fail: the floor reads the order's number only then
	trips           *trips // counts on each connection
}

// entry is a peer and what is to be known about it.
type entry struct {
	name     string
	about    string // its settings, for the report
	measures string // that it can be taken through
	bulk     bool   // it has a call for many jobs at once
	share    int    // it is given so much less to do, for it takes so much longer
	postgres bool
	open     func(context.Context, setup) (peer, error)
}

var entries = []entry{oursEntry, asynqEntry, riverEntry, outboxEntry, watermillEntry, floorEntry, strictEntry, rawEntry}

func entryOf(name string) (entry, error) {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return entry{}, fmt.Errorf("no peer %q", name)
	}
	return entries[i], nil
}

func (e entry) can(measure string) bool { return slices.Contains(strings.Fields(e.measures), measure) }

// fill enqueues orders from..from+n as fast as the peer can: in bulks of 1,000, or one by one from 16 goroutines.
func (e entry) fill(ctx context.Context, p peer, due time.Time, from, n int) error {
	if e.bulk {
		for i := 0; i < n; i += 1000 {
			if err := p.enqueue(ctx, due, newOrders(from+i, min(1000, n-i))...); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := p.enqueue(ctx, due, newOrder(from+int(i))); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// newRedis is the client of every peer that takes one: go-redis's own defaults, its connections counted.
func newRedis(s setup, change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.redis, Dialer: s.trips.dial}
	for _, f := range change {
		f(o)
	}
	return redis.NewClient(o)
}

// silent is the logger of every peer that takes one: a log line for each failure would be a measure of loggers.
var silent = slog.New(slog.DiscardHandler)
