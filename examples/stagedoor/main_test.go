package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/outbox"
)

// fixture is a box office with an empty shop of its own and two fakes, all real but the fakes' business.
type fixture struct {
	*boxOffice
	mailer  *mailer
	payrail *payrail
	log     *bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, err := connect(t.Context(), servers.NewPostgres(t), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := createSchema(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := (outbox.Outbox{}).Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := seed(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	f := &fixture{log: new(bytes.Buffer)}
	var stop func()
	if f.mailer, stop, err = startMailer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if f.payrail, stop, err = startPayrail(2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	web := &http.Client{Timeout: 10 * time.Second}
	f.boxOffice = &boxOffice{
		db:      db,
		payrail: payrailClient{f.payrail.url, web},
		mail:    mailClient{f.mailer.url, web},
		log:     slog.New(slog.NewTextHandler(f.log, nil)),
	}
	return f
}

// exec runs statements that must succeed.
func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// one is the single value that a query returns.
func one[T any](t *testing.T, f *fixture, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := f.db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// order 1 is an order of ada's for some seats, without a checkout.
func (f *fixture) order1(t *testing.T, labels ...string) {
	t.Helper()
	f.exec(t, `INSERT INTO orders (id, event_id, email, total_cents) VALUES (1, 1, 'ada@example.org', 8900)`)
	f.exec(t, `UPDATE seats SET status = 'sold', order_id = 1 WHERE label = ANY($1)`, labels)
}

// contents is every row of every table with the transaction that wrote it: a row that is written again, even with the
// same values, differs.
func (f *fixture) contents(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, table := range []string{
		"events", "orders", "seats", "holds", "idempotency_keys", "jobs.outbox", "payments", "tickets",
	} {
		rows, err := f.db.Query(t.Context(), fmt.Sprintf(`SELECT xmin || ' ' || x::text FROM %s x ORDER BY 1`, table))
		if err != nil {
			t.Fatal(err)
		}
		if all[table], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// twice runs a handler and then runs it again: the second run must change nothing.
func twice[A any](t *testing.T, f *fixture, ctx context.Context, handler func(context.Context, A) error, args A) {
	t.Helper()
	if err := handler(ctx, args); err != nil {
		t.Fatal(err)
	}
	first := f.contents(t)
	if err := handler(ctx, args); err != nil {
		t.Fatalf("the second run: %v", err)
	}
	if diff := cmp.Diff(first, f.contents(t)); diff != "" {
		t.Errorf("the second run changed (-first +second):\n%s", diff)
	}
}

// withJob is a context as a handler has it.
func withJob(t *testing.T, job jobs.Job) context.Context {
	return jobs.NewContext(t.Context(), job)
}

func TestSchemaAndSeedMayRunAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.contents(t)
	started := make(chan error)
	for range 4 {
		go func() {
			err := createSchema(t.Context(), f.db)
			if err == nil {
				_, err = seed(t.Context(), f.db)
			}
			started <- err
		}()
	}
	for range 4 {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(before, f.contents(t)); diff != "" {
		t.Errorf("starting again changed:\n%s", diff)
	}
	if n := one[int](t, f, `SELECT count(*) FROM seats WHERE label = '14-C' AND status = 'available'`); n != 1 {
		t.Errorf("%d seats are labelled 14-C, want 1", n)
	}
}

func TestWorkersStartTogetherOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	db, err := connect(t.Context(), servers.NewPostgres(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	type result struct {
		fresh bool
		err   error
	}
	started := make(chan result)
	for range 4 {
		go func() {
			var r result
			if r.err = createSchema(t.Context(), db); r.err == nil {
				r.fresh, r.err = seed(t.Context(), db)
			}
			started <- r
		}()
	}
	fresh := 0
	for range 4 {
		r := <-started
		if r.err != nil {
			t.Error(r.err)
		}
		if r.fresh {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d workers seeded the shop, want 1", fresh)
	}
}

func TestDatabaseURLThatIsNone(t *testing.T) {
	t.Parallel()
	_, err := connect(t.Context(), "postgres://127.0.0.1:1/shop", "")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("connect: %v, want an error that names the address", err)
	}
}
