package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// program is the tool as a user has it.
var program string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "jobs-tool")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "jobs")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\n%s", err, out)
		return 1
	}
	return servers.Main(m)
}

// desk is a person at a queue.
type desk struct {
	t      *testing.T
	rdb    *redis.Client
	url    string
	prefix string
	client *jobs.Client
}

func newDesk(t *testing.T, rdb *redis.Client) *desk {
	d := &desk{t: t, rdb: rdb, url: "redis://" + rdb.Options().Addr, prefix: servers.Prefix(t)}
	d.client = jobs.NewClient(rdb, jobs.Options{Prefix: d.prefix})
	return d
}

// each is a test at a desk of its own, on both servers.
func each(t *testing.T, f func(t *testing.T, d *desk)) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) { f(t, newDesk(t, rdb)) })
}

// onRedis is a desk at the shared redis-server.
func onRedis(t *testing.T) *desk {
	t.Helper()
	return newDesk(t, servers.SharedRedis(t).Client(t))
}

// said is what a call of the tool came to.
type said struct {
	out, err string
	code     int
}

func (d *desk) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	d.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(cleanEnv(), "REDIS_URL="+d.url, "JOBS_PREFIX="+d.prefix, "TZ=UTC")
	return cmd
}

// cleanEnv is the environment without what the tool reads.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "REDIS_URL", "REDIS_PASSWORD", "SENTINEL_PASSWORD", "JOBS_PREFIX", "TZ", "NO_COLOR", "TERM":
		default:
			env = append(env, e)
		}
	}
	return env
}

// try calls the tool, without a terminal.
func (d *desk) try(args ...string) said {
	d.t.Helper()
	return finish(d.t, d.command(args...))
}

func finish(t *testing.T, cmd *exec.Cmd) said {
	t.Helper()
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failed := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](failed); failed != nil && !ok {
		t.Fatal(failed)
	}
	return said{out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

// do calls the tool, which must end with code, and returns its output.
func (d *desk) do(code int, args ...string) string {
	d.t.Helper()
	s := d.try(args...)
	if s.code != code {
		d.t.Fatalf("jobs %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), s.code, code, s.out, s.err)
	}
	return s.out
}

// objects are the lines of JSON that the tool printed.
func (d *desk) objects(args ...string) []map[string]any {
	d.t.Helper()
	return parsed(d.t, d.do(exitDone, append(args, "--json")...))
}

func parsed(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		var m map[string]any
		err := dec.Decode(&m)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%s in %q", err, text)
		}
		all = append(all, m)
	}
}

// has fails the test unless text has all parts.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%q is in:\n%s", part, text)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raw is a kind whose handlers are told nothing.
func raw(name string) jobs.Kind[jobs.Fields] { return jobs.NewKind[jobs.Fields](name, jobs.Policy{}) }

// die enqueues jobs and has a worker run them, which fails each; when it returns they are dead and the worker is gone.
func (d *desk) die(why string, js ...jobs.Job) {
	d.t.Helper()
	d.bury(len(js), why, js...)
}

// kill leaves so many dead letters.
func (d *desk) kill(n int) {
	d.t.Helper()
	js := make([]jobs.Job, n)
	for i := range js {
		js[i] = raw("k").Job(nil)
	}
	d.die("no", js...)
}

// bury is die, until so many are dead.
func (d *desk) bury(n int, why string, js ...jobs.Job) {
	d.t.Helper()
	dead := make(chan struct{}, n)
	r := jobs.NewRunner(d.client, jobs.Config{
		Slots: 1, Logger: slog.New(slog.DiscardHandler),
		OnDead: func(context.Context, jobs.DeadLetter) { dead <- struct{}{} },
	})
	kinds := map[string]bool{}
	for _, j := range js {
		if !kinds[j.Kind] {
			kinds[j.Kind] = true
			jobs.Handle(r, raw(j.Kind), func(context.Context, jobs.Fields) error { return errors.New(why) })
		}
	}
	must(d.t, d.client.Enqueue(d.t.Context(), js...))
	stop := d.run(r)
	for range n {
		select {
		case <-dead:
		case <-time.After(30 * time.Second):
			d.t.Fatal("a job has not died within 30 s")
		}
	}
	stop()
}

