package outbox_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stagedoor/jobs/outbox"
)

// The connection that listens is made as the pool's are, with what the application has hung on them.
func TestTheConnectionThatListensIsMadeLikeThePools(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*pgxpool.Config){
		"BeforeConnect": func(c *pgxpool.Config) { // a password that is fetched each time, say
			user := c.ConnConfig.User
			c.ConnConfig.User = "nobody"
			c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { c.User = user; return nil }
		},
		"OnNotification": func(c *pgxpool.Config) { // which would be told instead of the relay
			c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			g := *f
			g.pool = newPool(t, f.url, set)
			g.relay(outbox.RelayConfig{Poll: time.Hour})
			for i := range 3 { // the first is carried in any case
				f.commit(act.Job(nil))
				f.await(i + 1)
			}
		})
	}
}

// What was committed while nobody listened is carried when somebody does, however seldom the relay polls.
func TestWhatWasCommittedBeforeTheRelayListens(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listens := make(chan struct{})
	config := f.listening(func(dial pgconn.DialFunc) pgconn.DialFunc {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-listens
			return dial(context.WithoutCancel(ctx), network, addr)
		}
	})
	f.commit(act.Job(nil))
	f.relay(outbox.RelayConfig{Poll: time.Hour, Listen: config})
	f.await(1)
	f.commit(act.Job(nil))
	close(listens)
	f.await(2)
}

// listening is the way to the fixture's database, by a way of dialling.
func (f *fixture) listening(by func(pgconn.DialFunc) pgconn.DialFunc) *pgx.ConnConfig {
	f.Helper()
	config, err := pgx.ParseConfig(f.url)
	must(f, err)
	config.DialFunc = by(config.DialFunc)
	return config
}

// A connection that hears nothing, since it leads to another database, say, is found out, and the relay says that it polls.
func TestAConnectionThatIsDeafIsFoundOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaf := f.listening(func(dial pgconn.DialFunc) pgconn.DialFunc { return dial })
	deaf.Database = "postgres"
	var log journal
	f.relay(outbox.RelayConfig{Poll: 20 * time.Millisecond, Listen: deaf, Logger: log.logger(t)})
	f.commit(act.Job(nil))
	f.await(1)
	f.eventually("it says that it polls", func() bool {
		return strings.Contains(log.String(), "the outbox is polled") && strings.Contains(log.String(), "a notification did not arrive")
	})
}

func TestTheConnectionThatListensIsClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var open atomic.Int64
	stop := f.relay(outbox.RelayConfig{Listen: f.listening(func(dial pgconn.DialFunc) pgconn.DialFunc {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil {
				open.Add(1)
				conn = &counted{Conn: conn, open: &open}
			}
			return conn, err
		}
	})})
	f.eventually("it listens", func() bool {
		return one[bool](f, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%')`)
	})
	if n := open.Load(); n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
	stop()
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections are left open", n)
	}
}

// Run waits for what pgx closes by itself where a query is interrupted.
func TestTheConnectionIsClosedInTheMiddleOfAQuery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var open atomic.Int64
	begun := make(chan struct{})
	stop := f.relay(outbox.RelayConfig{Listen: f.listening(func(dial pgconn.DialFunc) pgconn.DialFunc {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil {
				open.Add(1)
				conn = &unanswered{counted: counted{Conn: conn, open: &open}, begun: begun, given: make(chan struct{})}
			}
			return conn, err
		}
	})})
	<-begun
	stop()
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections are left open", n)
	}
}

// unanswered is a connection on which LISTEN has no answer for as long as it is waited for, and which takes its time to close.
type unanswered struct {
	counted
	begun chan struct{} // closed by LISTEN
	given chan struct{} // up
	waits atomic.Bool
	once  sync.Once
}

func (u *unanswered) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("LISTEN")) && !u.waits.Swap(true) {
		close(u.begun)
	}
	return u.counted.Write(b)
}

func (u *unanswered) Read(b []byte) (int, error) {
	if u.waits.Load() {
		<-u.given
	}
	return u.counted.Read(b)
}

func (u *unanswered) SetDeadline(at time.Time) error {
	if u.waits.Load() && !at.IsZero() {
		u.once.Do(func() { close(u.given) })
	}
	return u.counted.SetDeadline(at)
}

func (u *unanswered) Close() error {
	time.Sleep(50 * time.Millisecond)
	return u.counted.Close()
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}
