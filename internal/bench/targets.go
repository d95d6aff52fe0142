package main

import (
	"fmt"
	"math"
	"strings"
)

// target is a promise about ours, as a ratio within a round: of ours to what it is compared with.
type target struct {
	text    string
	metric  string
	to      func(get func(peer string) float64) float64
	atLeast bool // else at most
	bound   float64
}

func toPeer(name string) func(func(string) float64) float64 {
	return func(get func(string) float64) float64 { return get(name) }
}

// plain is for a figure that is compared with nothing.
func plain(func(string) float64) float64 { return 1 }

// floorAnd is a fixed part and so many times the floor's.
func floorAnd(fixed, times float64) func(func(string) float64) float64 {
	return func(get func(string) float64) float64 { return fixed + times*get("floor") }
}

var targets = []target{
	{"drain, 8 slots: at least 8 × asynq", "drain8.rate", toPeer("asynq"), true, 8},
	{"drain, 64 slots: at least 15 × asynq", "drain64.rate", toPeer("asynq"), true, 15},
	{"drain, 64 slots: at least 0.80 × floor", "drain64.rate", toPeer("floor"), true, 0.80},
	{"Redis commands a job, 64 slots: at most 0.15", "drain64.commands", plain, false, 0.15},
	{"round trips a job, 64 slots: at most 0.06", "drain64.trips", plain, false, 0.06},
	{"worker CPU, 64 slots: at most 1.8 × floor", "drain64.worker_cpu", toPeer("floor"), false, 1.8},
	{"server CPU, 64 slots: at most 1.4 × floor", "drain64.server_cpu", toPeer("floor"), false, 1.4},
	{"enqueue one by one: at least 0.95 × floor", "enqueue.rate", toPeer("floor"), true, 0.95},
	{"enqueue in bulk: at least 0.70 × floor", "bulk.rate", toPeer("floor"), true, 0.70},
	{"enqueue in bulk: at least 6 × River", "bulk.rate", toPeer("river"), true, 6},
	{"pickup, p50: at most 1.3 × floor", "pickup.p50", toPeer("floor"), false, 1.3},
	{"pickup, p99: at most 2 × floor", "pickup.p99", toPeer("floor"), false, 2},
	{"a queued job's bytes: at most 1.35 × floor", "memory.bytes", toPeer("floor"), false, 1.35},
	{"a delayed job's bytes: at most 1.3 × floor", "delayed.bytes", toPeer("floor"), false, 1.3},
	{"due at once, last one late: at most 1.0 × (1 s + 2 floor)", "due.late", floorAnd(1000, 2), false, 1},
	{"fail once: at most 1.0 × (1 s + 3 floor)", "failonce.seconds", floorAnd(1, 3), false, 1},
	{"dead-lettered jobs/s: at least 6 × asynq", "dead.rate", toPeer("asynq"), true, 6},
	{"100 jobs a transaction, committed and worked: at least 3 × River", "transact100.rate", toPeer("river"), true, 3},
	{"COMMIT to handler, p50: at most 10 ms", "commit.p50", plain, false, 10},
	{"SIGKILL, last of 8 again: at most 15 s", "kill.seconds", plain, false, 15},
}

// ourName is who of us takes part in a metric.
func ourName(metric string) string {
	if name, _, _ := strings.Cut(metric, "."); outboxEntry.can(name) {
		return outboxEntry.name
	}
	return oursEntry.name
}

// verdict is a target held against the results.
type verdict struct {
	Target              string
	Median, Least, Most float64 // of the rounds' ratios
	Bound               float64
	AtLeast             bool
	Met                 bool
}

// verdicts leaves out what was not measured.
func (rs results) verdicts(rounds int) []verdict {
	var list []verdict
	for _, t := range targets {
		ratios := make([]float64, rounds)
		for i := range ratios {
			get := func(peer string) float64 { return rs.at(peer, t.metric, i) }
			ratios[i] = get(ourName(t.metric)) / t.to(get)
		}
		v := verdict{Target: t.text, Bound: t.bound, AtLeast: t.atLeast}
		if v.Median, v.Least, v.Most = middle(ratios); math.IsNaN(v.Median) {
			continue
		}
		v.Met = v.Median <= t.bound
		if t.atLeast {
			v.Met = v.Median >= t.bound
		}
		list = append(list, v)
	}
	return list
}

// targetsTable is Markdown.
func targetsTable(list []verdict) string {
	var b strings.Builder
	b.WriteString("| target | measured (min–max) | |\n|---|---|---|\n")
	for _, v := range list {
		fmt.Fprintf(&b, "| %s | %.3g (%.3g–%.3g) | %s |\n", v.Target, v.Median, v.Least, v.Most, met(v.Met))
	}
	return b.String()
}
