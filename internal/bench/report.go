package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
)

// machineAbout is what figures depend on.
func machineAbout() string {
	about := fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		about += ", load before " + strings.Fields(string(load))[0]
	}
	return about
}

// report prints the tables, and writes the files that were asked for.
func (o options) report(rs results, chosen []entry, machine string) error {
	doc := map[string]any{"machine": machine, "rounds": o.rounds, "sizes": o.sizes, "figures": rs.numbers(), "medians": rs.medians()}
	text := o.comparison(rs, chosen)
	if o.growing {
		text = rs.growthTable(o.rounds)
		doc["growth"] = finite(rs.growthRows(o.rounds))
	}
	doc["targets"] = rs.verdicts(o.rounds)
	text = fmt.Sprintf("%s; medians of %d rounds, least and most in brackets.\n\n%s", machine, o.rounds, text)
	if o.growing && o.big != 1 {
		text = fmt.Sprintf("What is big is multiplied by %g.\n\n%s", o.big, text)
	}
	fmt.Print(text)
	return errors.Join(writeFile(o.markdown, []byte(text)), o.draw(rs), o.writeJSON(doc))
}

// comparison is Markdown: the figures, the ratios, the targets, and who is who.
func (o options) comparison(rs results, chosen []entry) string {
	var peers, about []string
	for _, e := range chosen {
		peers = append(peers, e.name)
		about = append(about, fmt.Sprintf("- %s: %s\n", e.name, e.about))
	}
	return rs.figuresTable(peers) + "\nOurs divided by the peer's, within a round:\n\n" + rs.ratiosTable(peers, o.rounds) +
		"\n" + targetsTable(rs.verdicts(o.rounds)) + "\n" + strings.Join(about, "")
}

func (o options) draw(rs results) error {
	if !o.growing {
		return nil
	}
	return writeFile(o.svg, rs.growthPicture(o.rounds))
}

func (o options) writeJSON(doc any) error {
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(o.json, append(b, '\n'))
}

// numbers are the results with null for what is missing: JSON has no NaN.
func (rs results) numbers() map[string]map[string][]*float64 {
	all := map[string]map[string][]*float64{}
	for name, byMetric := range rs {
		all[name] = map[string][]*float64{}
		for metric, values := range byMetric {
			for _, v := range values {
				all[name][metric] = append(all[name][metric], orNull(v))
			}
		}
	}
	return all
}

func orNull(f float64) *float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &f
}

func (rs results) medians() map[string]map[string]*float64 {
	all := map[string]map[string]*float64{}
	for name, byMetric := range rs {
		all[name] = map[string]*float64{}
		for metric := range byMetric {
			all[name][metric] = orNull(rs.median(name, metric))
		}
	}
	return all
}

// finite leaves out the rows that were not measured.
func finite(rows []growthRow) (kept []growthRow) {
	for _, r := range rows {
		if !math.IsNaN(r.Rate + r.Worker + r.Server + r.Commands + r.Ratio) {
			kept = append(kept, r)
		}
	}
	return kept
}

// writeFile writes nothing where no file was asked for.
func writeFile(path string, b []byte) error {
	if path == "" {
		return nil
	}
	return os.WriteFile(path, b, 0o644)
}
