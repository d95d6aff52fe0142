package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"github.com/stagedoor/jobs"
)

// A kind is a name, a policy and a type of arguments, in one place. Real backoffs are longer than those of a story:
// jobs.Policy{Retries: 5} alone waits up to a second, doubling up to a minute.
var (
	soon          = jobs.FullJitter(500*time.Millisecond, time.Second)
	renderTickets = jobs.NewKind[order]("render_tickets", jobs.Policy{Retries: 1, Backoff: soon})
	sendTickets   = jobs.NewKind[letter]("send_tickets", jobs.Policy{Retries: 5, Backoff: soon})
	sendReminder  = jobs.NewKind[letter]("send_reminder", jobs.Policy{Retries: 5, Backoff: soon})
	expireHolds   = jobs.NewKind[jobs.None]("expire_holds", jobs.Policy{}) // no retry: the next tick does its work
)

type order struct {
	OrderID int64 `job:"order_id,required"`
}

type letter struct {
	OrderID int64  `job:"order_id,required"`
	To      string `job:"to,required"`
}

// A boxOffice is the application. Its handlers are plain functions that know nothing of queues and retries. Each of
// them reaches a state, so that running it twice does no harm.
type boxOffice struct {
	mu      sync.Mutex
	seats   map[int64]string     // the seat map: the label of each order's seat
	tickets map[int64]string     // rendered, by order
	holds   map[string]time.Time // until when a seat is held
	busy    int                  // how often the mail provider will still answer 503
	sent    map[string]letter    // what the mail provider took, by idempotency key
}

func newBoxOffice() *boxOffice {
	return &boxOffice{
		seats:   map[int64]string{4468: "12A", 4469: "12B", 4470: "3F", 4471: "14-C"},
		tickets: map[int64]string{},
		holds:   map[string]time.Time{"7D": time.Now().Add(3 * time.Second)},
		busy:    2,
		sent:    map[string]letter{},
	}
}

// register says which function handles which kind, and which jobs run at which times.
func (b *boxOffice) register(r *jobs.Runner) {
	jobs.Handle(r, renderTickets, b.render)
	jobs.Handle(r, sendTickets, b.mail)
	jobs.Handle(r, sendReminder, b.mail)
	jobs.Handle(r, expireHolds, b.expire)
	r.Schedule(jobs.Periodic{When: jobs.Every(2 * time.Second), Job: expireHolds.Job(jobs.None{})})
}

var seatLabel = regexp.MustCompile(`^[0-9]+[A-Z]$`)

func (b *boxOffice) render(_ context.Context, o order) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	label := b.seats[o.OrderID]
	if !seatLabel.MatchString(label) {
		return fmt.Errorf("SeatLabelInvalid: '%s' is not a row letter and a seat number", label)
	}
	b.tickets[o.OrderID] = "Admit one to seat " + label
	return nil
}

// mail hands a letter to the provider, which takes the same letter once. Kind and ID are the same in every attempt.
func (b *boxOffice) mail(ctx context.Context, l letter) error {
	job, _ := jobs.FromContext(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy > 0 {
		b.busy--
		return errors.New("mail provider: 503 Service Unavailable")
	}
	b.sent[job.Kind+" "+job.ID] = l
	return nil
}

func (b *boxOffice) expire(context.Context, jobs.None) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.holds, func(_ string, until time.Time) bool { return until.Before(time.Now()) })
	return nil
}

// relabel is the data fix that an organizer makes to the seat map.
func (b *boxOffice) relabel(orderID int64, label string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seats[orderID] = label
}
