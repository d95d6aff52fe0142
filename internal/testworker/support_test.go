package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs/internal/servers"
)

// program is the built command.
var program string

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(buildAndTest(m)) }

func buildAndTest(m *testing.M) int {
	dir, err := os.MkdirTemp("", "testworker-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "testworker")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return servers.Main(m)
}

// A site is a Redis with nothing in it, and the environment that every process of a test has.
type site struct {
	*testing.T
	rdb *redis.Client
	url string
	env []string
}

func newSite(t *testing.T, env ...string) site {
	t.Helper()
	t.Parallel()
	server := servers.NewRedis(t)
	return site{t, server.Client(t), server.URL(), append([]string{"REDIS_URL=" + server.URL()}, env...)}
}

func command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	return cmd
}

// do runs the program with arguments and returns the lines that it printed.
func (s site) do(args ...string) []string {
	s.Helper()
	out, stderr, code := outcome(command(s.Context(), s.env, args...))
	if code != 0 || stderr != "" {
		s.Fatalf("%q: exit %d, %s", args, code, stderr)
	}
	return strings.Fields(out)
}

// outcome runs cmd to its end.
func outcome(cmd *exec.Cmd) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run() // the exit code says it
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// A process is a worker that runs.
type process struct {
	s      site
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

func (s site) work(env ...string) process {
	s.Helper()
	p := process{s, command(s.Context(), append(env, s.env...)), new(bytes.Buffer)}
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	})
	return p
}

// end waits until the worker has ended.
func (p process) end() syscall.WaitStatus {
	p.s.Helper()
	if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState == nil {
		p.s.Fatal(err)
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (p process) stop(sig syscall.Signal) int {
	p.s.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.s.Fatal(err)
	}
	return p.end().ExitStatus()
}

// next takes the first record off a list, and waits for it.
func (s site) next(list string) record {
	s.Helper()
	member, err := s.rdb.BLPop(s.Context(), patience, list).Result()
	if err != nil {
		s.Fatalf("waiting for %s: %v", list, err)
	}
	return parseRecord(s, member[1])
}

func parseRecord(t testing.TB, line string) record {
	t.Helper()
	var r record
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("record %s: %v", line, err)
	}
	plain := make(map[string]string)
	for name, value := range r.Fields {
		plain[decode(t, name)] = decode(t, value)
	}
	r.Fields = plain
	return r
}

func decode(t testing.TB, s string) string {
	t.Helper()
	plain, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// dead waits for a dead letter, and returns its stream ID and its fields.
func (s site) dead(after string) (string, map[string]any) {
	s.Helper()
	got, err := s.rdb.XRead(s.Context(), &redis.XReadArgs{
		Streams: []string{"jobs:dead", after}, Count: 1, Block: patience,
	}).Result()
	if err != nil {
		s.Fatalf("waiting for a dead letter: %v", err)
	}
	m := got[0].Messages[0]
	return m.ID, m.Values
}

// settled waits until the stream is empty.
func (s site) settled() {
	s.Helper()
	for began := time.Now(); s.rdb.XLen(s.Context(), "jobs").Val() > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			s.Fatal("the stream is not empty")
		}
	}
}

func (s site) empty(lists ...string) {
	s.Helper()
	for _, list := range lists {
		if left := s.rdb.LRange(s.Context(), list, 0, -1).Val(); len(left) > 0 {
			s.Errorf("%s holds %q", list, left)
		}
	}
}