// run runs a worker until the returned function is called.
func (d *desk) run(r *jobs.Runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			d.t.Error(err)
		}
	}
	d.t.Cleanup(stop)
	return stop
}

// entries are the dead letters, oldest first.
func (d *desk) entries() []string {
	d.t.Helper()
	var all []string
	for l, err := range d.client.DeadLetters().List(d.t.Context(), jobs.Filter{}) {
		must(d.t, err)
		all = append(all, l.Entry)
	}
	return all
}

func (d *desk) stats() jobs.Stats {
	d.t.Helper()
	s, err := d.client.Stats(d.t.Context())
	must(d.t, err)
	return s
}

// eventually polls for what no event tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); !ok(); {
		select {
		case <-deadline:
			t.Fatalf("not so after 30 s: %s", what)
		case <-tick.C:
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	d := &desk{t: t, url: "redis://127.0.0.1:1"} // nothing is asked of it
	for _, c := range []struct{ args, says string }{
		{"", "needs a command"},
		{"nonsense", `no command "nonsense"`},
		{"dead", "needs a command"},
		{"dead nonsense", `no command "nonsense"`},
		{"stats --nonsense", "--nonsense"},
		{"stats now", "now"},
		{"dead show", "at least 1 arg"},
		{"dead replay", "which?"},
		{"dead discard", "which?"},
		{"dead replay 1-0 --all", "not both"},
		{"dead replay 1-0 --limit 1", "not both"},
		{"dead discard 1-0 2-0 3-0 --limit 1 -y", "not both"},
		{"dead replay abc", "jobs dead ls lists them"},
		{"dead discard abc -y", "jobs dead ls lists them"},
		{"dead show abc", "jobs dead show --help"},
		{"dead ls --before abc", "--before"},
		{"audit --entry abc", "--entry"},
		{"audit nonsense", "nonsense"},
		{"dead replay --all --rate 1e-11/s", "rate"},
		{"delayed show", "at least 1 argument: ID"},
		{"schedule run-now", "at least 1 argument: NAME"},
		{"dead replay --all --rate fast", "rate"},
		{"dead replay --all --set label", "not field=value"},
		{"dead replay --all --set attempts=0", "reserved"},
		{"dead replay --all --set a=1 --set a=2", "twice"},
		{"dead ls --since whenever", "whenever"},
		{"dead ls --limit -1", "negative"},
		{"dead ls --since 14:00 --until 13:00", "--since 14:00 is not before --until 13:00"},
		{"dead discard --until 2h --since 1h -y", "--since 1h is not before --until 2h"},
		{"audit --since today --until today", "--since today is not before --until today"},
		{"delayed ls --from +2h --until +1h", "--from +2h is not before --until +1h"},
		{"dead ls --kind=", "--kind"},
		{"dead discard --kind= --since 1h -y", "it is empty"},
		{"dead replay --all --error= -y", "it is empty"},
		{"dead export --until=", "it is empty"},
		{"delayed ls --kind=", "it is empty"},
		{"audit --id=", "it is empty"},
		{"enqueue k --at=", "it is empty"},
		{"enqueue k --in=", "it is empty"},
		{"enqueue k --id=", "it is empty"},
		{"dead replay --kind a --kind b -y", "given twice"},
		{"audit --id a --id b", "given twice"},
		{"enqueue k --in 1h --in 2h", "given twice"},
		{"dead ls render_tickets", `jobs dead ls takes no argument, and "render_tickets" is one`},
		{"stats --timeout 0s", "--timeout"},
		{"stats --timeout=-1s", "--timeout"},
		{"stats --every=-1s", "--every"},
		{"delayed cancel x", "--yes"},
		{"delayed ls --from whenever", "whenever"},
		{"delayed ls --limit -1", "negative"},
		{"enqueue", "at least 1 arg"},
		{"enqueue k x", "not field=value"},
		{"enqueue k --in 1h --at now", "exclude"},
		{"enqueue k --in soon", "soon"},
		{"enqueue k --at 2h", "--in"},
		{"stats --redis http://x", "scheme"},
		{"stats --user bob", "the user bob has no password: it comes from the URL or REDIS_PASSWORD"},
		{"stats --redis redis://bob@127.0.0.1:1", "the URL's user has no password: it comes from the URL or REDIS_PASSWORD"},
		{"stats --user bob --sentinel a:1 --sentinel-master m", "the user bob has no password"},
		{"dead replay --all --rate 50/d", "50/s or 50"},
		{"stats --sentinel a:1", "go together"},
		{"stats --cluster a:1", "hash tag"},
		{"stats --tls-ca nowhere.pem", "--tls-ca"},
		{"stats --tls-cert nowhere.pem", "go together"},
		{"stats --tls-cert nowhere.pem --tls-key nowhere.pem", "nowhere.pem"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			s := (&desk{t: t, url: d.url}).try(strings.Fields(c.args)...)
			if s.code != exitUsage || s.out != "" {
				t.Errorf("exit code %d, printed %q", s.code, s.out)
			}
			has(t, s.err, c.says)
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	d := &desk{t: t}
	has(t, d.do(exitDone, "--version"), "jobs version", "go1.")
	has(t, d.do(exitDone, "help"), "Exit codes", "REDIS_URL")
	has(t, d.do(exitDone, "dead", "replay", "--help"), "--dry-run", "--rate", "50/s or 50,", "--set")
}

func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	locked := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--requirepass", "opensesame"}})
	for _, c := range []struct{ name, url, says string }{
		{"nobody listens", "redis://127.0.0.1:1", "refused"},
		{"wrong password", "redis://:hunter2@" + locked.Addr(), "WRONGPASS"},
		{"no password", locked.URL(), "NOAUTH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := &desk{t: t, url: c.url}
			for _, args := range []string{"stats", "stats --watch", "dead ls", "dead replay --all --yes", "dead show 1-0", "delayed ls", "delayed run-now x", "workers", "schedule ls", "audit ls", "doctor", "enqueue k"} {
				s := d.try(strings.Fields(args)...)
				if s.code != exitRedis || s.out != "" {
					t.Errorf("%s: exit code %d, printed %q", args, s.code, s.out)
				}
				has(t, s.err, c.says)
				lacks(t, s.err, "hunter2")
			}
		})
	}
	t.Run("password from the environment", func(t *testing.T) {
		t.Parallel()
		cmd := (&desk{t: t, url: locked.URL()}).command("stats")
		cmd.Env = append(cmd.Env, "REDIS_PASSWORD=opensesame")
		if s := finish(t, cmd); s.code != exitDone {
			t.Errorf("exit code %d: %s", s.code, s.err)
		}
	})
	t.Run("an unreadable URL is not shown", func(t *testing.T) {
		t.Parallel()
		s := (&desk{t: t, url: "redis://:hunter2#:x@h:1"}).try("stats")
		if s.code != exitUsage {
			t.Errorf("exit code %d", s.code)
		}
		lacks(t, s.err, "hunter2")
	})
	t.Run("a password in the user's place is not shown", func(t *testing.T) {
		t.Parallel()
		s := (&desk{t: t, url: "redis://hunter2@127.0.0.1:1"}).try("stats")
		if s.code != exitUsage {
			t.Errorf("exit code %d", s.code)
		}
		lacks(t, s.err, "hunter2")
	})
}

