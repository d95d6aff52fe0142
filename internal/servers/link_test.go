package servers

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestProxyStall(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		must(t, p.through.Ping(t.Context()).Err())
		hasty := p.client(t, redis.Options{ReadTimeout: 50 * time.Millisecond, MaxRetries: -1})
		must(t, hasty.Ping(t.Context()).Err())
		p.Stall(true)
		var timeout net.Error
		if err := hasty.RPush(t.Context(), "order", 1).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("while stalled: %v", err)
		}
		p.Stall(true) // nothing is forgotten
		sent := make(chan error)
		go func() { sent <- p.through.RPush(t.Context(), "order", 2).Err() }()
		if got := pushed(t, p.direct); got != "" {
			t.Errorf("the server ran %q", got)
		}
		p.Stall(false)
		p.Stall(false)
		must(t, <-sent)
		// The command of the client that gave up was only late.
		eventually(t, "both ran", func() bool { return p.direct.LLen(t.Context(), "order").Val() == 2 })
	})
}

// The end of a connection is held back like everything else.
func TestProxyStallsCuts(t *testing.T) {
	t.Parallel()
	p := newProxied(t, NewRedis(t).Addr(), 3)
	w := dial(t, p.Addr())
	done := p.Swallow(Command("BLPOP"))
	w.say("BLPOP order 0")
	eventually(t, "the client is blocked", p.blocked(t, 1))
	p.Stall(true)
	must(t, p.direct.RPush(t.Context(), "order", 1).Err())
	must(t, w.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	var timeout net.Error
	if _, err := readReply(w.in); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("while stalled: %v", err)
	}
	must(t, w.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	p.Stall(false)
	<-done
	w.ended()
}

// blocked reports whether n clients wait for something on a real server.
func (p *proxied) blocked(t *testing.T, n int) func() bool {
	return func() bool {
		return strings.Contains(p.direct.Info(t.Context(), "clients").Val(), fmt.Sprintf("blocked_clients:%d\r", n))
	}
}

func TestProxyCutsWhileStalled(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		must(t, p.through.Ping(t.Context()).Err())
		arrived := make(chan struct{})
		p.Hook(func([]string) Action { close(arrived); return Pass })
		p.Stall(true)
		sent := make(chan error)
		go func() { sent <- p.through.RPush(t.Context(), "order", 1).Err() }()
		<-arrived
		p.Cut()
		if err := <-sent; err == nil {
			t.Error("the command was answered")
		}
		if got := pushed(t, p.direct); got != "" {
			t.Errorf("the server ran %q", got)
		}
	})
}

func TestProxyRefuseAndCut(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		must(t, p.through.Ping(t.Context()).Err())
		p.Refuse(true)
		must(t, p.through.Ping(t.Context()).Err()) // a connection that there is stays
		popped := make(chan error)
		go func() { popped <- p.through.BLPop(t.Context(), 0, "order").Err() }()
		if p.real {
			eventually(t, "a client is blocked", p.blocked(t, 1))
		}
		p.Cut()
		if err := <-popped; err == nil {
			t.Error("the blocked command was answered")
		}
		if err := p.through.Ping(t.Context()).Err(); err == nil {
			t.Error("a new connection was made")
		}
		p.Refuse(false)
		eventually(t, "a new connection works", func() bool { return p.through.Ping(t.Context()).Err() == nil })
	})
}

// A latency, not a speed: a hundred replies are late once.
func TestProxyDelay(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		w := dial(t, p.Addr())
		const late = 100 * time.Millisecond
		p.Delay(late)
		start := time.Now()
		w.say(slices.Repeat([]string{"PING"}, 100)...)
		w.hear(100)
		if took := time.Since(start); took < late || took > 50*late {
			t.Errorf("took %v, want a little more than %v", took, late)
		}
		p.Delay(0)
	})
}

