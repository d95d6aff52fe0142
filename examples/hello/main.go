// Hello is the README's first program: a kind, a schedule, a worker and a producer.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// Tickets are the arguments of a job: flat fields in Redis, a struct in Go.
type Tickets struct {
	OrderID int    `job:"order_id,required"`
	Email   string `job:"email,required"`
}

// A kind is its name, its policy and the type of its arguments.
var (
	sendTickets = jobs.NewKind[Tickets]("send_tickets", jobs.Policy{
		Retries: 5, // a provider's 503 passes
		Backoff: jobs.FullJitter(time.Second, time.Minute),
	})
	expireHolds = jobs.NewKind[jobs.None]("expire_holds", jobs.Policy{})
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	client := jobs.NewClient(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), jobs.Options{})

	// A producer, in any process. Also: sendTickets.Job(…).In(24*time.Hour), or .At(t).
	if err := client.Enqueue(ctx, sendTickets.Job(Tickets{4471, "marek@example.com"})); err != nil {
		log.Fatal(err)
	}

	// A worker, in as many processes as you like.
	runner := jobs.NewRunner(client, jobs.Config{})
	jobs.Handle(runner, sendTickets, func(ctx context.Context, t Tickets) error {
		job, _ := jobs.FromContext(ctx) // its ID is the key to deduplicate by
		fmt.Println("sending the tickets of order", t.OrderID, "to", t.Email, "as", job.ID)
		return nil
	})
	jobs.Handle(runner, expireHolds, func(ctx context.Context, _ jobs.None) error {
		fmt.Println("expiring holds")
		return nil
	})
	runner.Schedule(jobs.Periodic{When: jobs.Every(time.Minute), Job: expireHolds.Job(jobs.None{})})

	// Run returns when ctx has ended and what was running is done.
	if err := runner.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
