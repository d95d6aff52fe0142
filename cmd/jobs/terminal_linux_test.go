package main

import (
	"bytes"
	"context"
	"fmt"
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
	js := make([]jobs.Job, 20)
	for i := range js {
		js[i] = raw("k").Job(nil)
	}
	d.die("no", js...)
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
