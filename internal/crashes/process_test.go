package crashes_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/crashes"
	"github.com/stagedoor/jobs/internal/servers"
)

func name(words []string) string { return words[0] }

// living is a process that dies at a point, its client, and another client.
func living(t *testing.T, at crashes.Point) (*crashes.Process, *redis.Client, *redis.Client) {
	addr := servers.NewMiniredis(t).Addr()
	p := crashes.NewProcess(name, 0, at)
	victim, other := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _, _ = victim.Close(), other.Close() })
	victim.AddHook(p)
	return p, victim, other
}

func TestAProcessDiesBeforeOrAfterACommand(t *testing.T) {
	t.Parallel()
	for n, at := range []crashes.Point{{Command: "incr", Nth: 1}, {Command: "incr", Nth: 1, After: true}, {Command: "incr", Nth: 2}} {
		p, victim, other := living(t, at)
		for range 3 {
			_ = victim.Incr(t.Context(), "n").Err()
		}
		got, _ := other.Get(t.Context(), "n").Int() // absent: 0
		if want := min(n, 1); got != want || !p.Dead() || !p.Struck() {
			t.Errorf("%s: %d, want %d", at, got, want)
		}
		if err := victim.Ping(t.Context()).Err(); err == nil {
			t.Errorf("%s: it still talks", at)
		}
	}
}

func TestAPipelineIsCutAndATransactionIsNot(t *testing.T) {
	t.Parallel()
	for after, want := range map[bool]int{false: 1, true: 2} {
		_, victim, other := living(t, crashes.Point{Command: "incr", Nth: 2, After: after})
		_, err := victim.Pipelined(t.Context(), incr3(t))
		if got, _ := other.Get(t.Context(), "n").Int(); got != want || err == nil {
			t.Errorf("after %v: %d of a pipeline, want %d: %v", after, got, want, err)
		}
		_, victim, other = living(t, crashes.Point{Command: "multi incr", Nth: 1, After: after})
		_, err = victim.TxPipelined(t.Context(), incr3(t))
		if got, _ := other.Get(t.Context(), "n").Int(); got != 3*(want-1) || err == nil {
			t.Errorf("after %v: %d of a transaction: %v", after, got, err)
		}
	}
}

func incr3(t *testing.T) func(redis.Pipeliner) error {
	return func(p redis.Pipeliner) error {
		for range 3 {
			p.Incr(t.Context(), "n")
		}
		return nil
	}
}

// What a dead process waited for is not delivered to it.
func TestABlockedReadIsCutOff(t *testing.T) {
	t.Parallel()
	p, victim, other := living(t, crashes.Point{})
	if err := other.XGroupCreateMkStream(t.Context(), "jobs", "workers", "0").Err(); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		read <- victim.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: "workers", Consumer: "victim", Streams: []string{"jobs", ">"}, Block: time.Minute,
		}).Err()
	}()
	for p.Sent("xreadgroup") == 0 {
		time.Sleep(time.Millisecond)
	}
	p.Kill()
	if err := <-read; err == nil || errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	if p.Alive(func() {}) || p.Struck() || len(p.Points()) != 1 {
		t.Errorf("alive, or struck, or not at %v", p.Points())
	}
}
