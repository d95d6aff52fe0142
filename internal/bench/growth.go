package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// growthCase is the drain of ours beside something big.
type growthCase struct {
	name    string
	measure string // the slots and what is big
	base    string // the case that its cost is compared to
	big     string
	count   int // of what is big, times -big
}

var growthCases = []growthCase{
	{name: "64 slots, nothing else there", measure: "growth"},
	{name: "1,000,000 jobs waiting", measure: "growth", big: "waiting", count: 1_000_000, base: "64 slots, nothing else there"},
	{name: "1,000,000 jobs delayed", measure: "growth", big: "delayed", count: 1_000_000, base: "64 slots, nothing else there"},
	{name: "100,000 dead letters", measure: "growth", big: "dead", count: 100_000, base: "64 slots, nothing else there"},
	{name: "one worker of 8 slots", measure: "growth8"},
	{name: "50 workers of 8 slots", measure: "growth50", base: "one worker of 8 slots"},
}

const growthLimit, idleLimit = 1.3, 5.0

// grown drains beside what the spec says is big, and stops where as many jobs have run as in the small case: with a
// million waiting, the rest stays. The clock starts when every worker is up and has its slots full of jobs that wait at
// a gate: starting 50 workers is not the cost of a job.
func grown(ctx context.Context, s *sample) (figures, error) {
	if err := s.grow(ctx); err != nil {
		return nil, err
	}
	workers := 1
	if s.Measure == "growth50" {
		workers = 50
	}
	done, gate, here := newTally(s.Sizes.Jobs), make(chan struct{}), newTally(min(workers*s.setup.slots, s.Sizes.Jobs))
	handle := func(i int) error {
		if here.n.Load() < here.want {
			_ = here.handle(i)
		}
		<-gate
		return done.handle(i)
	}
	if err := s.hire(ctx, workers, handle); err != nil {
		return nil, err
	}
	if err := here.wait(ctx); err != nil {
		return nil, err
	}
	runtime.GC()
	before, err := read(ctx, s.server, s.setup.trips)
	if err != nil {
		return nil, err
	}
	close(gate)
	if err := done.wait(ctx); err != nil {
		return nil, err
	}
	after, err := read(ctx, s.server, s.setup.trips)
	f := after.since(before).perJob("growth", float64(done.n.Load()), false)
	f["growth.rate"] = done.rate(done.last)
	return f, err
}

// hire starts workers, each with a client of its own. One that ends early leaves the tally short.
func (s *sample) hire(ctx context.Context, workers int, handle handler) error {
	for range workers {
		p, err := s.entry.open(ctx, s.setup)
		if err != nil {
			return err
		}
		go func() { _ = p.work(ctx, s.setup.slots, handle) }()
	}
	return nil
}

// grow makes what is big, and the jobs that are drained: before it what waits, since a stream is worked off in order.
func (s *sample) grow(ctx context.Context) error {
	if err := s.fill(ctx, time.Time{}, s.Sizes.Jobs); err != nil {
		return err
	}
	switch {
	case s.Sizes.Extra == 0:
		return nil
	case s.Big == "waiting":
		return s.entry.fill(ctx, s.peer, time.Time{}, s.Sizes.Jobs, s.Sizes.Extra)
	case s.Big == "delayed":
		return s.entry.fill(ctx, s.peer, time.Now().Add(24*time.Hour), s.Sizes.Jobs, s.Sizes.Extra)
	}
	return s.bury(ctx, s.Sizes.Extra)
}

