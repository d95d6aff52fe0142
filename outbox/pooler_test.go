package outbox_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/outbox"
)

// through is a fixture whose pool goes through a pgbouncer in transaction mode with three connections, and the URL of the
// database itself.
func through(t *testing.T, set ...func(*pgxpool.Config)) (f *fixture, direct string) {
	t.Helper()
	bouncer := servers.NewPgbouncer(t, 3)
	direct = servers.NewPostgres(t)
	u, err := url.Parse(direct)
	must(t, err)
	u.Host = bouncer.Addr()
	f = newFixtureOn(t, u.String(), servers.SharedRedis(t).Addr(), servers.Prefix(t))
	f.pool = newPool(t, u.String(), set...)
	t.Cleanup(f.pool.Close)
	return f, direct
}

// The modes are those in which a pool of the application's may be: pgx's default does not go with such an old pgbouncer,
// and none of it is used here.
func TestThroughAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f, _ := through(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			var log journal
			for range 3 {
				f.relay(outbox.RelayConfig{Poll: 50 * time.Millisecond, Logger: log.logger(t)})
			}
			done := make(chan struct{})
			for range 8 {
				go func() {
					defer func() { done <- struct{}{} }()
					for range 20 {
						f.commit(many(3)...)
					}
				}()
			}
			for range 8 {
				<-done
			}
			count := map[string]int{}
			for _, id := range f.await(480) {
				if count[id]++; count[id] > 1 {
					t.Errorf("%s was carried twice", id)
				}
			}
			if !f.once(act.Job(nil)) {
				t.Error("not the first")
			}
			if _, err := f.box.Purge(t.Context(), f.pool, 1); err != nil {
				t.Error(err)
			}
			f.eventually("it says that it polls", func() bool {
				return strings.Count(log.String(), "the outbox is polled") == 3
			})
			if n := strings.Count(log.String(), "go through a pooler"); n != 3 { // found out, and not by LISTEN in a session of others
				t.Errorf("%d of 3 know why", n)
			}
			if strings.Contains(log.String(), "trouble") {
				t.Error("there was trouble")
			}
		})
	}
}

// Notifications come by a way of their own.
func TestThroughAPoolerWithAConnectionThatListens(t *testing.T) {
	t.Parallel()
	f, direct := through(t)
	config, err := pgx.ParseConfig(direct)
	must(t, err)
	f.relay(outbox.RelayConfig{Poll: time.Hour, Listen: config})
	for i := range 3 {
		f.commit(act.Job(nil))
		f.await(i + 1)
	}
}