func TestStats(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		for _, args := range []string{"stats", "stats --by-kind"} {
			d.do(exitDone, strings.Fields(args)...)
		}
		render, send := raw("render_tickets"), raw("send_tickets")
		must(t, d.client.Enqueue(t.Context(), render.Job(nil), render.Job(nil), send.Job(nil), send.Job(nil).In(time.Hour)))

		lines := strings.Split(strings.TrimSpace(d.do(exitDone, "stats")), "\n")
		if len(lines) != 4 || strings.Fields(lines[0])[1] != "3" || strings.Fields(lines[2])[1] != "1" {
			t.Errorf("got %q", lines)
		}
		has(t, lines[0], "the oldest for ")
		all := d.objects("stats")
		if len(all) != 1 || all[0]["ready"] != 3. || all[0]["delayed"] != 1. || all[0]["dead"] != 0. || all[0]["running"] != 0. {
			t.Errorf("got %v", all)
		}
		kinds := d.objects("stats", "--by-kind")
		if len(kinds) != 2 || kinds[0]["kind"] != "render_tickets" || kinds[0]["ready"] != 2. || kinds[1]["ready"] != 1. || kinds[1]["delayed"] != 1. {
			t.Errorf("got %v", kinds)
		}
		table := strings.Split(d.do(exitDone, "stats", "--by-kind"), "\n")
		has(t, table[0], "KIND", "READY", "OLDEST READY")
		has(t, table[1], "render_tickets  2 ")
	})
}

