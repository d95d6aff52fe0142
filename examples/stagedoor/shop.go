package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/outbox"
)

// shop is everything that runs: the box office, its queue, and the fakes of the two outside services.
type shop struct {
	office  *boxOffice
	rdb     *redis.Client
	client  *jobs.Client
	relay   *outbox.Relay
	mailer  *mailer
	payrail *payrail
	closers []func()
}

// open connects the shop, starts what the environment does not name, and makes the tables that are missing. close
// undoes it. A sandbox keeps to a database schema and Redis keys of that name, and begins with both empty; "" is the
// shop itself.
func open(ctx context.Context, sandbox string) (*shop, error) {
	s := &shop{}
	if err := s.start(ctx, sandbox); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *shop) start(ctx context.Context, sandbox string) error {
	db, err := s.openDatabase(ctx, sandbox)
	if err != nil {
		return err
	}
	if err := s.openRedis(); err != nil {
		return err
	}
	if err := s.startFakes(); err != nil {
		return err
	}
	s.client = jobs.NewClient(s.rdb, jobs.Options{Prefix: prefix(sandbox), Annotate: annotate})
	web := &http.Client{Timeout: 10 * time.Second}
	s.office = &boxOffice{
		db:      db,
		payrail: payrailClient{url: s.payrail.url, http: web},
		mail:    mailClient{url: s.mailer.url, http: web},
		outbox:  outbox.Outbox{Schema: sandbox, Annotate: annotate},
		log:     slog.New(slog.DiscardHandler),
	}
	s.relay = outbox.NewRelay(db, s.client, outbox.RelayConfig{Schema: sandbox})
	if err := s.empty(ctx, sandbox); err != nil {
		return err
	}
	if err := createSchema(ctx, db); err != nil {
		return err
	}
	return s.office.outbox.Migrate(ctx, db)
}

// run works until ctx ends: a worker, and the relay that carries what checkouts have decided on.
func (s *shop) run(ctx context.Context, c jobs.Config) error {
	runner := jobs.NewRunner(s.client, c)
	register(runner, s.office)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	carried := make(chan error, 1)
	go func() {
		defer stop()
		carried <- s.relay.Run(ctx)
	}()
	err := runner.Run(ctx)
	stop()
	return errors.Join(err, <-carried)
}

// close ends what open began, last first.
func (s *shop) close() {
	for _, stop := range slices.Backward(s.closers) {
		stop()
	}
	s.closers = nil
}

func prefix(sandbox string) string {
	if sandbox == "" {
		return ""
	}
	return sandbox + ":"
}

// empty takes away what an earlier run left in a sandbox.
func (s *shop) empty(ctx context.Context, sandbox string) error {
	if sandbox == "" {
		return nil
	}
	_, err := s.office.db.Exec(ctx, `DROP SCHEMA IF EXISTS `+sandbox+` CASCADE; CREATE SCHEMA `+sandbox)
	if err != nil {
		return err
	}
	keys := s.rdb.Scan(ctx, 0, prefix(sandbox)+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := s.rdb.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func (s *shop) openDatabase(ctx context.Context, schema string) (*pgxpool.Pool, error) {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		private, err := servers.StartPostgres()
		if errors.Is(err, servers.ErrNotInstalled) {
			return nil, errors.New("no PostgreSQL: set DATABASE_URL (postgres://user:password@host/database), " +
				"or install PostgreSQL's server for a private one")
		}
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, func() { private.Close() })
		url = private.URL("postgres")
		fmt.Fprintln(os.Stderr, "DATABASE_URL is not set: using a private PostgreSQL at", url)
	}
	db, err := connect(ctx, url, schema)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	s.closers = append(s.closers, db.Close)
	return db, nil
}

func connect(ctx context.Context, url, schema string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if schema != "" {
		config.ConnConfig.RuntimeParams["search_path"] = schema
	}
	db, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := db.Ping(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func (s *shop) openRedis() error {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		mini, err := servers.StartMiniredisAt("127.0.0.1:6379") // where cmd/jobs looks unless told
		if err != nil {
			mini, err = servers.StartMiniredis()
		}
		if err != nil {
			return err
		}
		s.closers = append(s.closers, mini.Close)
		url = "redis://" + mini.Addr()
		fmt.Fprintln(os.Stderr, "REDIS_URL is not set: using an embedded miniredis at", url)
		fmt.Fprintf(os.Stderr, "look at it: REDIS_URL=%s go run ./cmd/jobs dead replay --kind render_tickets --dry-run\n", url)
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	s.rdb = redis.NewClient(options)
	s.closers = append(s.closers, func() { s.rdb.Close() })
	return nil
}

func (s *shop) startFakes() (err error) {
	var stop func()
	if s.mailer, stop, err = startMailer(); err != nil {
		return err
	}
	s.closers = append(s.closers, stop)
	if s.payrail, stop, err = startPayrail(100); err != nil {
		return err
	}
	s.closers = append(s.closers, stop)
	return nil
}

// sell plays a buyer who holds seats, pays at Payrail and checks out.
func (s *shop) sell(ctx context.Context, labels ...string) (orderID int64, err error) {
	const buyer = "ada@example.org"
	ctx = withRequest(ctx, "7f3a9c2e", "4bf92f35")
	seats, err := s.office.seatIDs(ctx, labels...)
	if err != nil {
		return 0, err
	}
	if err := s.office.hold(ctx, buyer, seats, 10*time.Minute); err != nil {
		return 0, err
	}
	paymentID := "pay_" + strings.Join(labels, "_")
	s.payrail.add(payment{
		ID:         paymentID,
		Cents:      seatCents * int64(len(labels)),
		Status:     "captured",
		CapturedAt: time.Now(),
	})
	return s.office.checkout(ctx, purchase{
		Key:       "checkout-" + paymentID,
		Email:     buyer,
		SeatIDs:   seats,
		PaymentID: paymentID,
	})
}

// request is what a web server knows of the request it serves; annotate puts it on the jobs that the request enqueues.
type request struct{ id, trace string }

type requestKey struct{}

func withRequest(ctx context.Context, id, trace string) context.Context {
	return context.WithValue(ctx, requestKey{}, request{id, trace})
}

func annotate(ctx context.Context, j *jobs.Job) {
	if r, ok := ctx.Value(requestKey{}).(request); ok {
		j.RequestID, j.Trace = r.id, r.trace
	}
}
