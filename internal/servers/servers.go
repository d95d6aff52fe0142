// Package servers starts what tests and examples need around them: a real redis-server, a real PostgreSQL, a miniredis
// whose keys expire, a proxy that loses chosen commands and replies, and a Prometheus.
//
// Everything listens on 127.0.0.1 on a free port, keeps its files in a temporary folder and is stopped by whoever
// started it: by the test's cleanup, by Close, or, for what a whole test binary shares, by Main. When the process that
// started them is killed, their folders are removed on Unix, and on Linux they end first.
//
// A test that needs a server whose program is not installed is skipped and says so. With JOBS_REQUIRE_SERVERS=1 in the
// environment it fails instead.
package servers

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// ErrNotInstalled is what an error of StartRedis or StartPostgres wraps when the server's programs are not on this
// machine.
var ErrNotInstalled = errors.New("not installed")

// errPortTaken is wrapped when a server ended because its port was in use.
var errPortTaken = errors.New("port taken")

// Main runs a package's tests and then stops the servers that they shared. A package that calls SharedRedis or
// NewPostgres has
//
//	func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
//
// The result is not 0 if a test left a server of its own running; it is named and stopped. On an interrupt every server
// is stopped before the process ends.
func Main(m *testing.M) int {
	underMain.Store(true)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		shared.close()
		stopAll()
		os.Exit(1)
	}()
	code := m.Run()
	shared.close()
	if left := stopAll(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "servers: left running by the tests: %s\n", strings.Join(left, ", "))
		return 1
	}
	return code
}

// Prefix returns a key prefix that no other call in this process returns, such as "t12:". Tests that share a Redis keep
// out of each other's way with it.
func Prefix(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("t%d:", prefixes.Add(1))
}

var (
	prefixes  atomic.Int64
	underMain atomic.Bool
	shared    closers
)

// closers is what lives until Main returns.
type closers struct {
	mu   sync.Mutex
	list []io.Closer
}

func (c *closers) add(s io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, s)
}

func (c *closers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.list {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	c.list = nil
}

// needsMain ends a test that uses a shared server in a package whose TestMain would not stop it.
func needsMain(t testing.TB) {
	t.Helper()
	if !underMain.Load() {
		t.Fatal("servers: a shared server needs func TestMain(m *testing.M) { os.Exit(servers.Main(m)) } in this package")
	}
}

// fail ends a test for want of a server: it is skipped if the server's program is missing and that is allowed.
func fail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNotInstalled) && !required() {
		t.Skip(err)
	}
	t.Fatal(err)
}

func required() bool {
	v := os.Getenv("JOBS_REQUIRE_SERVERS")
	return v != "" && v != "0"
}

// Ports are taken from below the range that systems give to outgoing connections (Linux from 32768, others from 49152):
// while a server is down for a test, no connection may come to sit on its port, and a client that dials it in the
// meantime must not be connected to itself. A Redis cluster bus, 10,000 higher, stays below too.
const firstPort, ports = 12000, 10000

// freePort returns a port on which nothing listened a moment ago.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(ports)
		var l net.Listener
		if l, err = net.Listen("tcp4", address(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("servers: no free port: %w", err)
}

// onFreePort calls start with a free port, and with another one while somebody else has been quicker to take it.
func onFreePort(free func() (int, error), start func(port int) error) error {
	for attempt := 1; ; attempt++ {
		port, err := free()
		if err != nil {
			return err
		}
		if err = start(port); attempt == 3 || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
