package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/outbox"
)

// once asks in a transaction of its own, and commits it.
func (f *fixture) once(job jobs.Job) (first bool) {
	f.Helper()
	must(f, pgx.BeginFunc(f.Context(), f.pool, func(tx pgx.Tx) (err error) {
		first, err = outbox.Once(f.Context(), tx, job)
		return err
	}))
	return first
}

func TestOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rolledBack := f.begin()
	job := act.Job(nil)
	if first, err := outbox.Once(t.Context(), rolledBack, job); !first || err != nil {
		t.Fatalf("at first: %t, %v", first, err)
	}
	must(t, rolledBack.Rollback(t.Context()))
	if !f.once(job) || f.once(job) || f.once(job) {
		t.Error("want true once what was rolled back is gone, then false")
	}
	other := job
	other.Kind = "other"
	if !f.once(other) {
		t.Error("the same ID of another kind is another job")
	}
	for _, job := range []jobs.Job{{ID: "1"}, {Kind: "act"}} {
		if _, err := outbox.Once(t.Context(), f.begin(), job); err == nil {
			t.Errorf("%+v was taken for a job", job)
		}
	}
}

// IDs are bytes: those of other producers too.
func TestOnceOfAnyID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"88210", "1758203641877-0", "\x00", "\xff", "\xfe", strings.Repeat("x", 5000), strings.Repeat("x", 5001), "'"} {
		if job := (jobs.Job{Kind: "act", ID: id}); !f.once(job) || f.once(job) {
			t.Errorf("ID %.20q: want true, then false", id)
		}
	}
}

// Of two runs at once the second waits, and is the first if the other's transaction is rolled back.
func TestOnceAtTheSameTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		name   string
		end    func(pgx.Tx) error
		second bool
	}{
		{"committed", func(tx pgx.Tx) error { return tx.Commit(t.Context()) }, false},
		{"rolled back", func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			job, tx := act.Job(nil), f.begin()
			if first, err := outbox.Once(t.Context(), tx, job); !first || err != nil {
				t.Fatalf("the first: %t, %v", first, err)
			}
			second := make(chan bool)
			go func() { second <- f.once(job) }()
			f.eventually("the second waits", func() bool {
				return one[bool](f, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
			})
			must(t, c.end(tx))
			if got := <-second; got != c.second {
				t.Errorf("the second is first: %t", got)
			}
		})
	}
}

func TestOnceWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job, tx := act.Job(nil), f.begin()
	_, err := tx.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1`)
	must(t, err)
	must(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM jobs.once`).Scan(new(int)))
	f.once(job)
	_, err = outbox.Once(t.Context(), tx, job)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "40001" {
		t.Errorf("%v, want a serialization failure", err)
	}
}

func TestPurgeOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO jobs.once (kind, job_id, done_at)
		SELECT 'old', n, now() - interval '31 days' FROM generate_series(1, 2500) n
		UNION ALL SELECT 'young', 1, now() - interval '29 days'`)
	if n, err := f.box.PurgeOnce(t.Context(), f.pool, 0); n != 2500 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if kind := one[string](f, `SELECT string_agg(kind, ',') FROM jobs.once`); kind != "young" {
		t.Errorf("left: %s", kind)
	}
	if n, err := f.box.PurgeOnce(t.Context(), f.pool, 24*time.Hour); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}
