//go:build unix

package chaos

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stagedoor/jobs/internal/servers"
)

func TestMain(m *testing.M) {
	logging.Disable() // what is disturbed is disturbed on purpose
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("8") // they wait more than they work
	}
	code := servers.Main(m)
	if built.program != "" {
		_ = os.RemoveAll(filepath.Dir(built.program)) // best effort, on the way out
	}
	os.Exit(code)
}

var built struct {
	sync.Once
	program string
	err     error
}

// workerProgram builds package worker, once.
func workerProgram() (string, error) {
	built.Do(func() {
		dir, err := os.MkdirTemp("", "jobs-chaos-")
		if err != nil {
			built.err = err
			return
		}
		built.program = filepath.Join(dir, "worker")
		if out, err := exec.Command("go", "build", "-o", built.program, "./worker").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	return built.program, built.err
}

// A process is one life of a worker.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   *tail
	ended chan struct{}

	mu              sync.Mutex
	killed, stopped time.Time // when it was told so
	end             time.Time
}

// startWorker starts a worker of that name. It ends with the test at the latest.
func startWorker(t testing.TB, name string, env ...string) (*process, error) {
	program, err := workerProgram()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(program), log: &tail{}, ended: make(chan struct{})}
	p.cmd.Env = append(env, "WORKER="+name)
	p.cmd.Stderr = p.log
	stdin, err := p.cmd.StdinPipe() // it ends when this process does
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the state says how it ended
		_ = stdin.Close()
		p.mu.Lock()
		p.end = time.Now()
		p.mu.Unlock()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	return p, nil
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal sends a signal; a process that has ended gets none.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process at once, and returns when that was.
func (p *process) kill() time.Time {
	p.mu.Lock()
	p.killed = time.Now()
	at := p.killed
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	<-p.ended
	return at
}

// stop asks the process to leave, and reports whether it did.
func (p *process) stop() bool {
	p.mu.Lock()
	p.stopped = time.Now()
	p.mu.Unlock()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return true
	case <-time.After(30 * time.Second):
		return false
	}
}

// obituary is the trouble that the process's end was, or an error where nobody can have wanted it.
func (p *process) obituary() (Trouble, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		from := p.end
		if !p.killed.IsZero() {
			from = p.killed
		}
		return Trouble{Crash, p.name, from, p.end}, nil
	case p.stopped.IsZero():
	case status.Signaled() && status.Signal() == syscall.SIGTERM, status.Exited() && status.ExitStatus() <= 1:
		return Trouble{Left, p.name, p.stopped, p.end}, nil
	}
	return Trouble{}, fmt.Errorf("worker %s ended by itself: %s\n%s", p.name, p.cmd.ProcessState, p.log)
}

// tail keeps the last of what a process says, and counts its lines.
type tail struct {
	mu    sync.Mutex
	last  []byte
	lines int
}

var _ io.Writer = (*tail)(nil)

func (l *tail) Write(b []byte) (int, error) {
	const keep = 16 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines += bytes.Count(b, []byte{'\n'})
	l.last = append(l.last, b...)
	l.last = l.last[max(0, len(l.last)-keep):]
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.last)
}

func (l *tail) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}
