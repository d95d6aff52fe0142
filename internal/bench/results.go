package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// results are figures by peer (or case) and metric, one for each round; NaN where there is none.
type results map[string]map[string][]float64

// add takes a sample and keeps its figures as those of the round. It returns how many samples failed: 0 or 1.
func (rs results) add(ctx context.Context, o options, round int, name string, s spec) (failed int) {
	fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round+1, o.rounds, s.Measure, name)
	f, err := s.apart(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "  ", err)
		failed = 1
	}
	if rs[name] == nil {
		rs[name] = map[string][]float64{}
	}
	for metric, value := range f {
		rs.row(name, metric, o.rounds)[round] = value
	}
	return failed
}

func failures(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d samples failed, see above", n)
}

func (rs results) row(name, metric string, rounds int) []float64 {
	if rs[name][metric] == nil {
		rs[name][metric] = slices.Repeat([]float64{math.NaN()}, rounds)
	}
	return rs[name][metric]
}

func (rs results) at(name, metric string, round int) float64 {
	row := rs[name][metric]
	if round >= len(row) {
		return math.NaN()
	}
	return row[round]
}

func (rs results) median(name, metric string) float64 {
	m, _, _ := middle(rs[name][metric])
	return m
}

// middle is the median of what is there, with the least and the most; NaN where nothing is.
func middle(values []float64) (median, least, most float64) {
	v := slices.DeleteFunc(slices.Clone(values), func(f float64) bool { return math.IsNaN(f) || math.IsInf(f, 0) })
	if len(v) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(v)
	half := len(v) / 2
	median = v[half]
	if len(v)%2 == 0 {
		median = (v[half-1] + v[half]) / 2
	}
	return median, v[0], v[len(v)-1]
}

// metrics are what the tables have, in their order.
var metrics = []struct{ name, title string }{
	{"drain8.rate", "drain, 8 slots, jobs/s"},
	{"drain64.rate", "drain, 64 slots, jobs/s"},
	{"drain8.commands", "Redis commands a job, 8 slots"},
	{"drain64.commands", "Redis commands a job, 64 slots"},
	{"drain8.trips", "round trips a job, 8 slots"},
	{"drain64.trips", "round trips a job, 64 slots"},
	{"drain8.worker_cpu", "worker CPU, s per 1,000 jobs, 8 slots"},
	{"drain64.worker_cpu", "worker CPU, s per 1,000 jobs, 64 slots"},
	{"drain8.server_cpu", "server CPU, s per 1,000 jobs, 8 slots"},
	{"drain64.server_cpu", "server CPU, s per 1,000 jobs, 64 slots"},
	{"enqueue.rate", "enqueue one by one, jobs/s"},
	{"bulk.rate", "enqueue 1,000 a call, jobs/s"},
	{"pickup.p50", "pickup on an idle queue, p50, ms"},
	{"pickup.p99", "pickup on an idle queue, p99, ms"},
	{"memory.bytes", "server bytes a queued job"},
	{"delayed.bytes", "server bytes a delayed job"},
	{"due.late", "jobs due at once: last one late by, ms"},
	{"failonce.seconds", "jobs that fail once, s"},
	{"dead.rate", "dead-lettered jobs/s"},
	{"transact1.rate", "in a transaction each and worked, jobs/s"},
	{"transact100.rate", "100 in a transaction and worked, jobs/s"},
	{"commit.p50", "COMMIT to handler, idle, p50, ms"},
	{"commit.p99", "COMMIT to handler, idle, p99, ms"},
	{"kill.seconds", "SIGKILL: last of 8 runs again after, s"},
}

// table is Markdown: a row a metric, a column a peer.
func (rs results) table(peers []string, cell func(peer, metric string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(peers, " | "), strings.Repeat("---|", len(peers)))
	for _, m := range metrics {
		cells, any := make([]string, len(peers)), false
		for i, p := range peers {
			cells[i] = cell(p, m.name)
			any = any || cells[i] != "–"
		}
		if any {
			fmt.Fprintf(&b, "| %s | %s |\n", m.title, strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// figuresTable has the median of the rounds, and the least and the most.
func (rs results) figuresTable(peers []string) string {
	return rs.table(peers, func(peer, metric string) string {
		return spread(rs[peer][metric], short)
	})
}

// ratiosTable has ours divided by the peer's: the median of the rounds' ratios, and the least and the most.
func (rs results) ratiosTable(peers []string, rounds int) string {
	others := slices.DeleteFunc(slices.Clone(peers), func(p string) bool { return p == oursEntry.name || p == outboxEntry.name })
	return rs.table(others, func(peer, metric string) string {
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = rs.at(ourName(metric), metric, i) / rs.at(peer, metric, i)
		}
		return spread(ratios, func(f float64) string { return fmt.Sprintf("%.3g×", f) })
	})
}

func spread(values []float64, format func(float64) string) string {
	median, least, most := middle(values)
	switch {
	case math.IsNaN(median):
		return "–"
	case least == most:
		return format(median)
	}
	return fmt.Sprintf("%s (%s–%s)", format(median), format(least), format(most))
}

// short is a number with three digits that count.
func short(f float64) string {
	switch {
	case math.IsNaN(f):
		return "–"
	case f >= 10_000:
		return fmt.Sprintf("%.0fk", f/1000)
	case f >= 1000:
		return fmt.Sprintf("%.1fk", f/1000)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.3g", f)
}