// Nothing is found also where somebody looks in the wrong place, and that is said.
func TestWhereThereIsNoQueue(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		for _, args := range []string{"stats", "dead ls", "workers", "audit", "delayed ls"} {
			s := d.try(strings.Fields(args)...)
			has(t, s.err, "no queue with the prefix")
			has(t, s.err, d.rdb.Options().Addr, d.prefix)
		}
		for _, args := range []string{"dead show 1-0", "dead replay 1-0 2-0", "delayed show x", "delayed cancel x -y", "schedule run-now x"} {
			s := d.try(strings.Fields(args)...)
			if s.code != exitPartly {
				t.Errorf("%s: exit code %d", args, s.code)
			}
			has(t, s.err, "not found", "no queue with the prefix")
		}
		must(t, d.client.Enqueue(t.Context(), raw("k").Job(nil)))
		for _, args := range []string{"stats", "dead ls", "dead show 1-0", "delayed cancel x -y"} {
			lacks(t, d.try(strings.Fields(args)...).err, "no queue")
		}
	})
}

func TestHints(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--requirepass", "opensesame"}})
	hung, err := net.Listen("tcp", "127.0.0.1:0") // which accepts, and never answers
	must(t, err)
	defer hung.Close()
	open := servers.NewRedis(t)
	must(t, open.Client(t).Set(t.Context(), "jobs", "x", 0).Err())
	for _, c := range []struct{ url, args, says string }{
		{server.URL(), "stats", "REDIS_PASSWORD"},
		{"redis://" + hung.Addr().String(), "stats --timeout 200ms", hung.Addr().String() + " has not answered within 200ms"},
		{"redis://" + hung.Addr().String(), "stats --timeout 200ms --tls", "TLS"},
		{open.URL(), "stats", "jobs doctor"},
	} {
		s := (&desk{t: t, url: c.url}).try(strings.Fields(c.args)...)
		if s.code != exitRedis {
			t.Errorf("%s: exit code %d", c.args, s.code)
		}
		has(t, s.err, c.says)
	}
	d := &desk{t: t, url: server.Addr()} // host:port
	cmd := d.command("enqueue", "k")
	cmd.Env = append(cmd.Env, "REDIS_PASSWORD=opensesame")
	if s := finish(t, cmd); s.code != exitDone {
		t.Errorf("host:port as the URL: %+v", s)
	}
}

func TestStatsAreWatched(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	cmd := d.command("stats", "--watch", "--every", "100ms", "--json")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		s := parsed(t, lines.Text())[0]
		if first {
			must(t, d.client.Enqueue(t.Context(), raw("k").Job(nil)))
		}
		if s["ready"] == 1. {
			break
		}
	}
	must(t, cmd.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, out) // until it has ended
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("exit code %d, %v", cmd.ProcessState.ExitCode(), err)
	}
}
