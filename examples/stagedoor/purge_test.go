package main

import (
	"testing"

	"github.com/stagedoor/jobs"
)

func TestPurgeIdempotencyKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
		INSERT INTO idempotency_keys (key, created_at) VALUES
			('young', now() - interval '23 hours 59 minutes'),
			('old', now() - interval '24 hours 1 minute'),
			('ancient', now() - interval '1 year')`)

	twice(t, f, t.Context(), f.purgeIdempotencyKeys, jobs.None{})

	if left := one[[]string](t, f, `SELECT array_agg(key) FROM idempotency_keys`); len(left) != 1 || left[0] != "young" {
		t.Errorf("left: %v, want young", left)
	}
}

func TestPurgeOutbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
		INSERT INTO outbox (kind, fields, created_at, published_at)
		SELECT 'old', '{}'::jsonb, now() - interval '9 days', now() - interval '8 days' FROM generate_series(1, 2500)
		UNION ALL SELECT 'young', '{}', now() - interval '9 days', now() - interval '6 days 23 hours'
		UNION ALL SELECT 'unpublished', '{}', now() - interval '9 days', NULL`)

	twice(t, f, t.Context(), f.purgeOutbox, jobs.None{})

	left := one[[]string](t, f, `SELECT array_agg(kind ORDER BY kind) FROM outbox`)
	if len(left) != 2 || left[0] != "unpublished" || left[1] != "young" {
		t.Errorf("left: %v, want unpublished and young", left)
	}
}

// The statements are counted, since a purge that takes everything at once leaves the same rows.
func TestPurgeOutboxGoesInBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
		INSERT INTO outbox (kind, fields, published_at)
		SELECT 'old', '{}', now() - interval '8 days' FROM generate_series(1, 2500)`)
	f.exec(t, `
		CREATE TABLE batches (n bigint);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO batches SELECT count(*) FROM gone; RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON outbox REFERENCING OLD TABLE AS gone
			FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	if err := f.purgeOutbox(t.Context(), jobs.None{}); err != nil {
		t.Fatal(err)
	}
	got := one[[]int](t, f, `SELECT array_agg(n ORDER BY n DESC) FROM batches`)
	if len(got) != 3 || got[0] != 1000 || got[1] != 1000 || got[2] != 500 {
		t.Errorf("batches of %v, want 1000, 1000 and 500", got)
	}
}
