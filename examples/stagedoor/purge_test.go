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
		INSERT INTO jobs.outbox (kind, created_at, published_at)
		SELECT 'old', now() - interval '9 days', now() - interval '8 days' FROM generate_series(1, 2500)
		UNION ALL SELECT 'young', now() - interval '9 days', now() - interval '6 days 23 hours'
		UNION ALL SELECT 'unpublished', now() - interval '9 days', NULL`)

	twice(t, f, t.Context(), f.purgeOutbox, jobs.None{})

	left := one[[]string](t, f, `SELECT array_agg(kind ORDER BY kind) FROM jobs.outbox`)
	if len(left) != 2 || left[0] != "unpublished" || left[1] != "young" {
		t.Errorf("left: %v, want unpublished and young", left)
	}
}
