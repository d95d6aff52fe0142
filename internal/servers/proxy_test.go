package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// proxied is a server, a client of it, and a client on one connection through a proxy, which repeats nothing.
type proxied struct {
	*Proxy
	direct, through *redis.Client
	real            bool
}

func newProxied(t *testing.T, addr string, protocol int) *proxied {
	t.Helper()
	p := &proxied{Proxy: NewProxy(t, addr), direct: newClient(t, addr)}
	p.through = p.client(t, redis.Options{Protocol: protocol, MaxRetries: -1})
	return p
}

// client returns a client through the proxy, without attempts of its own to make a connection.
func (p *proxied) client(t *testing.T, o redis.Options) *redis.Client {
	o.Addr, o.PoolSize, o.DialerRetries = p.Addr(), 1, 1
	rdb := redis.NewClient(&o)
	t.Cleanup(func() { _ = rdb.Close() }) // a test may have closed it
	return rdb
}

// eachServer runs f on miniredis and on Redis, with both protocols.
func eachServer(t *testing.T, f func(t *testing.T, p *proxied)) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("miniredis RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			f(t, newProxied(t, NewMiniredis(t).Addr(), protocol))
		})
		t.Run(fmt.Sprintf("redis RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, NewRedis(t, RedisOptions{Args: []string{"--enable-debug-command", "yes"}}).Addr(), protocol)
			p.real = true
			f(t, p)
		})
	}
}

// cut fails the test unless the connection ended without a reply.
func cut(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the connection's end", err)
	}
}

func pushed(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	all, err := rdb.LRange(t.Context(), "order", 0, -1).Result()
	must(t, err)
	return strings.Join(all, " ")
}

// pushing matches the push of one value.
func pushing(value string) func([]string) bool {
	return func(cmd []string) bool { return Command("RPUSH")(cmd) && cmd[2] == value }
}

// four is a pipeline of four pushes.
var four = []string{"RPUSH order 1", "RPUSH order 2", "RPUSH order 3", "RPUSH order 4"}

func TestProxyActionsInAPipeline(t *testing.T) {
	for _, c := range []struct {
		name   string
		action Action   // of the third
		ran    string   // on the server
		heard  []string // before the connection's end
	}{
		{"pass", Pass, "1 2 3 4", []string{":1\r\n", ":2\r\n", ":3\r\n", ":4\r\n"}},
		{"cut before", CutBefore, "1 2", []string{":1\r\n", ":2\r\n"}},
		{"swallow the reply", SwallowReply, "1 2 3", []string{":1\r\n", ":2\r\n"}},
		{"cut after", CutAfter, "1 2 3", []string{":1\r\n", ":2\r\n", ":3\r\n"}},
		{"error", ReplyError("OOM x"), "1 2 4", []string{":1\r\n", ":2\r\n", "-OOM x\r\n", ":3\r\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, p *proxied) {
				p.Hook(func(cmd []string) Action {
					if pushing("3")(cmd) {
						return c.action
					}
					return Pass
				})
				w := dial(t, p.Addr())
				w.say(four...)
				if heard := w.hear(len(c.heard)); fmt.Sprintf("%q", heard) != fmt.Sprintf("%q", c.heard) {
					t.Errorf("heard %q, want %q", heard, c.heard)
				}
				if len(c.heard) == 4 {
					must(t, w.conn.CloseWrite())
				}
				w.ended()
				if got := pushed(t, p.direct); got != c.ran {
					t.Errorf("the server ran %s, want %s", got, c.ran)
				}
			})
		})
	}
}

// What a go-redis client makes of each action, and that it goes on over a new connection.
func TestProxyActionsOnAClient(t *testing.T) {
	for _, c := range []struct {
		name   string
		action Action
		ran    string
		err    string
	}{
		{"cut before", CutBefore, "2", "EOF"},
		{"swallow the reply", SwallowReply, "1 2", "EOF"},
		{"cut after", CutAfter, "1 2", ""},
		{"error", ReplyError("OOM command not allowed"), "2", "OOM command not allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, p *proxied) {
				p.Hook(func(cmd []string) Action {
					if pushing("1")(cmd) {
						return c.action
					}
					return Pass
				})
				err := p.through.RPush(t.Context(), "order", 1).Err()
				if c.err == "" {
					must(t, err)
				} else if err == nil || err.Error() != c.err {
					t.Errorf("got %v, want %s", err, c.err)
				}
				eventually(t, "a new connection works", func() bool {
					return p.through.RPush(t.Context(), "order", 2).Err() == nil
				})
				if got := pushed(t, p.direct); got != c.ran {
					t.Errorf("the server ran %s, want %s", got, c.ran)
				}
			})
		})
	}
}

