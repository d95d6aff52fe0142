package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestProxyCountsEveryReply(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		commands := [][]any{
			{"SET", "a", strings.Repeat("\r\n$5\r\n", 1000)}, {"GET", "a"}, {"GET", "none"}, {"LRANGE", "none", 0, -1},
			{"HSET", "hash", "a", "1", "b", "2"}, {"HGETALL", "hash"}, {"SADD", "set", "a", "b"}, {"SMEMBERS", "set"},
			{"ZADD", "sorted", 1.5, "a"}, {"ZSCORE", "sorted", "a"}, {"ZRANGE", "sorted", 0, -1, "WITHSCORES"},
			{"XADD", "jobs", "*", "kind", "ok"}, {"XRANGE", "jobs", "-", "+"}, {"XREAD", "STREAMS", "jobs", "0"},
			{"XREAD", "STREAMS", "jobs", "$"}, {"XINFO", "STREAM", "jobs"}, {"NONSENSE"}, {"LPUSH", "a", "wrong type"},
			{"EVAL", "return {1, {'a', {}}, false}", 0}, {"TIME"}, {"CONFIG", "GET", "*"}, {"COMMAND"}, {"INFO"}, {"HELLO"},
		}
		if p.real {
			for _, of := range []string{"string", "integer", "double", "null", "array", "set", "map", "verbatim", "bignum", "attrib", "true"} {
				commands = append(commands, []any{"DEBUG", "PROTOCOL", of})
			}
		}
		for _, words := range commands {
			swallowsExactly(t, p, words)
		}
	})
}

// swallowsExactly loses the second of three echoes of a pipeline, with a command's reply before it: only a proxy that
// knows where that ends lets the first echo through and not the second.
func swallowsExactly(t *testing.T, p *proxied, words []any) {
	t.Helper()
	want := p.through.Do(t.Context(), words...)
	done := p.Swallow(func(cmd []string) bool { return cmd[0] == "echo" && cmd[1] == "2" })
	pipe := p.through.Pipeline()
	got := pipe.Do(t.Context(), words...)
	first, second := pipe.Echo(t.Context(), "1"), pipe.Echo(t.Context(), "2")
	third := pipe.Echo(t.Context(), "3")
	_, err := pipe.Exec(t.Context())
	<-done
	if err == nil || first.Val() != "1" || second.Err() == nil || third.Err() == nil {
		t.Errorf("%v: %v, %v, %v", words, first, second, third)
	}
	if fmt.Sprintf("%T", got.Val()) != fmt.Sprintf("%T", want.Val()) {
		t.Errorf("%v: in the pipeline %v, alone %v", words, got, want)
	}
}

// Pushes come unasked, between replies.
func TestProxyPassesPushes(t *testing.T) {
	t.Parallel()
	p := newProxied(t, NewRedis(t).Addr(), 3)
	w := dial(t, p.Addr())
	w.say("HELLO 3", "CLIENT TRACKING ON BCAST")
	w.hear(2)
	must(t, p.direct.Set(t.Context(), "a", 1, 0).Err())
	if push := w.hear(1); push[0].raw[0] != '>' {
		t.Fatalf("got %q", push[0].raw)
	}
	must(t, p.direct.Set(t.Context(), "b", 1, 0).Err())
	done := p.Swallow(Command("BLPOP"))
	w.say("ECHO 1", "BLPOP order 0")
	if replies := w.hear(2); !replies[0].push || string(replies[1].raw) != "$1\r\n1\r\n" {
		t.Errorf("got %q", replies)
	}
	must(t, p.direct.Set(t.Context(), "c", 1, 0).Err())
	if push := w.hear(1); !push[0].push {
		t.Errorf("got %q", push)
	}
	eventually(t, "BLPOP waits", p.blocked(t, 1)) // else the push for its key is no later than its reply
	must(t, p.direct.RPush(t.Context(), "order", 1).Err())
	<-done
	w.ended()
}

func TestProxyPassesSubscriptions(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		sub := p.through.Subscribe(t.Context(), "a", "b")
		defer sub.Close()
		for range 2 {
			_, err := sub.Receive(t.Context())
			must(t, err)
		}
		for i := range 3 {
			must(t, p.direct.Publish(t.Context(), "b", i).Err())
			if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != fmt.Sprint(i) {
				t.Errorf("got %v, %v", m, err)
			}
		}
		must(t, sub.Unsubscribe(t.Context(), "a"))
		if s, err := sub.Receive(t.Context()); err != nil || s.(*redis.Subscription).Kind != "unsubscribe" {
			t.Errorf("got %v, %v", s, err)
		}
	})
}

func TestProxyDoesNotCountWhatCannotBeCounted(t *testing.T) {
	t.Parallel()
	p := newProxied(t, NewRedis(t).Addr(), 2)
	var asked atomic.Int64
	p.Hook(func([]string) Action { asked.Add(1); return Pass })
	w := dial(t, p.Addr())
	w.raw("PING\r\n\r\n*0\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO 1\r\nMONITOR\r\n")
	replies := w.hear(3)
	if string(replies[1].raw) != "$1\r\n1\r\n" || asked.Load() != 1 {
		t.Errorf("got %q, the hook was asked %d times", replies, asked.Load())
	}
	must(t, p.direct.Set(t.Context(), "a", 1, 0).Err())
	eventually(t, "MONITOR shows the command", func() bool { return strings.Contains(string(w.hear(1)[0].raw), `"set" "a"`) })
}

func TestProxyPassesOtherProtocols(t *testing.T) {
	t.Parallel()
	NewPostgres(t)
	server, err := sharedPostgres()
	must(t, err)
	p := NewProxy(t, server.Addr())
	p.Hook(func(cmd []string) Action { t.Errorf("the hook was shown %q", cmd); return Pass })
	port := p.listener.Addr().(*net.TCPAddr).Port
	out, err := server.psql(port, "postgres", "SELECT repeat('x', 1000000)")
	if len(strings.TrimSpace(out)) == 0 || err != nil {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	p.Refuse(true)
	if _, err := server.psql(port, "postgres", "SELECT 1"); err == nil {
		t.Error("a refused connection was served")
	}
}

func TestProxyReportsWhatIsNoRESP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, target, say string }{
		{"from the client", NewMiniredis(t).Addr(), "*1\r\n:1\r\n"},
		{"from the server", babbler(t), "PING\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := StartProxy(c.target)
			must(t, err)
			w := dial(t, p.Addr())
			w.raw(c.say)
			w.ended()
			for range 2 {
				if err := p.Close(); !errors.Is(err, errMalformed) {
					t.Errorf("Close: %v", err)
				}
			}
		})
	}
}

// babbler is a server that answers every connection with what is no RESP.
func babbler(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() }) // it ends the loop
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 400\r\n") // the client may be gone
		}
	}()
	return l.Addr().String()
}
