package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisStopsAndStartsAgain(t *testing.T) {
	t.Parallel()
	keeps := RedisOptions{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}
	for _, c := range []struct {
		name    string
		options RedisOptions
		end     func(*Redis) error
		want    string
	}{
		{"stopped, with nothing on disk", RedisOptions{}, (*Redis).Stop, ""},
		{"stopped", keeps, (*Redis).Stop, "value"},
		{"killed", keeps, (*Redis).Kill, "value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := NewRedis(t, c.options)
			rdb := r.Client(t)
			must(t, rdb.Set(t.Context(), "key", "value", 0).Err())
			pid, addr := r.Pid(), r.Addr()
			must(t, c.end(r))
			if err := rdb.Ping(t.Context()).Err(); err == nil {
				t.Error("it still answers")
			}
			must(t, r.Start())
			if got := rdb.Get(t.Context(), "key").Val(); got != c.want {
				t.Errorf("after the start: %q, want %q", got, c.want)
			}
			if r.Pid() == pid || r.Addr() != addr {
				t.Errorf("process %d at %s, before %d at %s", r.Pid(), r.Addr(), pid, addr)
			}
		})
	}
}

func TestRedisStartWaitsForItsData(t *testing.T) {
	t.Parallel()
	r := NewRedis(t, RedisOptions{Args: []string{"--save", "3600 1", "--rdbcompression", "no"}})
	rdb := r.Client(t)
	pipe := rdb.Pipeline()
	for i := range 200 {
		pipe.Set(t.Context(), fmt.Sprint(i), strings.Repeat("x", 1000), 0)
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	must(t, r.Stop())
	r.args = append(r.args, "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024") // 2 ms a key
	must(t, r.Start())
	if n, err := r.Client(t).DBSize(t.Context()).Result(); n != 200 || err != nil {
		t.Errorf("%d keys (%v), want 200", n, err)
	}
}

func TestRedisPause(t *testing.T) {
	t.Parallel()
	r := NewRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), ReadTimeout: 50 * time.Millisecond, MaxRetries: -1})
	defer rdb.Close()
	must(t, rdb.Ping(t.Context()).Err())
	must(t, r.Pause())
	if err := rdb.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("paused: %v", err)
	}
	must(t, r.Resume())
	must(t, r.Client(t).Ping(t.Context()).Err())
	must(t, r.Pause())
	must(t, r.Stop()) // a suspended server ends too
}

func TestRedisRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	r := NewRedis(t)
	if err := r.Start(); !errors.Is(err, errRunning) {
		t.Errorf("Start of a running server: %v", err)
	}
	must(t, r.Kill())
	for name, f := range map[string]func() error{"Stop": r.Stop, "Kill": r.Kill, "Pause": r.Pause, "Resume": r.Resume} {
		if err := f(); !errors.Is(err, errStopped) {
			t.Errorf("%s of a stopped server: %v", name, err)
		}
	}
	must(t, r.Close())
	must(t, r.Close())
	if exists(r.dir) {
		t.Errorf("%s is left behind", r.dir)
	}
}

func TestRedisOnATakenPort(t *testing.T) {
	t.Parallel()
	first := NewRedis(t)
	if second, err := StartRedis(RedisOptions{Port: first.port}); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, %v", second, err)
	}
	asked := 0
	r, err := startRedis(RedisOptions{}, func() (int, error) {
		if asked++; asked == 1 {
			return first.port, nil
		}
		return freePort()
	})
	must(t, err)
	defer r.Close()
	if asked != 2 || r.port == first.port {
		t.Errorf("asked %d times, port %d", asked, r.port)
	}
	if redisAnswers(first.Addr(), r.Pid()) {
		t.Error("one server was taken for the other")
	}
}

func TestRedisFailsToStart(t *testing.T) {
	t.Parallel()
	NewRedis(t)
	_, err := StartRedis(RedisOptions{Args: []string{"--no-such-setting", "yes"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("got %v, want the server's own reason", err)
	}
}

func TestRedisWithAPassword(t *testing.T) {
	t.Parallel()
	r := NewRedis(t, RedisOptions{Args: []string{"--requirepass", "secret"}})
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), Password: "secret"})
	defer rdb.Close()
	must(t, rdb.Ping(t.Context()).Err())
}

func TestRedisURL(t *testing.T) {
	t.Parallel()
	r := SharedRedis(t)
	o, err := redis.ParseURL(r.URL())
	must(t, err)
	if o.Addr != r.Addr() {
		t.Errorf("%s is %s", r.URL(), o.Addr)
	}
	if again := SharedRedis(t); again != r {
		t.Error("the second call started another server")
	}
}

func TestEach(t *testing.T) {
	names := make(chan string, 2)
	t.Run("servers", func(t *testing.T) {
		Each(t, func(t *testing.T, rdb *redis.Client) {
			names <- t.Name()[strings.LastIndex(t.Name(), "/")+1:]
			if n := rdb.Incr(t.Context(), "n").Val(); n != 1 {
				t.Errorf("not a fresh server: %d", n)
			}
		})
	})
	close(names)
	ran := map[string]bool{}
	for n := range names {
		ran[n] = true
	}
	if !ran["miniredis"] || !ran["redis"] {
		t.Errorf("ran on %v", ran)
	}
}

func TestMiniredisExpiresKeys(t *testing.T) {
	t.Parallel()
	m := NewMiniredis(t)
	rdb := newClient(t, m.Addr())
	now := time.Now()
	m.SetTime(now)
	must(t, rdb.Set(t.Context(), "key", "value", time.Second).Err())
	m.SetTime(now.Add(2 * time.Second))
	if err := rdb.Get(context.Background(), "key").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("after its time to live: %v", err)
	}
}

func BenchmarkStartRedis(b *testing.B) {
	for b.Loop() {
		r, err := StartRedis(RedisOptions{})
		if err != nil {
			fail(b, err)
		}
		must(b, r.Close())
	}
}

func tid() string {
	self, err := os.Readlink("/proc/thread-self")
	if err != nil {
		return "none"
	}
	return self[strings.LastIndex(self, "/")+1:]
}
