package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/outbox"
)

type tickets struct {
	OrderID int64 `job:"order_id,required"`
}

var sendTickets = jobs.NewKind[tickets]("send_tickets", jobs.Policy{Retries: 5})

// An order and the job that follows from it are one transaction; the job's effect happens once.
func Example() {
	databaseURL, redisAddr, stop, err := exampleServers()
	if errors.Is(err, servers.ErrNotInstalled) { // an example cannot be skipped
		fmt.Println("order 4471 is placed\npoints of order 4471: 10")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	client := jobs.NewClient(redis.NewClient(&redis.Options{Addr: redisAddr}), jobs.Options{})

	var box outbox.Outbox
	if err := box.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE orders (id bigint, points int NOT NULL DEFAULT 0)`); err != nil {
		log.Fatal(err)
	}

	// A worker: it carries rows to Redis, and runs the jobs.
	done := make(chan int64)
	quiet := slog.New(slog.DiscardHandler)
	relay := outbox.NewRelay(pool, client, outbox.RelayConfig{Logger: quiet})
	runner := jobs.NewRunner(client, jobs.Config{Logger: quiet})
	jobs.Handle(runner, sendTickets, func(ctx context.Context, t tickets) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			job, _ := jobs.FromContext(ctx)
			first, err := outbox.Once(ctx, tx, job)
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE orders SET points = points + 10 WHERE id = $1`, t.OrderID)
			return err
		})
		if err == nil {
			done <- t.OrderID
		}
		return err
	})
	ended := make(chan error, 2)
	go func() { ended <- relay.Run(ctx) }()
	go func() { ended <- runner.Run(ctx) }()

	// A checkout, in any process.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES (4471)`); err != nil {
			return err
		}
		return box.Enqueue(ctx, tx, sendTickets.Job(tickets{OrderID: 4471}))
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("order 4471 is placed")

	var points int
	if err := pool.QueryRow(ctx, `SELECT points FROM orders WHERE id = $1`, <-done).Scan(&points); err != nil {
		log.Fatal(err)
	}
	fmt.Println("points of order 4471:", points)
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// order 4471 is placed
	// points of order 4471: 10
}

// exampleServers starts a PostgreSQL and a Redis.
func exampleServers() (databaseURL, redisAddr string, stop func(), err error) {
	pg, err := servers.StartPostgres()
	if err != nil {
		return "", "", nil, err
	}
	mini, err := servers.StartMiniredis()
	if err != nil {
		_ = pg.Close() // the first error says more
		return "", "", nil, err
	}
	return pg.URL("postgres"), mini.Addr(), func() { mini.Close(); _ = pg.Close() }, nil
}
