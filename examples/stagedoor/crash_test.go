package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// workVariable makes this test binary the worker of a shop, to be killed.
const workVariable = "STAGEDOOR_WORK"

func TestMain(m *testing.M) {
	if os.Getenv(workVariable) != "" {
		_ = work(context.Background(), os.Stderr)
		os.Exit(1) // it was to be killed
	}
	os.Exit(servers.Main(m))
}

// A process dies when its first checkout is committed, and before anything of that has reached Redis. The tickets go out
// once a relay is back.
func TestKilledBetweenCommitAndRelay(t *testing.T) {
	redis := servers.NewRedis(t)
	proxy := servers.NewProxy(t, redis.Addr())
	t.Setenv("DATABASE_URL", servers.NewPostgres(t))
	t.Setenv("REDIS_URL", "redis://"+proxy.Addr())

	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seller := exec.Command(program)
	seller.Env = append(os.Environ(), workVariable+"=1")
	seller.Stderr = t.Output()
	started := make(chan *os.Process, 1)
	proxy.Hook(func(cmd []string) servers.Action {
		if slices.Contains(cmd, renderTickets.Name()) {
			return servers.CutBefore.Then(func() {
				p := <-started
				_ = p.Kill()
				started <- p // for a second one that is on its way
			})
		}
		return servers.Pass
	})
	if err := seller.Start(); err != nil {
		t.Fatal(err)
	}
	started <- seller.Process
	_ = seller.Wait() // killed
	proxy.Hook(nil)

	s, err := open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	lag, err := s.office.outbox.Lag(t.Context(), s.office.db)
	if n := redis.Client(t).XLen(t.Context(), "jobs").Val(); lag.Rows != 3 || n != 0 || err != nil {
		t.Fatalf("%d rows wait, %d entries are in the stream, %v; want 3 and none", lag.Rows, n, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, jobs.Config{}) }()
	for ctx.Err() == nil {
		if sent, _ := s.mailer.mails(); len(sent) == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	sent, _ := s.mailer.mails()
	if len(sent) != 1 {
		t.Errorf("%d mails were sent", len(sent))
	}
}

// A checkout that is rolled back at its very end has sent nothing.
func TestACheckoutThatIsRolledBackSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if _, err := f.checkout(t.Context(), f.ada(t, time.Hour, "1A")); err == nil {
		t.Fatal("it was committed")
	}
	if n := one[int](t, f, `SELECT count(*) FROM jobs.outbox`); n != 0 {
		t.Errorf("%d jobs are in the outbox", n)
	}
}
