package outbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs/outbox"
)

func TestPurge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO jobs.outbox (kind, created_at, published_at)
		SELECT 'old', now() - interval '9 days', now() - interval '8 days' FROM generate_series(1, 2500)
		UNION ALL SELECT 'young', now() - interval '9 days', now() - interval '6 days 23 hours'
		UNION ALL SELECT 'unpublished', now() - interval '9 days', NULL`)
	f.exec(`CREATE TABLE batches (n bigint);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO batches SELECT count(*) FROM gone; RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON jobs.outbox REFERENCING OLD TABLE AS gone
			FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	if n, err := f.box.Purge(t.Context(), f.pool, 0); n != 2500 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if left := one[string](f, `SELECT string_agg(kind, ',' ORDER BY kind) FROM jobs.outbox`); left != "unpublished,young" {
		t.Errorf("left: %s", left)
	}
	if got := one[[]int](f, `SELECT array_agg(n ORDER BY n DESC) FROM batches`); !slices.Equal(got, []int{1000, 1000, 500}) {
		t.Errorf("batches of %v", got)
	}
	if n, err := f.box.Purge(t.Context(), f.pool, time.Hour); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

// However large the table, and wherever in it the rows lie.
func TestPurgeLooksThroughAllOfATable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const all = 4000
	f.exec(`INSERT INTO jobs.outbox (kind, fields, published_at)
		SELECT 'old', json_build_object('pad', repeat('x', 600)), CASE WHEN n % 2 = 0 THEN now() - interval '8 days' END
		FROM generate_series(1, 4000) n`)
	if blocks := one[int](f, `SELECT pg_relation_size('jobs.outbox') / 8192`); blocks < 300 {
		t.Fatalf("the table has %d blocks", blocks)
	}
	if n, err := f.box.Purge(t.Context(), f.pool, 0); n != all/2 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if left := one[int](f, `SELECT count(*) FROM jobs.outbox WHERE published_at IS NULL`); left != all/2 {
		t.Errorf("%d are left that were not published", left)
	}
}

// A purge neither waits for locks nor holds any while it waits for something else, and is nobody's obstacle.
func TestPurgePassesOverWhatIsLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO jobs.outbox (kind, published_at) SELECT 'old', now() - interval '8 days' FROM generate_series(1, 1500)`)
	locker := f.begin()
	_, err := locker.Exec(t.Context(), `SELECT FROM jobs.outbox WHERE seq = 1 FOR UPDATE`)
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if n, err := f.box.Purge(ctx, f.pool, 0); n != 1499 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	must(t, locker.Rollback(t.Context()))
	if n, err := f.box.Purge(ctx, f.pool, 0); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

func TestAgesThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, rows := range []string{ // none and one
		``, `INSERT INTO jobs.outbox (kind, published_at) VALUES ('act', now()); INSERT INTO jobs.once (kind, job_id) VALUES ('act', '1')`,
	} {
		f.exec(rows)
		for name, purge := range map[string]func(context.Context, outbox.DB, time.Duration) (int64, error){
			"outbox: purge: ": f.box.Purge, "outbox: purge once: ": f.box.PurgeOnce,
		} {
			if n, err := purge(t.Context(), f.pool, -time.Hour); n != 0 || err == nil || !strings.HasPrefix(err.Error(), name) {
				t.Errorf("%s%d, %v", name, n, err)
			}
		}
	}
}

// A row that somebody wants carried again while a purge is at it is not deleted.
func TestPurgeLeavesARowThatIsToBeCarriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if n, err := f.box.Purge(t.Context(), f.pool, 0); n != 0 || err != nil {
		t.Errorf("of an empty table: purged %d, %v", n, err)
	}
	f.exec(`INSERT INTO jobs.outbox (kind, published_at) SELECT 'old', now() - interval '8 days' FROM generate_series(1, 3)`)
	f.exec(`CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END $$;
		CREATE TRIGGER again BEFORE DELETE ON jobs.outbox FOR EACH ROW WHEN (OLD.seq = 1) EXECUTE FUNCTION again()`)
	held, again := f.begin(), f.begin()
	_, err := held.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`)
	must(t, err)
	_, err = again.Exec(t.Context(), `UPDATE jobs.outbox SET published_at = NULL WHERE seq = 2`)
	must(t, err)
	done := make(chan int64)
	go func() {
		n, err := f.box.Purge(t.Context(), f.pool, 0)
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	f.eventually("the purge has chosen its rows", func() bool {
		return one[bool](f, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory')`)
	})
	must(t, again.Commit(t.Context()))
	must(t, held.Rollback(t.Context()))
	if n := <-done; n != 2 {
		t.Errorf("purged %d, want 2", n)
	}
	if lag := f.lag(); lag.Rows != 1 {
		t.Errorf("%d rows wait, want 1", lag.Rows)
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if lag := f.lag(); lag != (outbox.Lag{}) {
		t.Errorf("empty: %+v", lag)
	}
	f.exec(`INSERT INTO jobs.outbox (kind, created_at, published_at) VALUES
		('a', now() - interval '90 seconds', NULL), ('b', now(), NULL), ('c', now() - interval '1 day', now())`)
	if lag := f.lag(); lag.Rows != 2 || lag.Oldest < 90*time.Second || lag.Oldest > 100*time.Second {
		t.Errorf("%+v, want 2 rows, the oldest 90 s old", lag)
	}
	_, err := outbox.Outbox{Schema: "elsewhere"}.Lag(t.Context(), f.pool)
	if err == nil || !strings.HasPrefix(err.Error(), "outbox: lag: ") {
		t.Errorf("without a table: %v", err)
	}
}

// Whoever writes a row may give it any time, and is not to make it impossible to ask.
func TestLagOfRowsWithAnyTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for created, old := range map[string]bool{
		"infinity": false, "9999-12-31": false, "1900-01-01": true, "4713-01-01 BC": true, "-infinity": true,
	} {
		f.exec(`DELETE FROM jobs.outbox`)
		f.exec(`INSERT INTO jobs.outbox (kind, created_at) VALUES ('act', $1::text::timestamptz)`, created)
		if lag := f.lag(); lag.Rows != 1 || lag.Oldest < 0 || (lag.Oldest > 50*365*24*time.Hour) != old {
			t.Errorf("%s: %+v", created, lag)
		}
	}
}