func TestProxyEndsWithItsServer(t *testing.T) {
	t.Parallel()
	r := NewRedis(t)
	p := newProxied(t, r.Addr(), 3)
	must(t, p.through.Ping(t.Context()).Err())
	must(t, r.Kill())
	for range 2 { // over the old connection, and over none
		if err := p.through.Ping(t.Context()).Err(); err == nil {
			t.Error("a server that is gone answered")
		}
	}
	must(t, r.Start())
	eventually(t, "a new connection works", func() bool { return p.through.Ping(t.Context()).Err() == nil })
}

func TestProxyEndsWithItsClient(t *testing.T) {
	t.Parallel()
	p := newProxied(t, NewRedis(t).Addr(), 3)
	w := dial(t, p.Addr())
	w.say("BLPOP order 0")
	eventually(t, "the client is blocked", p.blocked(t, 1))
	must(t, w.conn.Close())
	eventually(t, "the server knows that it is gone", p.blocked(t, 0))
}

// A client is gone and thousands of replies to it are on their way.
func TestProxyForgetsItsConnections(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		p.Delay(50 * time.Millisecond)
		w := dial(t, p.Addr())
		w.say(slices.Repeat([]string{"PING"}, 5000)...)
		must(t, w.conn.SetLinger(0))
		must(t, w.conn.Close())
		eventually(t, "nothing is left of the connection", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.open) == 0
		})
	})
}

// However much the client has still said: it hears the replies before the cut, and then an end, not a reset.
func TestProxyCutsInOrder(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		p.Hook(func(cmd []string) Action {
			if cmd[0] == "GET" {
				return CutBefore
			}
			return Pass
		})
		w := dial(t, p.Addr())
		w.say(append([]string{"ECHO 1", "GET order"}, slices.Repeat([]string{"ECHO " + strings.Repeat("x", 1<<20)}, 20)...)...)
		if got := w.hear(1); got[0].String() != "$1\r\n1\r\n" {
			t.Errorf("got %q", got)
		}
		w.ended()
	})
}

// A connection that only its client has ended gets its replies all the same.
func TestProxyCarriesOutWhatTheClientSaidLast(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		w := dial(t, p.Addr())
		w.say("PING", "RPUSH order 1")
		must(t, w.conn.CloseWrite())
		if got := w.hear(2); string(got[1].raw) != ":1\r\n" {
			t.Errorf("got %q", got)
		}
	})
}

// All controls at once, with clients at work: what was answered was done, nothing deadlocks, Close ends it all.
func TestProxyUnderFire(t *testing.T) {
	eachServer(t, func(t *testing.T, p *proxied) {
		p.Hook(func(cmd []string) Action {
			if len(cmd) > 2 && strings.HasSuffix(cmd[2], "7") {
				return SwallowReply
			}
			return Pass
		})
		var answered atomic.Int64
		var clients, controls sync.WaitGroup
		stop := make(chan struct{})
		for _, control := range []func(){
			func() { p.Stall(true); p.Stall(false) }, p.Cut, func() { p.Refuse(true); p.Refuse(false) },
			func() { p.Delay(time.Millisecond); p.Delay(0) }, func() { p.Swallow(pushing("5")) },
		} {
			controls.Go(func() { every(5*time.Millisecond, stop, control) })
		}
		for range 4 {
			rdb := p.client(t, redis.Options{MaxRetries: -1, ReadTimeout: 500 * time.Millisecond})
			clients.Go(func() {
				for i := range 100 {
					if rdb.RPush(t.Context(), "order", i).Err() == nil {
						answered.Add(1)
					}
				}
			})
		}
		clients.Wait()
		close(stop)
		controls.Wait()
		if n := p.direct.LLen(t.Context(), "order").Val(); n < answered.Load() || answered.Load() == 0 {
			t.Errorf("%d were answered, %d ran", answered.Load(), n)
		}
		p.Cut()
		must(t, p.Close())
	})
}

func every(d time.Duration, stop <-chan struct{}, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			f()
		}
	}
}
