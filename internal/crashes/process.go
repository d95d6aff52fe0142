// Package crashes lets a process die at a chosen command: before it is sent to Redis, or after Redis has run it and before
// its reply is read. From then on nothing of that process reaches Redis. And it judges afterwards, from what handlers
// recorded and what Redis holds, whether anything was lost, or done twice without a reason.
package crashes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Point is a place in the life of a process at which it can die.
type Point struct {
	Command string // as Names calls it
	Nth     int    // of the commands of that name, from 1
	After   bool   // Redis has run it, and the reply is not read; else it is not sent
}

// Name says it without the number.
func (p Point) Name() string {
	if p.After {
		return "after " + p.Command
	}
	return "before " + p.Command
}

func (p Point) String() string { return fmt.Sprintf("%s #%d", p.Name(), p.Nth) }

// What the commands of a dying process come to. The first says that nothing was sent, the second leaves that open.
var (
	errUnsent = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the process is dead")}
	errLost   = fmt.Errorf("the process is dead: %w", io.ErrUnexpectedEOF)
)

// A Process is a process as Redis sees it: one client with this as its hook. It is safe for concurrent use.
type Process struct {
	name func(words []string) string
	skip int

	mu     sync.Mutex
	landed *sync.Cond // nothing is in the air
	at     Point      // zero: none
	sent   int        // commands so far
	seen   map[string]int
	points []Point // that were passed
	heard  map[string]int
	air    int // commands without a reply, blocked reads apart
	conns  []net.Conn
	dead   bool
	struck bool
	over   chan struct{}
}

// NewProcess returns a process that dies at a point, or with the zero Point only when it is killed. Its first commands,
// skip of them, are no points. name says what a command is called.
func NewProcess(name func(words []string) string, skip int, at Point) *Process {
	p := &Process{name: name, skip: skip, at: at, seen: map[string]int{}, heard: map[string]int{}, over: make(chan struct{})}
	p.landed = sync.NewCond(&p.mu)
	return p
}

// Over is closed when the process is dead.
func (p *Process) Over() <-chan struct{} { return p.over }

// Dead says whether it is.
func (p *Process) Dead() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// Struck says whether the process died at its point.
func (p *Process) Struck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck
}

// Alive calls f unless the process is dead, and says which. The process does not die meanwhile.
func (p *Process) Alive(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return false
	}
	f()
	return true
}

// Points returns the commands that were sent since the first ones, in their order, each with its number.
func (p *Process) Points() []Point {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.points)
}

// Sent says how often a command of that name was sent, or was about to be.
func (p *Process) Sent(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[name]
}

// Answered says how often a command of that name was answered by Redis.
func (p *Process) Answered(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[name]
}

// Kill ends the process here. What it has sent is carried out, and when Kill returns, it has been; a blocked read is
// cut off with its connection, as that of a dead process is.
func (p *Process) Kill() { p.die(false) }

func (p *Process) die(struck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	p.dead, p.struck = true, struck
	for p.air > 0 {
		p.landed.Wait()
	}
	for _, c := range p.conns {
		_ = c.Close() // the client may have closed it
	}
	close(p.over)
}

// DialHook keeps connections, to close them when the process dies.
func (p *Process) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if !p.Alive(func() { p.conns = append(p.conns, c) }) {
			_ = c.Close() // nothing can be sent over it: to refuse it would be logged by the client
		}
		return c, nil
	}
}

// ProcessHook sends a command as far as the process comes.
func (p *Process) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return p.send([]redis.Cmder{cmd}, func(cmds []redis.Cmder) error { return next(ctx, cmds[0]) })
	}
}

// ProcessPipelineHook sends a pipeline as far as the process comes. A transaction is sent whole or not at all: half of
// one does nothing.
func (p *Process) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return p.send(cmds, func(cmds []redis.Cmder) error { return next(ctx, cmds) })
	}
}

// send sends the commands in front of the point.
func (p *Process) send(cmds []redis.Cmder, next func([]redis.Cmder) error) error {
	if greeting(cmds[0].Name()) {
		if p.Dead() {
			return fail(cmds, errUnsent)
		}
		return next(cmds)
	}
	n, last, grounded := p.depart(cmds)
	var err error
	if n > 0 {
		err = next(cmds[:n])
	}
	if n > 0 {
		p.land(cmds[:n], grounded)
	}
	if last {
		p.die(true)
	}
	switch {
	case n == 0:
		return fail(cmds, errUnsent)
	case p.isDead():
		return fail(cmds, errLost)
	}
	return err
}

// isDead is Dead from the moment on at which it begins to die.
func (p *Process) isDead() bool { return !p.Alive(func() {}) }

// depart counts commands. It returns how many of them are to be sent, whether the process then dies, and whether it may
// die without waiting for them.
func (p *Process) depart(cmds []redis.Cmder) (n int, last, grounded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return 0, false, true
	}
	for _, name := range p.names(cmds) {
		point := p.count(name)
		if p.at.Nth > 0 && point.Command == p.at.Command && point.Nth == p.at.Nth {
			if p.at.After {
				n++
			}
			last = true
			break
		}
		n++
	}
	if transaction(cmds) {
		n *= len(cmds)
	}
	if grounded = n == 0 || Blocks(words(cmds[n-1])); !grounded {
		p.air++
	}
	return n, last, grounded
}

// names are what the commands are called, of a transaction the one name of all.
func (p *Process) names(cmds []redis.Cmder) []string {
	if transaction(cmds) {
		return []string{"multi " + p.name(words(cmds[1]))}
	}
	names := make([]string, len(cmds))
	for i, cmd := range cmds {
		names[i] = p.name(words(cmd))
	}
	return names
}

func (p *Process) count(name string) Point {
	if p.sent++; p.sent <= p.skip {
		return Point{}
	}
	p.seen[name]++
	point := Point{Command: name, Nth: p.seen[name]}
	p.points = append(p.points, point)
	return point
}

func (p *Process) land(cmds []redis.Cmder, grounded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cmd := range cmds {
		if _, ok := errors.AsType[redis.Error](cmd.Err()); ok || cmd.Err() == nil {
			p.heard[p.name(words(cmd))]++
		}
	}
	if grounded {
		return
	}
	if p.air--; p.air == 0 {
		p.landed.Broadcast()
	}
}

func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

func transaction(cmds []redis.Cmder) bool { return len(cmds) > 2 && cmds[0].Name() == "multi" }

// words are a command as it is sent, but for its numbers.
func words(cmd redis.Cmder) []string {
	all := make([]string, 0, len(cmd.Args()))
	for _, arg := range cmd.Args() {
		s, ok := arg.(string)
		if !ok {
			s = "#"
		}
		all = append(all, s)
	}
	return all
}

// greeting says that a client sends such a command of itself when it makes a connection.
func greeting(name string) bool {
	return slices.Contains([]string{"hello", "auth", "select", "client", "ping"}, name)
}

// Blocks says whether a command waits for what is not there yet.
func Blocks(words []string) bool {
	return strings.EqualFold(words[0], "xreadgroup") &&
		slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, "block") })
}
