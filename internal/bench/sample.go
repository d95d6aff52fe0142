package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// spec is one sample: one peer taken through one measure once, in a process of its own, so that its CPU is its own and
// no garbage of another peer's is collected in its time.
type spec struct {
	Measure, Peer string
	Big           string `json:",omitempty"` // of growth: waiting, delayed or dead
	Profile       string `json:",omitempty"` // a folder for CPU profiles of the worker
	Sizes         sizes
	At            addresses
}

// sizes are how much a peer is given to do.
type sizes struct {
	Jobs     int           // drained, or kept for the memory they take
	Due      int           // due at once
	Failing  int           // failing once
	Pickups  int           // picked up one by one
	Patience time.Duration // of enqueueing, and at most of the pickups times two
	Extra    int           // of growth: how much of the big thing there is
}

// shared is for a peer that takes so much longer.
func (s sizes) shared(share int) sizes {
	s.Jobs = max(1, s.Jobs/share)
	return s
}

type addresses struct {
	Redis, Postgres string // host and port; URL
	PostgresPid     int
}

// figures are what a sample has measured, by metric.
type figures map[string]float64

// childVariable holds the spec of a process that takes a sample.
const childVariable = "BENCH_SAMPLE"

// inChild takes the sample that this process was started for. It reports false where it was started for none.
func inChild() bool {
	text := os.Getenv(childVariable)
	if text == "" {
		return false
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // who started this is gone
	}()
	var s spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		var f figures
		if f, err = take(context.Background(), s); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(f)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// start starts a process that takes a sample. Its standard input is to be held open until it has ended.
func (s spec) start(ctx context.Context) (*exec.Cmd, io.Closer, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	in, err := cmd.StdinPipe()
	return cmd, in, err
}

// apart takes a sample in a process of its own.
func (s spec) apart(ctx context.Context) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd, in, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s of %s: %w: %s", s.Measure, s.Peer, err, bytes.TrimSpace(trouble.Bytes()))
	}
	var f figures
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return nil, fmt.Errorf("%s of %s: %w", s.Measure, s.Peer, err)
	}
	return f, nil
}

// sample is a spec at work.
type sample struct {
	spec
	entry  entry
	setup  setup
	peer   peer
	server server
}

// take takes a sample in this process.
func take(ctx context.Context, s spec) (figures, error) {
	m, ok := measureOf(s.Measure)
	if !ok {
		return nil, fmt.Errorf("no measure %q", s.Measure)
	}
	e, err := entryOf(s.Peer)
	if err != nil {
		return nil, err
	}
	run := &sample{spec: s, entry: e, setup: m.setup}
	run.setup.redis, run.setup.postgres, run.setup.trips = s.At.Redis, s.At.Postgres, &trips{}
	run.Sizes = run.Sizes.shared(e.share)
	if run.server, err = dialServer(ctx, e, s.At); err != nil {
		return nil, err
	}
	defer run.server.close()
	if !m.keeps {
		if err := run.server.reset(ctx); err != nil {
			return nil, err
		}
	}
	if run.peer, err = e.open(ctx, run.setup); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return m.take(ctx, run) // the peer is not closed: its worker may still be ending, and the process ends now
}

// working runs f while the peer works, and reports what ends first.
func (s *sample) working(ctx context.Context, handle handler, f func(ctx context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	profiled, err := s.profile()
	if err != nil {
		return err
	}
	defer profiled()
	worked, done := make(chan error, 1), make(chan error, 1)
	go func() { worked <- s.peer.work(ctx, s.setup.slots, handle) }()
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case err := <-worked:
		return fmt.Errorf("the worker ended: %w", err)
	}
}

// profile writes a CPU profile of this process until what it returns is called, where one was asked for.
func (s *sample) profile() (end func(), err error) {
	if s.Profile == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(s.Profile, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(s.Profile, s.Peer+"-"+s.Measure+".prof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = file.Close() }, nil
}

func (s *sample) fill(ctx context.Context, due time.Time, n int) error {
	return s.entry.fill(ctx, s.peer, due, 0, n)
}

// settled waits until nothing is left to settle.
func (s *sample) settled(ctx context.Context) error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		left, err := s.peer.left(ctx, s.server)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d jobs are left", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
