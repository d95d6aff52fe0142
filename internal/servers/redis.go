package servers

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions say how a redis-server is started. The zero value is one that keeps nothing on disk.
type RedisOptions struct {
	Args []string // further arguments of redis-server, such as "--appendonly", "yes"; the last of a name counts
	Port int      // 0: a free one
}

// Redis is a redis-server of our own. Its methods may be called concurrently.
type Redis struct {
	program, dir string
	args         []string
	port         int

	mu      sync.Mutex
	process *process // nil before the first start
}

// StartRedis starts a redis-server and returns when it answers. Close ends it.
func StartRedis(o RedisOptions) (*Redis, error) {
	free := freePort
	if o.Port != 0 {
		free = func() (int, error) { return o.Port, nil }
	}
	return startRedis(o, free)
}

func startRedis(o RedisOptions, free func() (int, error)) (*Redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("servers: redis-server is %w: %v", ErrNotInstalled, err)
	}
	dir, err := makeDir("", "redis")
	if err != nil {
		return nil, err
	}
	r := &Redis{program: program, dir: dir, args: o.Args}
	err = onFreePort(free, func(port int) error {
		r.port = port
		return r.Start()
	})
	if err != nil {
		_ = removeDir(dir) // the first error says more
		return nil, err
	}
	return r, nil
}

// NewRedis starts a redis-server for one test and its subtests.
func NewRedis(t testing.TB, o ...RedisOptions) *Redis {
	t.Helper()
	var options RedisOptions
	if len(o) > 0 {
		options = o[0]
	}
	r, err := StartRedis(options)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// SharedRedis returns the one redis-server of this test binary. Tests that use it leave its settings and each other's
// keys alone (see Prefix), and do not stop it. The package's TestMain must call Main.
func SharedRedis(t testing.TB) *Redis {
	t.Helper()
	needsMain(t)
	r, err := sharedRedis()
	if err != nil {
		fail(t, err)
	}
	return r
}

var sharedRedis = sync.OnceValues(func() (*Redis, error) {
	r, err := StartRedis(RedisOptions{})
	if err == nil {
		shared.add(r)
	}
	return r, err
})

// Addr returns host and port.
func (r *Redis) Addr() string { return address(r.port) }

// URL returns the address in the form that redis.ParseURL takes.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// Client returns a new client with go-redis's own defaults, closed at the end of the test.
func (r *Redis) Client(t testing.TB) *redis.Client {
	return newClient(t, r.Addr())
}

// newClient is patient: on a busy machine a server that is well may be silent for seconds.
func newClient(t testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() }) // a test may have closed it
	return rdb
}

// Pid returns the process ID of the server that runs or ran last.
func (r *Redis) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process.pid()
}

// Start starts a stopped server again, on the same port and folder, and returns when it has loaded its data.
func (r *Redis) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil && r.process.alive() {
		return errRunning
	}
	p, err := start(r.command(), os.Kill)
	if err != nil {
		return err
	}
	if err := p.await(func() bool { return redisAnswers(r.Addr(), p.pid()) }); err != nil {
		p.kill()
		return err
	}
	r.process = p
	return nil
}

func (r *Redis) command() *exec.Cmd {
	args := []string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	cmd := exec.Command(r.program, append(args, r.args...)...)
	cmd.Dir = r.dir
	return cmd
}

// Stop ends the server as an operator would: what it is told to keep is on disk. The folder stays for Start.
func (r *Redis) Stop() error {
	return r.with(func(p *process) error { return p.stop(os.Interrupt) })
}

// Kill ends the server at once, with SIGKILL. The folder stays for Start.
func (r *Redis) Kill() error {
	return r.with(func(p *process) error { p.kill(); return nil })
}

// Pause suspends the server (SIGSTOP): connections stay, nothing is answered.
func (r *Redis) Pause() error {
	return r.with(func(p *process) error { return p.signal(stopSignal) })
}

// Resume lets a suspended server go on (SIGCONT).
func (r *Redis) Resume() error {
	return r.with(func(p *process) error { return p.signal(contSignal) })
}

// with calls f with the running server's process.
func (r *Redis) with(f func(*process) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.alive() {
		return errStopped
	}
	return f(r.process)
}

// Close ends the server, if it runs, and removes its folder.
func (r *Redis) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process.kill()
	return removeDir(r.dir)
}

// redisAnswers reports whether the server at addr has loaded its data and is the process with this ID: another server
// may have been quicker to take the port. One that wants a password first is believed.
func redisAnswers(addr string, pid int) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := c.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return false
	}
	in := bufio.NewReader(c)
	ping, err := readReply(in)
	if err != nil || bytes.HasPrefix(ping.raw, []byte("-LOADING")) {
		return false
	}
	info, err := readReply(in)
	return err == nil && (info.raw[0] == '-' || bytes.Contains(info.raw, fmt.Appendf(nil, "\r\nprocess_id:%d\r\n", pid)))
}
