package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
)

var sendReminder = jobs.NewKind[orderArgs]("send_reminder", jobs.Policy{
	Retries: 5,
	Backoff: jobs.FullJitter(time.Second, time.Minute),
})

// remindBefore is how long before the event its reminder is sent.
const remindBefore = 24 * time.Hour

// sendReminder reminds the buyer of the event, unless it has begun: a queue that stood still must not send news of
// the past.
func (b *boxOffice) sendReminder(ctx context.Context, args orderArgs) error {
	var email, event string
	var startsAt time.Time
	err := b.db.QueryRow(ctx, `
		SELECT orders.email, events.name, events.starts_at
		FROM orders JOIN events ON events.id = orders.event_id
		WHERE orders.id = $1 AND events.starts_at > now()`, args.OrderID).Scan(&email, &event, &startsAt)
	if errors.Is(err, pgx.ErrNoRows) {
		b.log.InfoContext(ctx, "no reminder: no such order, or its event has begun", "order_id", args.OrderID)
		return nil
	}
	if err != nil {
		return err
	}
	return b.mail.send(ctx, mail{
		To:      email,
		Subject: "Soon: " + event,
		Text:    fmt.Sprintf("%s begins on %s.", event, startsAt.UTC().Format(eventTime)),
	})
}
