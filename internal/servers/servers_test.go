package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The test binary is also run by its own tests, as a process that shares servers and is killed, or that leaves one
// running; childMode in the environment says as which.
const childMode = "SERVERS_TEST_CHILD"

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// child prepares a run of this test binary that runs the one test.
func child(t *testing.T, test, mode string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	return cmd
}

func TestNothingIsLeftByMain(t *testing.T) {
	t.Parallel()
	NewRedis(t) // skips where there is none
	if _, err := findPostgres(os.Getenv("PATH"), postgresFolders); err != nil {
		fail(t, err)
	}
	out, err := child(t, "TestChildShares", "main").CombinedOutput()
	if err != nil {
		t.Fatalf("the child failed: %v\n%s", err, out)
	}
	gone(t, lines(string(out)))
}

func TestMainNamesWhatATestLeftRunning(t *testing.T) {
	t.Parallel()
	NewRedis(t)
	out, err := child(t, "TestChildLeaves", "leaves").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "left running by the tests: redis-server (") {
		t.Errorf("got %v, want exit 1 and the server's name:\n%s", err, out)
	}
	gone(t, lines(string(out)))
}

func TestMainStopsServersOnInterrupt(t *testing.T) {
	t.Parallel()
	said, cmd := shareAndWait(t)
	must(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted run was a success")
	}
	gone(t, said)
}

// shareAndWait starts a child that starts every sort of server and then waits; it returns the lines that say where.
func shareAndWait(t *testing.T) ([]string, *exec.Cmd) {
	t.Helper()
	NewRedis(t)
	if _, err := findPostgres(os.Getenv("PATH"), postgresFolders); err != nil {
		fail(t, err)
	}
	cmd := child(t, "TestChildShares", "wait")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	t.Cleanup(func() { _ = stdin.Close() }) // Wait has closed it
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var said []string
	for s := bufio.NewScanner(out); s.Scan() && s.Text() != "ready"; {
		said = append(said, s.Text())
	}
	return lines(strings.Join(said, "\n")), cmd
}

// TestChildShares is the child of the tests above: it prints the address and the folder of each server.
func TestChildShares(t *testing.T) {
	mode := os.Getenv(childMode)
	if mode != "main" && mode != "wait" {
		return // it runs only as a child of the tests above
	}
	r, own := SharedRedis(t), NewRedis(t)
	NewPostgres(t)
	p, err := sharedPostgres()
	must(t, err)
	fmt.Printf("\nserver %s %s\nserver %s %s\nserver %s %s\nready\n", r.Addr(), r.dir, own.Addr(), own.dir, p.Addr(), p.dir)
	if mode == "wait" {
		_, _ = os.Stdin.Read(make([]byte, 1)) // until killed
	}
}

func TestChildLeaves(t *testing.T) {
	if os.Getenv(childMode) != "leaves" {
		return // it runs only as a child of the tests above
	}
	r, err := StartRedis(RedisOptions{})
	must(t, err)
	fmt.Printf("\nserver %s %s\n", r.Addr(), r.dir)
}

// lines returns the lines that name a server.
func lines(out string) []string {
	var found []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "server ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// gone fails the test unless each server has ended, or does soon, and its folder is removed.
func gone(t *testing.T, servers []string) {
	t.Helper()
	notListening(t, servers)
	for _, s := range servers {
		if dir := strings.Fields(s)[2]; exists(dir) {
			t.Errorf("%s is left behind", dir)
		}
	}
}

func notListening(t *testing.T, servers []string) {
	t.Helper()
	if len(servers) == 0 {
		t.Error("the child named no server")
	}
	for _, s := range servers {
		addr := strings.Fields(s)[1]
		eventually(t, "the server at "+addr+" has ended", func() bool {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err == nil {
				_ = c.Close() // it was only to see
			}
			return err != nil
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestMissingPrograms(t *testing.T) {
	missing := fmt.Errorf("servers: redis-server is %w", ErrNotInstalled)
	for _, c := range []struct {
		name, require, want string
		err                 error
	}{
		{"skips aloud", "", "skip: servers: redis-server is not installed", missing},
		{"0 is not set", "0", "skip: servers: redis-server is not installed", missing},
		{"required", "1", "fatal: servers: redis-server is not installed", missing},
		{"any other error fails", "", "fatal: disk full", errors.New("disk full")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("JOBS_REQUIRE_SERVERS", c.require)
			r := &recorder{TB: t}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				fail(r, c.err)
			}()
			<-ended
			if r.said != c.want {
				t.Errorf("got %q, want %q", r.said, c.want)
			}
		})
	}
}

// recorder is a test that notes how it was ended.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Skip(args ...any)  { r.said = "skip: " + fmt.Sprint(args...); panic(r) }
func (r *recorder) Fatal(args ...any) { r.said = "fatal: " + fmt.Sprint(args...); panic(r) }

func TestStartWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := StartRedis(RedisOptions{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("StartRedis: %v", err)
	}
	if _, err := findPostgres(os.Getenv("PATH"), nil); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("findPostgres: %v", err)
	}
}

func TestSharedServerNeedsMain(t *testing.T) {
	underMain.Store(false)
	defer underMain.Store(true)
	r := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }()
		needsMain(r)
	}()
	if !strings.Contains(r.said, "servers.Main(m)") {
		t.Errorf("got %q", r.said)
	}
}

func TestPrefixesDiffer(t *testing.T) {
	t.Parallel()
	if a, b := Prefix(t), Prefix(t); a == b || !strings.HasSuffix(a, ":") {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestPortIsTriedAgain(t *testing.T) {
	t.Parallel()
	taken := fmt.Errorf("redis-server: %w", errPortTaken)
	for _, c := range []struct {
		name string
		fail []error
		want int // calls
		err  error
	}{
		{"free", []error{nil}, 1, nil},
		{"taken once", []error{taken, nil}, 2, nil},
		{"taken always", []error{taken, taken, taken, nil}, 3, errPortTaken},
		{"another error", []error{os.ErrInvalid, nil}, 1, os.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls int
			err := onFreePort(freePort, func(port int) error { calls++; return c.fail[calls-1] })
			if calls != c.want || !errors.Is(err, c.err) {
				t.Errorf("%d calls, %v; want %d, %v", calls, err, c.want, c.err)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls for what no event tells.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not so after 20 s: %s", what)
		case <-tick.C:
		}
	}
}
