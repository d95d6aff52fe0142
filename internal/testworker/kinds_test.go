package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// newTestRecorder records through a proxy of a Redis, whose lists the client reads.
func newTestRecorder(t *testing.T) (recorder, *servers.Proxy, *redis.Client) {
	t.Helper()
	server := servers.NewMiniredis(t)
	proxy := servers.NewProxy(t, server.Addr())
	through := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { through.Close(); direct.Close() })
	return recorder{through, "w"}, proxy, direct
}

func runOK(ctx context.Context, r recorder) error {
	return r.handler("ok")(jobs.NewContext(ctx, jobs.Job{ID: "1", Kind: "ok"}), jobs.Fields{})
}

func counts(t *testing.T, rdb *redis.Client) [2]int64 {
	t.Helper()
	return [2]int64{rdb.LLen(t.Context(), "ran").Val(), rdb.LLen(t.Context(), "finished").Val()}
}

func TestRecordWhoseReplyIsLostIsWrittenOnce(t *testing.T) {
	t.Parallel()
	rec, proxy, rdb := newTestRecorder(t)
	lost := proxy.Swallow(servers.Command("RPUSH"))
	if err := runOK(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	<-lost
	if got := counts(t, rdb); got != [2]int64{1, 1} {
		t.Errorf("ran and finished hold %v", got)
	}
}

func TestRecordOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	rec, proxy, rdb := newTestRecorder(t)
	var refused atomic.Int64
	proxy.Hook(func(cmd []string) servers.Action {
		if strings.EqualFold(cmd[0], "RPUSH") && refused.Add(1) <= 3 {
			return servers.ReplyError("OOM command not allowed")
		}
		return servers.Pass
	})
	if err := runOK(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if got := counts(t, rdb); got != [2]int64{1, 1} || refused.Load() != 5 {
		t.Errorf("ran and finished hold %v after %d tries", got, refused.Load())
	}
}

func TestRunThatCannotBeRecordedFails(t *testing.T) {
	t.Parallel()
	rec, proxy, rdb := newTestRecorder(t)
	proxy.Hook(func([]string) servers.Action { return servers.ReplyError("OOM command not allowed") })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrShutdown)
	if err := runOK(ctx, rec); !errors.Is(err, jobs.ErrShutdown) {
		t.Error(err)
	}
	if got := counts(t, rdb); got != [2]int64{0, 0} {
		t.Errorf("ran and finished hold %v", got)
	}
}

// A handler that does not look at its context is still recorded when that is over.
func TestRecordAfterTheContextEnded(t *testing.T) {
	t.Parallel()
	rec, _, rdb := newTestRecorder(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runOK(ctx, rec); err != nil {
		t.Fatal(err)
	}
	if got := counts(t, rdb); got != [2]int64{1, 1} {
		t.Errorf("ran and finished hold %v", got)
	}
}

func TestErrorOfSleepIsItsContexts(t *testing.T) {
	t.Parallel()
	why := errors.New("told to")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := sleep(ctx, map[string]string{"ms": "60000"}); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Error(err)
	}
}
