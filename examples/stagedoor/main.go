// Stagedoor is the worker of a small ticket shop, on PostgreSQL and Redis: it expires holds each minute, reconciles
// payments at 03:00, purges what is old, mails and renders tickets, and reminds buyers a day before their event.
//
//	REDIS_URL=redis://127.0.0.1:6379 DATABASE_URL=postgres://127.0.0.1/shop go run ./examples/stagedoor
//
// Without REDIS_URL it uses an embedded miniredis (at the usual port if that is free, where cmd/jobs finds it; its log
// has the command to type), without DATABASE_URL a private PostgreSQL that it starts from the
// machine's own programs. It serves metrics to Prometheus at METRICS_ADDR, or on a free port that its log names. On a
// new database it sells one order, whose seat 14-C ends in jobs:dead. It works until it is interrupted; with -demo it
// tells the story of one order to its end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/stagedoor/jobs"
)

func main() {
	demo := flag.Bool("demo", false,
		"tell the story of one order and end, in a database schema and Redis keys of its own, made anew")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	run := work
	if *demo {
		run = tellStory
	}
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stagedoor:", err)
		os.Exit(1)
	}
}

// work is the worker of the shop until ctx ends. It writes its log to out.
func work(ctx context.Context, out io.Writer) error {
	s, err := open(ctx, "")
	if err != nil {
		return err
	}
	defer s.close()
	log := slog.New(slog.NewTextHandler(out, nil))
	s.office.log = log
	servePage(ctx, s.client, log)
	log.Info("fakes that can be told to fail: curl -X POST URL/fail?next=2", "mail", s.mailer.url, "payrail", s.payrail.url)

	config, err := s.measure(jobs.Config{Logger: log})
	if err != nil {
		return err
	}
	fresh, err := seed(ctx, s.office.db)
	if err != nil {
		return err
	}
	if fresh {
		orderID, err := s.sell(ctx, "14-C", "15C")
		if err != nil {
			return err
		}
		log.Info("a new shop: its first order is in", "order_id", orderID)
	}
	return s.run(ctx, config)
}

// register names every handler and every schedule of the shop. All times are UTC.
func register(r *jobs.Runner, b *boxOffice) {
	jobs.Handle(r, expireHolds, b.expireHolds)
	jobs.Handle(r, reconcilePayments, b.reconcilePayments)
	jobs.Handle(r, purgeIdempotencyKeys, b.purgeIdempotencyKeys)
	jobs.Handle(r, purgeOutbox, b.purgeOutbox)
	jobs.Handle(r, sendTickets, b.sendTickets)
	jobs.Handle(r, renderTickets, b.renderTickets)
	jobs.Handle(r, sendReminder, b.sendReminder)

	none := jobs.None{}
	r.Schedule(jobs.Periodic{When: jobs.Every(time.Minute), Job: expireHolds.Job(none)})
	r.Schedule(jobs.Periodic{When: jobs.Daily(3, 0), Job: reconcilePayments.Job(none)})
	r.Schedule(jobs.Periodic{When: jobs.Every(time.Hour), Job: purgeIdempotencyKeys.Job(none)})
	r.Schedule(jobs.Periodic{When: jobs.Daily(3, 30), Job: purgeOutbox.Job(none)})
}
