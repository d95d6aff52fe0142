package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stagedoor/jobs"
	"golang.org/x/sys/unix"
)

// terminal is one, with a person's hands and eyes.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	done   chan struct{}

	mu   sync.Mutex
	seen bytes.Buffer
}

// sit starts the tool on a terminal of so many columns.
func (d *desk) sit(columns uint16, args ...string) *terminal {
	d.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must(d.t, err)
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(d.t, err)
	must(d.t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	must(d.t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(d.t, err)
	defer slave.Close()
	term := &terminal{t: d.t, master: master, cmd: d.command(args...), done: make(chan struct{})}
	term.cmd.Env = append(term.cmd.Env, "TERM=xterm")
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(d.t, term.cmd.Start())
	go term.look()
	return term
}

// look reads until the tool has ended.
func (term *terminal) look() {
	defer close(term.done)
	for b := make([]byte, 4096); ; {
		n, err := term.master.Read(b)
		term.mu.Lock()
		term.seen.Write(b[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

func (term *terminal) await(text string) {
	term.t.Helper()
	eventually(term.t, fmt.Sprintf("%q is seen", text), func() bool { return strings.Contains(term.text(), text) })
}

func (term *terminal) press(keys string) {
	term.t.Helper()
	_, err := term.master.WriteString(keys)
	must(term.t, err)
}

// end waits for the tool's end and returns its exit code.
func (term *terminal) end() int {
	_ = term.cmd.Wait() // its exit code is what counts
	<-term.done
	_ = term.master.Close() // it was only read
	return term.cmd.ProcessState.ExitCode()
}

const ctrlC = "\x03"

func TestDangerousActionsAsk(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	d.die("no", raw("k").Job(nil), raw("k").Job(nil))
	for _, c := range []struct {
		name, keys string
		code       int
	}{{"no", "n\n", exitPartly}, {"only return", "\n", exitPartly}, {"the end of the input", "\x04", exitPartly}, {"ctrl-C", ctrlC, exitInterrupted}} {
		for _, verb := range []string{"replay", "discard"} {
			term := d.sit(100, "dead", verb, "--kind", "k")
			term.await("2 dead letters of k")
			term.await("[y/N]")
			term.press(c.keys)
			if code := term.end(); code != c.code || d.stats().Dead != 2 {
				t.Errorf("%s, %s: exit code %d, %+v", verb, c.name, code, d.stats())
			}
			has(t, term.text(), "Nothing was done.")
		}
	}
	one := d.sit(100, "dead", "replay", d.entries()[0])
	if code := one.end(); code != exitDone || strings.Contains(one.text(), "[y/N]") {
		t.Errorf("replay of one: exit code %d, %q", code, one.text())
	}
	term := d.sit(100, "dead", "discard", "--all")
	term.await("[y/N]")
	term.press("y\n")
	if code := term.end(); code != exitDone || d.stats().Dead != 0 {
		t.Errorf("exit code %d, %+v: %q", code, d.stats(), term.text())
	}
}

func TestProgressIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	d.kill(20)
	term := d.sit(100, "dead", "replay", "--all", "--yes", "--rate", "10/s")
	term.await("[###")
	term.await(" of 20, ")
	term.press(ctrlC)
	if code := term.end(); code != exitInterrupted {
		t.Errorf("exit code %d: %q", code, term.text())
	}
	has(t, term.text(), "\r\x1b[K", "are left as they were", "jobs: interrupted")
	s := d.try("dead", "replay", "--all", "--yes", "--rate", "10/s")
	lacks(t, s.out+s.err, "[#", "\r", "\x1b")
	has(t, s.out, "replayed ")
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	d.die(strings.Repeat("a long story ", 30), raw("k").Job(nil))
	term := d.sit(90, "dead", "ls")
	term.end()
	for line := range strings.Lines(term.text()) {
		if n := len([]rune(strings.TrimRight(line, "\r\n"))); n > 90 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	has(t, term.text(), "…")
	has(t, d.do(exitDone, "dead", "ls"), strings.TrimSpace(strings.Repeat("a long story ", 30)))
}

// On 40 columns nothing breaks, and nothing that says most is cut away.
func TestANarrowTerminal(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	d.kill(20)
	term := d.sit(40, "dead", "ls", "--limit", "2")
	term.end()
	has(t, term.text(), "  k\r\n  1  no\r\n")
	term = d.sit(40, "dead", "replay", "--all", "--yes", "--rate", "10/s")
	term.await(" of 20, ")
	term.press(ctrlC)
	term.end()
	for _, text := range strings.Split(term.text(), "\r") {
		text, _, _ = strings.Cut(text, "\x1b[K")
		if n := len([]rune(text)); strings.Contains(text, " left") && !strings.Contains(text, "as they were") && (n >= 40 || !strings.HasPrefix(text, "[")) {
			t.Errorf("%d columns: %q", n, text)
		}
	}
}

// More kinds than rows: the head stays where it is.
func TestStatsFitTheTerminal(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	for i := range 60 {
		must(t, d.client.Enqueue(t.Context(), raw(fmt.Sprintf("k%02d", i)).Job(nil)))
	}
	term := d.sit(80, "stats", "--by-kind", "--every", "100ms")
	term.await("more lines")
	term.press(ctrlC)
	term.end()
	frame, _, _ := strings.Cut(strings.SplitN(term.text(), "\x1b[H", 2)[1], "\x1b[J")
	if n := strings.Count(frame, "\n"); n >= 40 || !strings.Contains(frame, "KIND") {
		t.Errorf("%d lines on 40 rows", n)
	}
}

// A value of megabytes is cut on a terminal, and whole in a pipe.
func TestLongValuesAreCutOnATerminal(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	d.die("no", raw("k").Job(jobs.Fields{"long": strings.Repeat("x", 100_000)}))
	term := d.sit(80, "dead", "show", d.entries()[0])
	term.end()
	if n := len(term.text()); n > 10_000 {
		t.Errorf("%d bytes are shown", n)
	}
	has(t, term.text(), "[100000 bytes; --json has all]")
	if n := len(d.do(exitDone, "dead", "show", d.entries()[0])); n < 100_000 {
		t.Errorf("%d bytes are piped", n)
	}
}

// Ctrl-C waits for the answer to what is under way, says so, and is obeyed when pressed again.
func TestASecondInterruptEndsItAtOnce(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0") // which accepts, and never answers
	must(t, err)
	defer hung.Close()
	cmd := (&desk{t: t, url: "redis://" + hung.Addr().String()}).command("stats", "--timeout", "50s")
	said, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	conn, err := hung.Accept()
	must(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1)) // it has asked, and waits; while it only connects it does not
	must(t, err)
	must(t, cmd.Process.Signal(os.Interrupt))
	line, err := bufio.NewReader(said).ReadString('\n')
	must(t, err)
	has(t, line, "waiting for Redis's answer", "Ctrl-C again")
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // how it ended is what counts
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %s", cmd.ProcessState)
	}
}

// A full disk is not a matter of Redis.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	d.kill(1)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	for _, args := range []string{"dead export", "dead ls", "stats --json"} {
		cmd := d.command(strings.Fields(args)...)
		cmd.Stdout = full
		var said strings.Builder
		cmd.Stderr = &said
		_ = cmd.Run() // its exit code is what counts
		if code := cmd.ProcessState.ExitCode(); code != exitPartly {
			t.Errorf("%s: exit code %d", args, code)
		}
		has(t, said.String(), "no space left")
	}
}

func TestStatsAreRedrawn(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	term := d.sit(80, "stats", "--watch", "--every", "100ms")
	term.await("ready    0")
	must(t, d.client.Enqueue(context.Background(), raw("k").Job(nil)))
	term.await("ready    1")
	term.press(ctrlC)
	if code := term.end(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	has(t, term.text(), "\x1b[H", "\x1b[J")
}

func TestDoctorHasColours(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	term := d.sit(80, "doctor")
	term.end()
	has(t, term.text(), "\x1b[31;1merror  \x1b[0m  ")
	lacks(t, d.do(exitPartly, "doctor"), "\x1b")
}
