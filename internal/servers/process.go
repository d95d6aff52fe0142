package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// process is a program that this process started. It is in running until it has ended and everything that it started in
// turn has closed its output.
type process struct {
	cmd    *exec.Cmd
	output tail
	ended  chan struct{}
	err    error // of Wait; to be read once ended is closed
}

// start starts cmd so that it ends with this process where the system can do that.
func start(cmd *exec.Cmd, onDeath os.Signal) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Env = environment(os.Environ())
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.WaitDelay = 10 * time.Second // for children that outlive the program and hold its output
	tie(cmd, onDeath)
	if err := onStarter(cmd.Start); err != nil {
		return nil, fmt.Errorf("servers: start %s: %w", filepath.Base(cmd.Path), err)
	}
	running.add(p)
	go func() {
		p.err = cmd.Wait()
		running.remove(p)
		close(p.ended)
	}()
	return p, nil
}

// run runs cmd to its end and returns what it printed.
func run(cmd *exec.Cmd) (string, error) {
	p, err := start(cmd, os.Kill)
	if err != nil {
		return "", err
	}
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.kill()
		return "", fmt.Errorf("servers: %s still ran after a minute:\n%s", p.name(), p.output.String())
	}
	if p.err != nil {
		return "", fmt.Errorf("servers: %s: %w:\n%s", p.name(), p.err, p.output.String())
	}
	return p.output.String(), nil
}

func (p *process) name() string { return filepath.Base(p.cmd.Path) }
func (p *process) pid() int     { return p.cmd.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("servers: signal %s: %w", p.name(), err)
	}
	return nil
}

// kill ends the process at once and returns when it and its children are gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the one possible error is that it has ended already
	<-p.ended
}

// stop asks the process to end, and kills it if it does not; that is an error.
func (p *process) stop(s os.Signal) error {
	_ = p.signal(contSignal) // a suspended process would not notice; an error means that it has ended
	if p.signal(s) != nil {
		p.kill()
	}
	const patience = 20 * time.Second
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("servers: %s had not ended %v after %v and was killed:\n%s", p.name(), patience, s, p.output.String())
	}
}

// await polls ready until it holds, and fails when the process ends before or takes too long.
func (p *process) await(ready func() bool) error {
	deadline := time.Now().Add(time.Minute)
	for !ready() {
		select {
		case <-p.ended:
			return p.died()
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("servers: %s was not ready after a minute:\n%s", p.name(), p.output.String())
		}
	}
	return nil
}

func (p *process) died() error {
	out := p.output.String()
	if strings.Contains(out, "ddress already in use") {
		return fmt.Errorf("servers: %s: %w:\n%s", p.name(), errPortTaken, out)
	}
	return fmt.Errorf("servers: %s ended before it was ready: %v:\n%s", p.name(), p.err, out)
}

// onStarter calls f on the one thread that starts processes. Linux sends the parent-death signal when the thread that
// started the child ends, not when its process does; Go ends threads when goroutines that are locked to them end. This
// thread belongs to a goroutine that never ends, so it lives as long as the process.
func onStarter(f func() error) error {
	err := make(chan error)
	starter() <- func() { err <- f() }
	return <-err
}

var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// environment is env without PostgreSQL's own variables, which would steer its programs elsewhere, and with messages in
// English.
func environment(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") {
			kept = append(kept, v)
		}
	}
	return append(kept, "LC_ALL=C")
}

// tail keeps the end of what a program prints.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 8 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-keep):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// running holds the processes that this process started and that have not ended.
var running = processes{set: map[*process]bool{}}

type processes struct {
	mu  sync.Mutex
	set map[*process]bool
}

func (r *processes) add(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set[p] = true
}

func (r *processes) remove(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.set, p)
}

func (r *processes) list() []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*process
	for p := range r.set {
		all = append(all, p)
	}
	return all
}

// stopAll kills what still runs and returns its names. The folder of a killed server goes too.
func stopAll() []string {
	var names []string
	for _, p := range running.list() {
		names = append(names, fmt.Sprintf("%s (%d)", p.name(), p.pid()))
		p.kill()
		if p.cmd.Dir != "" {
			_ = os.RemoveAll(p.cmd.Dir) // best effort: this is the way out after a mistake
		}
	}
	return names
}

// makeDir makes a temporary folder in parent ("": the system's) for a server.
func makeDir(parent, server string) (string, error) {
	dir, err := os.MkdirTemp(parent, "jobs-"+server+"-")
	if err != nil {
		return "", fmt.Errorf("servers: folder for %s: %w", server, err)
	}
	removeAfterDeath(dir)
	return dir, nil
}

// removeDir removes a server's folder once the server has ended.
func removeDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	return nil
}

var errRunning = errors.New("servers: it runs already")
var errStopped = errors.New("servers: it does not run")
