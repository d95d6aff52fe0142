package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/jobstest"
)

// Render is the argument of a kind: its fields are those of the entry on the wire.
type Render struct {
	OrderID int64  `job:"order_id"`
	Seat    string `job:"seat,required"`
}

// A kind is a package variable: its name, its policy and the type of its arguments.
var (
	RenderTickets = jobs.NewKind[Render]("render_tickets", jobs.Policy{})
	ExpireHolds   = jobs.NewKind[jobs.None]("expire_holds", jobs.Policy{})
	SendMail      = jobs.NewKind[struct{ To string }]("send_mail", jobs.Policy{
		Retries: 5, Backoff: jobs.FullJitter(time.Millisecond, time.Minute), // in production from a second
	})
)

// embedded is a Redis for the examples. An application has redis.NewClient.
func embedded() *redis.Client {
	m, err := servers.StartMiniredis()
	if err != nil {
		log.Fatal(err)
	}
	return redis.NewClient(&redis.Options{Addr: m.Addr()})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

var quiet = jobs.Config{Logger: slog.New(slog.DiscardHandler)}

// How do I enqueue a job, and run it?
func Example() {
	client := jobs.NewClient(embedded(), jobs.Options{})
	runner := jobs.NewRunner(client, jobs.Config{})
	ctx, stop := context.WithCancel(context.Background()) // in production signal.NotifyContext

	jobs.Handle(runner, RenderTickets, func(ctx context.Context, args Render) error {
		fmt.Println("order", args.OrderID, "seat", args.Seat)
		stop()
		return nil
	})

	check(client.Enqueue(ctx, RenderTickets.Job(Render{OrderID: 4471, Seat: "14C"})))
	check(runner.Run(ctx)) // until ctx ends, and what runs has ended
	// Output: order 4471 seat 14C
}

// What if an Enqueue fails? Up to 1,000 jobs are all in, or none; the error says which are
// in, and of which that is not known.
func ExampleClient_Enqueue() {
	client := jobs.NewClient(embedded(), jobs.Options{})
	err := client.Enqueue(context.Background(),
		RenderTickets.Job(Render{Seat: "14C"}),
		RenderTickets.Job(Render{Seat: "15C"}).At(time.Time{}),
	)
	var failed *jobs.EnqueueError
	if errors.As(err, &failed) {
		fmt.Println(failed.Queued, "in,", failed.Uncertain, "uncertain")
	}
	fmt.Println(err)
	// Output:
	// 0 in, 0 uncertain
	// jobs: enqueue: job 1, kind "render_tickets": At was given the zero time
}

// How do I retry? By the policy of the kind: the handler only returns an error.
func ExamplePolicy() {
	client := jobs.NewClient(embedded(), jobs.Options{})
	runner := jobs.NewRunner(client, quiet)
	ctx, stop := context.WithCancel(context.Background())
	jobs.Handle(runner, SendMail, func(ctx context.Context, args struct{ To string }) error {
		job, _ := jobs.FromContext(ctx)
		if job.Attempts < 2 {
			fmt.Println("503 after", job.Attempts, "attempts")
			return errors.New("503 Service Unavailable")
		}
		fmt.Println("sent to", args.To)
		stop()
		return nil
	})
	check(client.Enqueue(ctx, SendMail.Job(struct{ To string }{"ada@example.com"})))
	check(runner.Run(ctx))
	// Output:
	// 503 after 0 attempts
	// 503 after 1 attempts
	// sent to ada@example.com
}

// How do I never retry, or at a time that the provider names?
func ExamplePermanent() {
	handler := func(ctx context.Context, status int) error {
		switch err := fmt.Errorf("mail: %d", status); status {
		case 429:
			return jobs.RetryAfter(30*time.Second, err) // in place of the policy's backoff
		case 550:
			return jobs.Permanent(err) // to the dead letters, whatever the policy
		case 503:
			return err // as the policy says
		}
		return nil
	}
	fmt.Println(handler(context.Background(), 550))
	// Output: mail: 550
}

// How do I schedule?
func ExampleRunner_Schedule() {
	client := jobs.NewClient(embedded(), jobs.Options{})
	runner := jobs.NewRunner(client, jobs.Config{})
	ctx, stop := context.WithCancel(context.Background())
	jobs.Handle(runner, ExpireHolds, func(ctx context.Context, _ jobs.None) error {
		job, _ := jobs.FromContext(ctx)
		fmt.Println("the tick is a whole second:", job.Tick.Equal(job.Tick.Truncate(time.Second)))
		stop()
		return nil
	})
	// Each worker has the schedule, and each tick is one job.
	runner.Schedule(jobs.Periodic{When: jobs.Every(time.Second), Job: ExpireHolds.Job(jobs.None{})})

	berlin, err := time.LoadLocation("Europe/Berlin")
	check(err)
	runner.Schedule(jobs.Periodic{
		Name: "nightly",
		When: jobs.InZone(berlin, jobs.Daily(3, 0)), // or jobs.Cron("0 3 * * *")
		Job:  ExpireHolds.Job(jobs.None{}),
	})
	check(runner.Run(ctx))
	// Output: the tick is a whole second: true
}

// How do I delay a job, find it, and take it back?
func ExampleJob_In() {
	ctx := context.Background()
	client := jobs.NewClient(embedded(), jobs.Options{})
	reminder := SendMail.Job(struct{ To string }{"ada@example.com"}).In(24 * time.Hour) // or At a time
	check(client.Enqueue(ctx, reminder))

	for job, err := range client.Delayed().List(ctx) {
		check(err)
		fmt.Println(job.Kind, job.Fields["to"], "in", time.Until(job.Due).Round(time.Minute))
	}
	check(client.Delayed().Cancel(ctx, reminder.ID)) // or RunNow
	err := client.Delayed().RunNow(ctx, reminder.ID)
	fmt.Println("too late:", errors.Is(err, jobs.ErrNotFound))
	// Output:
	// send_mail ada@example.com in 24h0m0s
	// too late: true
}

// How do I replay a dead letter, its data corrected?
func ExampleDeadLetters_Replay() {
	client := jobs.NewClient(embedded(), jobs.Options{})
	died := make(chan jobs.DeadLetter)
	runner := jobs.NewRunner(client, jobs.Config{
		Logger: quiet.Logger,
		OnDead: func(_ context.Context, d jobs.DeadLetter) { died <- d }, // page somebody
	})
	ctx, stop := context.WithCancel(context.Background())
	jobs.Handle(runner, RenderTickets, func(ctx context.Context, args Render) error {
		if args.Seat == "14-C" {
			return fmt.Errorf("seat label %q is not a row letter and a seat number", args.Seat)
		}
		fmt.Println("rendered", args.Seat)
		stop()
		return nil
	})
	check(client.Enqueue(ctx, RenderTickets.Job(Render{OrderID: 4471, Seat: "14-C"})))

	go func() {
		letter := <-died
		fmt.Println("dead:", letter.Error)
		check(client.DeadLetters().Replay(ctx, letter.Entry, jobs.ReplayOptions{Set: jobs.Fields{"seat": "14C"}}))
		// Or all of a kind: client.DeadLetters().ReplayAll(ctx, jobs.Filter{Kind: "render_tickets"}, …)
	}()
	check(runner.Run(ctx))
	// Output:
	// dead: seat label "14-C" is not a row letter and a seat number
	// rendered 14C
}

// How do I keep secrets out of what is stored and logged? A Middleware may return another
// error than it was given. This one, redacted, still answers errors.Is and errors.As, so that
// Permanent and its like keep their meaning.
func ExampleMiddleware() {
	redact := func(next jobs.Handler) jobs.Handler {
		return func(ctx context.Context, job jobs.Job) error {
			if err := next(ctx, job); err != nil {
				return redacted{err}
			}
			return nil
		}
	}
	handler := redact(func(context.Context, jobs.Job) error {
		return jobs.Permanent(errors.New("dial postgres://u:s3cret@h/db?password=s3cret"))
	})
	fmt.Println(handler(context.Background(), jobs.Job{}))
	// jobs.NewRunner(client, jobs.Config{Middleware: []jobs.Middleware{redact}})

	// Output: dial postgres://u:…@h/db?password=…
}

// What does a handler deduplicate by? By its job's kind and ID: they stay the same across
// retries, crashes and replays.
func ExampleFromContext() {
	handler := func(ctx context.Context, args Render) error {
		job, _ := jobs.FromContext(ctx)
		fmt.Println("Idempotency-Key:", job.Kind, job.ID)
		return nil
	}
	job := jobs.Job{ID: "88210", Kind: "render_tickets"} // as the library does before each run
	check(handler(jobs.NewContext(context.Background(), job), Render{}))
	// Output: Idempotency-Key: render_tickets 88210
}

// How do I test my handler? By itself, it is a function; with the codec, the policy and time,
// by package jobstest.
func TestMyHandler(t *testing.T) {
	handler := func(_ context.Context, args Render) error {
		if args.Seat == "14-C" {
			return jobs.Permanent(errors.New("seat label"))
		}
		return nil
	}
	if a := jobstest.Run(t, RenderTickets, handler, Render{Seat: "14-C"}); a.Outcome != jobstest.Dead || a.Error != "seat label" {
		t.Error(a)
	}

	q := jobstest.New(t, jobs.Config{})
	jobs.Handle(q.Runner(), RenderTickets, handler)
	q.Enqueue(RenderTickets.Job(Render{Seat: "14C"}).In(24 * time.Hour))
	q.Advance(23 * time.Hour)
	if len(q.Done()) != 0 || len(q.Delayed()) != 1 {
		t.Error("it did not wait")
	}
	q.Advance(time.Hour)
	if len(q.Done()) != 1 {
		t.Error("it did not run")
	}
}