func TestProxyThenIsCalledAtThePoint(t *testing.T) {
	for _, c := range []struct {
		name   string
		action Action
		ran    int64 // when f is called
	}{
		{"cut before", CutBefore, 1},
		{"swallow the reply", SwallowReply, 2},
		{"cut after", CutAfter, 2},
		{"error", ReplyError("ERR no"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, p *proxied) {
				var ran, answered atomic.Int64
				p.Hook(func(cmd []string) Action {
					if !pushing("2")(cmd) {
						return Pass
					}
					return c.action.Then(func() {
						ran.Store(p.direct.LLen(context.Background(), "order").Val())
						if answered.Load() > 0 {
							t.Error("the client knows already")
						}
					})
				})
				must(t, p.through.RPush(t.Context(), "order", 1).Err())
				_ = p.through.RPush(t.Context(), "order", 2).Err() // what it is, is another test's
				answered.Add(1)
				if ran.Load() != c.ran {
					t.Errorf("%d had run, want %d", ran.Load(), c.ran)
				}
			})
		})
	}
}

func TestProxySwallow(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		done := p.Swallow(Command("rpush"))
		cut(t, p.through.RPush(t.Context(), "order", 1).Err())
		<-done
		if got := pushed(t, p.direct); got != "1" {
			t.Errorf("the server ran %q", got)
		}
		must(t, p.through.RPush(t.Context(), "order", 2).Err()) // only the next one is swallowed
	})
}

// Two are asked for, for commands that come the other way round.
func TestProxySwallowsEachOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		one, two := p.Swallow(pushing("1")), p.Swallow(pushing("2"))
		for _, c := range []struct {
			value string
			done  <-chan struct{}
		}{{"2", two}, {"1", one}} {
			cut(t, p.through.RPush(t.Context(), "order", c.value).Err())
			<-c.done
			must(t, p.through.RPush(t.Context(), "order", c.value).Err())
		}
		if got := pushed(t, p.direct); got != "2 2 1 1" {
			t.Errorf("the server ran %q", got)
		}
	})
}

// A client of default settings repeats what it got no reply to.
func TestProxySwallowMakesADefaultClientRepeat(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		rdb := p.client(t, redis.Options{})
		done := p.Swallow(Command("XADD"))
		must(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs", Values: []string{"kind", "ok"}}).Err())
		<-done
		if n := p.direct.XLen(t.Context(), "jobs").Val(); n != 2 {
			t.Errorf("%d entries, want 2", n)
		}
	})
}

func TestProxySwallowsTheReplyOfATransaction(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		add := func() error {
			_, err := p.through.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
				pipe.RPush(t.Context(), "order", 1)
				pipe.RPush(t.Context(), "order", 2)
				return nil
			})
			return err
		}
		done := p.Swallow(Command("EXEC"))
		cut(t, add())
		<-done
		if got := pushed(t, p.direct); got != "1 2" {
			t.Errorf("the server ran %q, want both", got)
		}
		done = p.Swallow(pushing("2"))
		cut(t, add())
		<-done
		if got := pushed(t, p.direct); got != "1 2" {
			t.Errorf("the server ran %q, and EXEC was never sent", got)
		}
	})
}

// The reply is long, or comes late: the command has run all the same when the connection ends.
func TestProxySwallowsLongAndLateReplies(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		must(t, p.direct.Set(t.Context(), "large", strings.Repeat("x", 4<<20), 0).Err())
		done := p.Swallow(Command("GET"))
		cut(t, p.through.Get(t.Context(), "large").Err())
		<-done
		asked := make(chan struct{})
		done = p.Swallow(func(cmd []string) bool {
			if !Command("BLPOP")(cmd) {
				return false
			}
			close(asked)
			return true
		})
		popped := make(chan error)
		go func() { popped <- p.through.BLPop(t.Context(), 0, "order").Err() }()
		<-asked
		must(t, p.direct.RPush(t.Context(), "order", 1).Err())
		cut(t, <-popped)
		<-done
		if n := p.direct.LLen(t.Context(), "order").Val(); n != 0 {
			t.Errorf("%d left in the list", n)
		}
	})
}

// The client gives up before the server answers: the command still runs and its reply is still awaited.
func TestProxySwallowOutlivesTheClient(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		w := dial(t, p.Addr())
		done := p.Swallow(Command("RPUSH"))
		p.Delay(20 * time.Millisecond)
		w.say("RPUSH order 1")
		must(t, w.conn.Close())
		<-done
		if got := pushed(t, p.direct); got != "1" {
			t.Errorf("the server ran %q", got)
		}
	})
}

func TestProxyHookBlocksItsConnectionOnly(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		asked, release := make(chan struct{}), make(chan struct{})
		p.Hook(func(cmd []string) Action {
			if pushing("1")(cmd) {
				close(asked)
				<-release
			}
			return Pass
		})
		sent := make(chan error)
		go func() { sent <- p.through.RPush(t.Context(), "order", 1).Err() }()
		<-asked
		must(t, p.client(t, redis.Options{}).RPush(t.Context(), "order", 2).Err())
		if got := pushed(t, p.direct); got != "2" {
			t.Errorf("the server ran %q while the hook held 1", got)
		}
		close(release)
		must(t, <-sent)
	})
}
