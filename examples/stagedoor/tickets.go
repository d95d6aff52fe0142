package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

// sendTickets retries patiently: a mail provider's 503 is a condition that passes.
var sendTickets = jobs.NewKind[orderArgs]("send_tickets", jobs.Policy{
	Retries: 5,
	Backoff: jobs.FullJitter(time.Second, time.Minute),
})

// renderTickets retries once. A render that failed on an order's data will fail on the same data again; the one retry
// is for a seat map that could not be read.
var renderTickets = jobs.NewKind[orderArgs]("render_tickets", jobs.Policy{Retries: 1})

// orderArgs names the order that a job is about.
type orderArgs struct {
	OrderID int64 `job:"order_id,required"`
}

// order is what tickets and mails say of an order.
type order struct {
	ID       int64
	Email    string
	Event    string
	StartsAt time.Time
	PlacedAt time.Time
	Labels   []string // of its seats
}

// sendTickets mails the buyer where the tickets are. The mail holds a link and not the file, so that it does not wait
// for the render.
func (b *boxOffice) sendTickets(ctx context.Context, args orderArgs) error {
	o, err := b.order(ctx, args.OrderID)
	if err != nil {
		return err
	}
	return b.mail.send(ctx, mail{
		To:      o.Email,
		Subject: "Your tickets: " + o.Event,
		Text: fmt.Sprintf("%d seats, %s.\nhttps://stagedoor.example/orders/%d/tickets.pdf",
			len(o.Labels), o.StartsAt.UTC().Format(eventTime), o.ID),
	})
}

// renderTickets draws the order's tickets and stores the PDF. The same order gives the same bytes, and storing what is
// there already changes nothing.
func (b *boxOffice) renderTickets(ctx context.Context, args orderArgs) error {
	o, err := b.order(ctx, args.OrderID)
	if err != nil {
		return err
	}
	pdf, err := ticketsPDF(o)
	if err != nil {
		return err
	}
	_, err = b.db.Exec(ctx, `
		INSERT INTO tickets (order_id, pdf) VALUES ($1, $2)
		ON CONFLICT (order_id) DO UPDATE SET pdf = excluded.pdf, rendered_at = now()
		WHERE tickets.pdf <> excluded.pdf`, o.ID, pdf)
	return err
}

// order reads an order with its event and seats. One that does not exist will not exist later either.
func (b *boxOffice) order(ctx context.Context, id int64) (o order, err error) {
	err = b.db.QueryRow(ctx, `
		SELECT orders.id, orders.email, orders.placed_at, events.name, events.starts_at,
			ARRAY(SELECT label FROM seats WHERE seats.order_id = orders.id ORDER BY seats.id)
		FROM orders JOIN events ON events.id = orders.event_id
		WHERE orders.id = $1`, id).Scan(&o.ID, &o.Email, &o.PlacedAt, &o.Event, &o.StartsAt, &o.Labels)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, jobs.Permanent(fmt.Errorf("order %d: %w", id, err))
	}
	return o, err
}
