package main

import (
	"bufio"
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// kill has a process run a job on each of its slots and kills it, a second after another worker has started; and tells
// how long it takes until the last of the jobs runs again. The other worker can have heard of nothing before: it is the
// worst that a fleet of two can meet.
func kill(ctx context.Context, s *sample) (figures, error) {
	if err := s.fill(ctx, time.Time{}, s.setup.slots); err != nil {
		return nil, err
	}
	victim, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer victim()
	again := newTally(s.setup.slots)
	var killed time.Time
	err = s.working(ctx, again.handle, func(ctx context.Context) error {
		time.Sleep(time.Second)
		killed = time.Now()
		victim()
		return again.wait(ctx)
	})
	return figures{"kill.seconds": again.last.Sub(killed).Seconds()}, err
}

// hold starts a process that holds every job, and returns when it does, with what kills it.
func (s *sample) hold(ctx context.Context) (kill func(), err error) {
	held := s.spec
	held.Measure = "hold"
	cmd, in, err := held.start(ctx)
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	kill = func() {
		_ = cmd.Process.Kill() // it may be dead
		_ = cmd.Wait()
		_ = in.Close()
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		kill()
		return nil, fmt.Errorf("the process that was to be killed: %w", err)
	}
	return kill, nil
}

// hold is the victim: its handlers never return, and when every slot has one it says so.
func hold(ctx context.Context, s *sample) (figures, error) {
	var running atomic.Int64
	return nil, s.peer.work(ctx, s.setup.slots, func(int) error {
		if running.Add(1) == int64(s.setup.slots) {
			fmt.Println("holding")
		}
		<-ctx.Done()
		return ctx.Err()
	})
}
