package crashes_test

import (
	"testing"

	"github.com/stagedoor/jobs/internal/crashes"
)

// state is one job, in each of these places.
func state(fields map[string]string, places ...string) *crashes.State {
	s := &crashes.State{Places: map[string][]crashes.Place{}, Pending: map[string]crashes.Holding{}}
	for _, where := range places {
		s.Places["j"] = append(s.Places["j"], crashes.Place{Where: where, Fields: fields})
	}
	return s
}

// held is a job that is pending.
func held(owner string, deliveries int64, attempts string) *crashes.State {
	s := state(map[string]string{"attempts": attempts}, crashes.Stream)
	s.Pending["j"] = crashes.Holding{Owner: owner, Deliveries: deliveries}
	return s
}

func letter(attempts, err, traceback string) *crashes.State {
	return state(map[string]string{"attempts": attempts, "error": err, "traceback": traceback}, crashes.Dead)
}

// TestJudge has a job "j", its runs, and what was there when the victim was dead, and at the end.
func TestJudge(t *testing.T) {
	t.Parallel()
	victim := func(attempts int, end crashes.End) crashes.Run {
		return crashes.Run{Attempts: attempts, End: end, Victim: true}
	}
	other := func(attempts int, end crashes.End) crashes.Run { return crashes.Run{Attempts: attempts, End: end} }
	nowhere := state(nil)
	ready := state(nil, crashes.Stream)
	tests := map[string]struct {
		job      crashes.Job
		runs     []crashes.Run
		cut, end *crashes.State
		want     crashes.Verdict
	}{
		"done by others": {runs: []crashes.Run{other(0, crashes.Finished)}, cut: ready, end: nowhere},
		"done by the victim, and again": {
			runs: []crashes.Run{victim(0, crashes.Finished), other(0, crashes.Finished)}, cut: nowhere, end: nowhere,
			want: crashes.Verdict{Doubled: 1},
		},
		"begun by the victim, and again": {
			runs: []crashes.Run{victim(0, crashes.Open), other(0, crashes.Finished)}, cut: held("victim-1", 1, "0"), end: nowhere,
		},
		"begun by the victim, and never again": {
			runs: []crashes.Run{victim(0, crashes.Open)}, cut: held("victim-1", 1, "0"), end: nowhere,
			want: crashes.Verdict{Lost: 1},
		},
		"never run": {cut: ready, end: nowhere, want: crashes.Verdict{Lost: 1}},
		"run twice by others": {
			runs: []crashes.Run{other(0, crashes.Finished), other(0, crashes.Finished)}, cut: ready, end: nowhere,
			want: crashes.Verdict{Doubled: 1},
		},
		"retried": {
			runs: []crashes.Run{victim(0, crashes.Retried), other(1, crashes.Finished)}, cut: state(nil, crashes.Delayed), end: nowhere,
		},
		"retried, and the retry fetched and lost": {
			runs: []crashes.Run{victim(0, crashes.Retried), other(1, crashes.Finished)}, cut: held("victim-1", 1, "1"), end: nowhere,
		},
		"in two places": {cut: state(nil, crashes.Stream, crashes.Delayed), end: nowhere, want: crashes.Verdict{Doubled: 1}},
		"done, and still there": {
			runs: []crashes.Run{other(0, crashes.Finished)}, cut: ready, end: ready, want: crashes.Verdict{Doubled: 1},
		},
		"dead as it should be": {
			runs: []crashes.Run{other(0, crashes.Retried), other(1, crashes.Expired)}, cut: ready, end: letter("2", "boom", "main.go"),
		},
		"dead with too few attempts": {
			runs: []crashes.Run{other(0, crashes.Retried), other(1, crashes.Expired)}, cut: ready, end: letter("1", "boom", "main.go"),
			want: crashes.Verdict{Wrong: 1},
		},
		"dead and innocent": {cut: ready, end: letter("3", "poison: 3 deliveries", ""), want: crashes.Verdict{Wrong: 1}},
		"poison": {
			job: crashes.Job{Deliveries: 2}, runs: []crashes.Run{victim(0, crashes.Open)},
			cut: held("victim-1", 3, "0"), end: letter("3", "poison: 3 deliveries", ""),
		},
		"a suspect that died under a worker, and was run again": {
			job: crashes.Job{Deliveries: 2}, runs: []crashes.Run{victim(0, crashes.Open), other(0, crashes.Finished)},
			cut: held("victim-1", 3, "0"), end: nowhere, want: crashes.Verdict{Doubled: 1},
		},
		"uncertain, and not in": {job: crashes.Job{Unsure: true}, cut: nowhere, end: nowhere},
		"refused, and in": {
			job: crashes.Job{Absent: true}, runs: []crashes.Run{other(0, crashes.Finished)}, cut: ready, end: nowhere,
			want: crashes.Verdict{Doubled: 1},
		},
		"left alone": {job: crashes.Job{Stays: crashes.Dead}, cut: letter("2", "boom", "x"), end: letter("2", "boom", "x")},
		"to be left alone, and gone": {
			job: crashes.Job{Stays: crashes.Dead}, cut: letter("2", "boom", "x"), end: nowhere, want: crashes.Verdict{Lost: 1},
		},
		"unreadable, and run": {
			job: crashes.Job{Buried: crashes.Undecodable}, runs: []crashes.Run{other(0, crashes.Finished)}, cut: ready, end: nowhere,
			want: crashes.Verdict{Doubled: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h crashes.History
			for _, run := range test.runs {
				run.Job = "j"
				h.Begin(run)
			}
			test.job.ID = "j"
			v := crashes.Case{Jobs: []crashes.Job{test.job}, History: &h, Cut: test.cut, End: test.end, Victim: "victim"}.Judge()
			if v.Lost != test.want.Lost || v.Doubled != test.want.Doubled || v.Wrong != test.want.Wrong {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestJudgeTicks(t *testing.T) {
	t.Parallel()
	const tick = "s@2026-11-30T03:00:00Z"
	for n, want := range []crashes.Verdict{{Lost: 1}, {}, {Doubled: 1}} {
		var h crashes.History
		for i := range n {
			h.Begin(crashes.Run{Job: string(rune('a' + i)), Tick: tick, End: crashes.Finished})
		}
		nowhere := state(nil)
		v := crashes.Case{Ticks: []string{tick}, History: &h, Cut: nowhere, End: nowhere, Victim: "victim"}.Judge()
		if v.Jobs != n || v.Lost != want.Lost || v.Doubled != want.Doubled {
			t.Errorf("%d jobs of one tick: %+v", n, v)
		}
	}
}
