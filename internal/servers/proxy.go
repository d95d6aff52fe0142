package servers

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is the network between a client and a server, with the faults that a test asks for. It understands Redis's
// protocol, RESP2 and RESP3, so that it can lose exactly one chosen command or reply, also in the middle of a pipeline.
// What does not begin as RESP (TLS, PostgreSQL) is passed on as bytes and no hook sees it. Its methods may be called
// concurrently, also by a hook.
//
// A connection on which replies cannot be told from what comes unasked (after SUBSCRIBE, MONITOR, CLIENT REPLY and their
// like) is still passed on, but no longer shown to a hook. Replication does not work through a proxy.
type Proxy struct {
	listener net.Listener
	target   string
	links    sync.WaitGroup

	mu      sync.Mutex
	open    map[*link]bool
	closed  bool
	refuse  bool
	delay   time.Duration
	stalled chan struct{} // nil: bytes flow; else closed when they may flow again
	hook    func(cmd []string) Action
	err     error // the first frame that was no RESP

	swallowing sync.Mutex // apart from mu: match is the caller's code
	swallows   []swallow
}

// Action is what becomes of a command. The replies to the commands before it always reach the client first.
type Action struct {
	verb  verb
	reply string
	then  func()
	done  chan struct{}
}

type verb int

const (
	pass verb = iota
	cutBefore
	swallowReply
	cutAfter
	replyError
)

var (
	// Pass sends the command and delivers its reply.
	Pass = Action{verb: pass}
	// CutBefore closes the connection instead of sending the command, or any after it.
	CutBefore = Action{verb: cutBefore}
	// SwallowReply sends the command, waits for its whole reply, and closes the connection instead of delivering it. No
	// later command is sent.
	SwallowReply = Action{verb: swallowReply}
	// CutAfter sends the command, delivers its whole reply, and closes the connection. No later command is sent.
	CutAfter = Action{verb: cutAfter}
)

// ReplyError does not send the command and answers it with an error, such as "OOM command not allowed". The server does
// not know of it: of a command within MULTI, say, the transaction goes on without it.
func ReplyError(text string) Action { return Action{verb: replyError, reply: "-" + text + "\r\n"} }

// Then returns the action with f called at its point: before anything of it shows to the client, and for SwallowReply
// and CutAfter when the server has run the command and answered whole. A process that f kills dies exactly there.
func (a Action) Then(f func()) Action {
	a.then = f
	return a
}

// Command returns a matcher for Swallow: commands of that name, in any case of letters.
func Command(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return strings.EqualFold(cmd[0], name) }
}

// StartProxy starts a proxy for the server at target, host and port. Close ends it.
func StartProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("servers: proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, open: map[*link]bool{}}
	p.links.Go(p.accept)
	return p, nil
}

// NewProxy is StartProxy for one test and its subtests. Bytes that began as RESP and were none fail the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Addr returns host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hook has f decide what becomes of each command, name and arguments; nil: all pass. It is called in the order of each
// connection's commands, and concurrently for several connections. Until it returns, its connection stands still, and so
// does Close.
func (p *Proxy) Hook(f func(cmd []string) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = f
}

type swallow struct {
	match func(cmd []string) bool
	done  chan struct{}
}

// Swallow loses the reply to the next command that matches, as SwallowReply does, and asks no Hook about it. The channel
// is closed when the server has run the command and the client's connection is closed; it stays open if the connection
// ends before that. match is never called concurrently.
func (p *Proxy) Swallow(match func(cmd []string) bool) <-chan struct{} {
	p.swallowing.Lock()
	defer p.swallowing.Unlock()
	done := make(chan struct{})
	p.swallows = append(p.swallows, swallow{match, done})
	return done
}

// Cut closes all connections. Commands on their way may or may not run.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.close()
	}
}

// Refuse has new connections reset as soon as they are made, until Refuse(false). After Refuse(true) and then Cut there
// is no connection left.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Stall holds back what reaches the proxy from now on, both ways, and closes nothing. Stall(false) lets it all go on,
// also the commands of clients that have given up meanwhile, as a network would.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !on && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// Delay delivers what the server sends from now on by d later. It is a latency and not a speed: a pipeline's replies are
// all late by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Close closes all connections and ends the proxy. Its error says what was no RESP.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // fails only the second time
	p.Cut()
	p.links.Wait()
	return p.err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.links.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	if p.refuses() {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	if !p.admit(l) {
		reset(client)
		_ = server.Close() // nothing was sent
		return
	}
	l.run()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
}

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuse || p.closed
}

// admit is asked again after dialing, so that a connection is either refused or there to be cut.
func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.open[l] = true
	return true
}

// decide finds what becomes of a command.
func (p *Proxy) decide(cmd []string) Action {
	if done := p.swallowed(cmd); done != nil {
		return Action{verb: swallowReply, done: done}
	}
	p.mu.Lock()
	hook := p.hook
	p.mu.Unlock()
	if hook == nil {
		return Pass
	}
	return hook(cmd)
}

func (p *Proxy) swallowed(cmd []string) chan struct{} {
	p.swallowing.Lock()
	defer p.swallowing.Unlock()
	for i, s := range p.swallows {
		if s.match(cmd) {
			p.swallows = append(p.swallows[:i:i], p.swallows[i+1:]...)
			return s.done
		}
	}
	return nil
}

// pause waits while the proxy is stalled, and reports false if ended comes first.
func (p *Proxy) pause(ended <-chan struct{}) bool {
	for {
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled == nil {
			return true
		}
		select {
		case <-stalled:
		case <-ended:
			return false
		}
	}
}

// due is when something that arrives now is to be delivered.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

// note keeps the first error that says that a peer spoke no RESP, and reports whether this is one: that a connection
// ended is none.
func (p *Proxy) note(err error) bool {
	if !errors.Is(err, errMalformed) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = fmt.Errorf("servers: proxy for %s: %w", p.target, err)
	}
	return true
}

// reset closes a connection so that its peer gets an error and not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // both fail only on a connection that is gone already
	_ = c.Close()
}