// bury writes dead letters as a worker would have.
func (s *sample) bury(ctx context.Context, n int) error {
	rdb := s.server.(*redisServer).rdb
	for from := 0; from < n; from += 1000 {
		pipe := rdb.Pipeline()
		for i := range min(1000, n-from) {
			words := []any{"XADD", "jobs:dead", "*"}
			for _, w := range floorFields(newOrder(from + i)) {
				words = append(words, w)
			}
			pipe.Do(ctx, append(words, "error", errFailed.Error(), "traceback", "")...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// idle is what a worker asks of Redis, and what it uses itself, while there is nothing to do.
func idle(ctx context.Context, s *sample) (figures, error) {
	go func() { _ = s.peer.work(ctx, s.setup.slots, func(int) error { return nil }) }() // ends with this process
	time.Sleep(2 * time.Second)                                                         // it starts
	rs := s.server.(*redisServer)
	callsBefore, err := rs.byCommand(ctx)
	if err != nil {
		return nil, err
	}
	before, err := read(ctx, rs, s.setup.trips)
	if err != nil {
		return nil, err
	}
	time.Sleep(s.Sizes.Patience)
	after, err := read(ctx, rs, s.setup.trips)
	if err != nil {
		return nil, err
	}
	calls, err := rs.byCommand(ctx)
	used, seconds := after.since(before), s.Sizes.Patience.Seconds()
	f := figures{
		"idle.commands":   float64(used.commands) / seconds,
		"idle.trips":      float64(used.trips) / seconds,
		"idle.worker_cpu": used.worker.Seconds() / seconds * 1000,
		"idle.server_cpu": used.server.Seconds() / seconds * 1000,
	}
	for command, n := range calls {
		if n > callsBefore[command] && command != "info" {
			f["idle "+command] = float64(n-callsBefore[command]) / seconds
		}
	}
	return f, err
}

// growth measures every case in every round.
func (o options) growth(ctx context.Context, at addresses) (results, error) {
	rs := results{}
	failed := 0
	for round := range o.rounds {
		for _, c := range growthCases {
			s := spec{Measure: c.measure, Peer: "ours", Big: c.big, Sizes: o.sizes, At: at}
			s.Sizes.Extra = int(float64(c.count) * o.big)
			failed += rs.add(ctx, o, round, c.name, s)
		}
		s := spec{Measure: "idle", Peer: "ours", Sizes: o.sizes, At: at}
		s.Sizes.Patience = o.idle
		failed += rs.add(ctx, o, round, "idle", s)
	}
	return rs, failures(failed)
}

// cost is the CPU of worker and server for a job, in microseconds.
func (rs results) cost(name string, round int) float64 {
	return 1000 * (rs.at(name, "growth.worker_cpu", round) + rs.at(name, "growth.server_cpu", round))
}

// growthRow is a case's figures: medians, and those of the ratios within a round.
type growthRow struct {
	Case                           string
	Rate, Worker, Server, Commands float64 // jobs/s; µs a job; commands a job
	Ratio, RatioLeast, RatioMost   float64 // cost, relative to the base's
	Base                           string  `json:",omitempty"`
}

func (rs results) growthRows(rounds int) []growthRow {
	var rows []growthRow
	for _, c := range growthCases {
		row := growthRow{
			Case: c.name, Base: c.base, Rate: rs.median(c.name, "growth.rate"), Commands: rs.median(c.name, "growth.commands"),
			Worker: 1000 * rs.median(c.name, "growth.worker_cpu"), Server: 1000 * rs.median(c.name, "growth.server_cpu"),
		}
		if c.base != "" {
			ratios := make([]float64, rounds)
			for i := range ratios {
				ratios[i] = rs.cost(c.name, i) / rs.cost(c.base, i)
			}
			row.Ratio, row.RatioLeast, row.RatioMost = middle(ratios)
		}
		rows = append(rows, row)
	}
	return rows
}

// growthTable is Markdown.
func (rs results) growthTable(rounds int) string {
	var b strings.Builder
	b.WriteString("| the same drain | jobs/s | worker CPU, µs a job | server CPU, µs a job | commands a job | cost, relative (min–max) | |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rs.growthRows(rounds) {
		ratio, verdict := "1", ""
		if r.Base != "" {
			ratio = fmt.Sprintf("%.2f (%.2f–%.2f)", r.Ratio, r.RatioLeast, r.RatioMost)
			verdict = met(r.Ratio <= growthLimit)
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f | %.2f | %.3f | %s | %s |\n", r.Case, short(r.Rate), r.Worker, r.Server, r.Commands, ratio, verdict)
	}
	commands := rs.median("idle", "idle.commands")
	fmt.Fprintf(&b, "\nAn idle worker: %.2f commands and %.2f round trips a second (at most %g: %s), %.2f ms of its own CPU and %.2f ms of Redis's a second.\n",
		commands, rs.median("idle", "idle.trips"), idleLimit, met(commands <= idleLimit), rs.median("idle", "idle.worker_cpu"), rs.median("idle", "idle.server_cpu"))
	b.WriteString("By command, a second: " + strings.Join(rs.idleCommands(), ", ") + ".\n")
	return b.String()
}

func (rs results) idleCommands() (list []string) {
	for _, metric := range slices.Sorted(maps.Keys(rs["idle"])) {
		if command, ok := strings.CutPrefix(metric, "idle "); ok {
			list = append(list, fmt.Sprintf("%s %.2f", command, rs.median("idle", metric)))
		}
	}
	return list
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "**missed**"
}
