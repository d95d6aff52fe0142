package pipe_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/pipe"
)

// A pipeline that is longer than any buffer of the client's or the server's.
func TestLongPipeline(t *testing.T) {
	t.Parallel()
	m := miniredis.NewMiniRedis()
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, WriteTimeout: time.Second,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := m.Dial()
			return pipe.Buffered(c), err
		},
	})
	defer rdb.Close()
	p := rdb.Pipeline()
	long := strings.Repeat("x", 5000)
	for range 200 {
		p.Echo(t.Context(), long)
	}
	replies, err := p.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replies {
		if r.(*redis.StringCmd).Val() != long {
			t.Fatal(r)
		}
	}
}

func TestOrderAndDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := pipe.Buffered(near)
		for _, word := range []string{"a", "b", "c"} {
			if n, err := c.Write([]byte(word)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a write that has not waited cannot be late
		time.Sleep(time.Minute)
		got := make([]byte, 3)
		if _, err := io.ReadFull(far, got); err != nil || string(got) != "abc" {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		var timeout net.Error
		if _, err := c.Read(got); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("a read after its deadline: %v", err)
		}
		_ = c.Close()
		_ = far.Close()
	})
}

// Neither end leaves a goroutine behind, nor lets the other wait.
func TestClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(near, far net.Conn) error{
		"this end":  func(near, far net.Conn) error { return near.Close() },
		"other end": func(near, far net.Conn) error { return far.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c := pipe.Buffered(near)
			_, _ = c.Write([]byte("never read"))
			if err := end(c, far); err != nil {
				t.Error(name, err)
			}
			synctest.Wait()
			if _, err := c.Write([]byte("x")); err == nil {
				t.Errorf("%s is closed, and may be written to", name)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s is closed, and may be read from", name)
			}
		})
	}
}
