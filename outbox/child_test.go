package outbox_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/outbox"
)

// childVariable makes this test binary a relay process, from the database that it names.
const childVariable = "OUTBOX_RELAY"

func child() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(childVariable))
	if err == nil {
		rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("OUTBOX_REDIS")})
		client := jobs.NewClient(rdb, jobs.Options{Prefix: os.Getenv("OUTBOX_PREFIX")})
		err = outbox.NewRelay(pool, client, outbox.RelayConfig{}).Run(ctx)
	}
	slog.Error("the relay ended", "err", err)
	os.Exit(1)
}

// spawn starts a relay process that publishes by way of a Redis, killed at the end of the test.
func (f *fixture) spawn(redisAddr string) *exec.Cmd {
	f.Helper()
	program, err := os.Executable()
	must(f, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"="+f.url, "OUTBOX_REDIS="+redisAddr, "OUTBOX_PREFIX="+f.prefix)
	cmd.Stderr = f.Output()
	must(f, cmd.Start())
	f.Cleanup(func() { kill(f, cmd) })
	return cmd
}

// kill ends a process at once, and returns when it is gone.
func kill(_ testing.TB, cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
}
