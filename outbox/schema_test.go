package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs/outbox"
)

func TestMigrateMayRunAgainAndAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	box := outbox.Outbox{Schema: "shop"}
	done := make(chan error)
	for range 8 {
		go func() { done <- box.Migrate(t.Context(), f.pool) }()
	}
	for range 8 {
		must(t, <-done)
	}
	f.exec(`INSERT INTO shop.outbox (kind) VALUES ('act')`)
	for range 2 { // and by hand
		f.exec(box.SQL())
	}
	if n := one[int](f, `SELECT count(*) FROM shop.outbox`); n != 1 {
		t.Errorf("%d rows are left", n)
	}
}

// A session that has looked for the schema remembers for a moment that there is none, also when it has waited for one that
// makes it.
func TestMigrateWhileAnotherMakesTheSchema(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	box := outbox.Outbox{Schema: "shop"}
	other := f.begin()
	_, err := other.Exec(t.Context(), box.SQL())
	must(t, err)
	conn, err := pgx.Connect(t.Context(), f.url)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `CREATE SCHEMA first; DROP SCHEMA first`) // all else is in its memory, and not looked up anew
	must(t, err)
	done := make(chan error)
	go func() { done <- box.Migrate(t.Context(), conn) }()
	f.eventually("it waits for the other", func() bool {
		return one[bool](f, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory')`)
	})
	must(t, other.Commit(t.Context()))
	must(t, <-done)
}

// Where all is there, Migrate waits for nobody: a deploy during a long transaction is no outage.
func TestMigrateLocksNothingWhereAllIsThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin()
	_, err := tx.Exec(t.Context(), `LOCK TABLE jobs.outbox IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	conn, err := pgx.Connect(t.Context(), f.url)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `SET statement_timeout = '10s'`)
	must(t, err)
	must(t, f.box.Migrate(t.Context(), conn))
}

// Who may make tables in his schema need not be allowed to make schemas.
func TestMigrateInASchemaThatIsThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`DROP ROLE IF EXISTS maker; CREATE ROLE maker LOGIN; CREATE SCHEMA his AUTHORIZATION maker`)
	t.Cleanup(func() { _, _ = f.pool.Exec(context.Background(), `DROP OWNED BY maker; DROP ROLE maker`) })
	must(t, outbox.Outbox{Schema: "his"}.Migrate(t.Context(), newPool(t, strings.Replace(f.url, "postgres@", "maker@", 1))))
}

func TestHostileSchemaNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{
		"public", "select", "Jobs", "a b", `a"b`, `"; DROP SCHEMA jobs CASCADE; --`, "a'b", "$wake$", "$$", "{schema}", `\`, "ä",
		"%s%d", strings.Repeat("x", 63), "a.b", "/*",
		"a\n'\";SELECT 1/0;--", "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := *f
			g.T, g.box = t, outbox.Outbox{Schema: name}
			for range 2 {
				must(t, g.box.Migrate(t.Context(), f.pool))
			}
			must(t, f.rdb.Del(t.Context(), f.prefix+"jobs").Err())
			stop := g.relay(outbox.RelayConfig{Schema: name})
			g.commit(many(2)...)
			g.await(2)
			tx := g.begin()
			if first, err := g.box.Once(t.Context(), tx, act.Job(nil)); !first || err != nil {
				t.Errorf("once: %t, %v", first, err)
			}
			must(t, tx.Rollback(t.Context()))
			if n, err := g.box.Purge(t.Context(), f.pool, 1); n != 2 || err != nil {
				t.Errorf("purge: %d, %v", n, err)
			}
			_, err := g.box.PurgeOnce(t.Context(), f.pool, 0)
			must(t, err)
			stop()
		})
	}
	for _, name := range []string{strings.Repeat("x", 64), "a\x00b", "\xff"} {
		if err := (outbox.Outbox{Schema: name}).Migrate(t.Context(), f.pool); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
	if one[bool](f, `SELECT to_regclass('jobs.outbox') IS NULL`) {
		t.Error("the schema jobs is gone")
	}
}

// Each needs no more rights than the README says.
func TestRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	as := func(role, rights string) *fixture {
		f.exec(`DROP ROLE IF EXISTS ` + role + `; CREATE ROLE ` + role + ` LOGIN; GRANT USAGE ON SCHEMA jobs TO ` + role + `; ` + rights)
		t.Cleanup(func() { _, _ = f.pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role) })
		g := *f
		g.pool = newPool(t, strings.Replace(f.url, "postgres@", role+"@", 1))
		return &g
	}
	producer := as("producer", `GRANT INSERT ON jobs.outbox, jobs.once TO producer`)
	producer.commit(many(2)...)
	if !producer.once(act.Job(nil)) {
		t.Error("not the first")
	}
	as("relay", `GRANT SELECT, UPDATE ON jobs.outbox TO relay`).relay(outbox.RelayConfig{})
	f.await(2)
	purger := as("purger", `GRANT SELECT, UPDATE, DELETE ON jobs.outbox, jobs.once TO purger`)
	if n, err := purger.box.Purge(t.Context(), purger.pool, 1); n != 2 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if n, err := purger.box.PurgeOnce(t.Context(), purger.pool, 1); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}
