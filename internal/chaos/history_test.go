package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// at is so many seconds after noon.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// told is a history told step by step. Its lease is two seconds.
type told struct {
	History
	runs int
}

func tell() *told {
	return &told{History: History{Lease: 2 * time.Second, Rest: Rest{Waiting: map[string]bool{}, Due: map[Tick]bool{}}}}
}

// send sends a job at noon. Its ID is its kind and a number.
func (h *told) send(kind string, args Args) string {
	args.Fixed = max(args.Fixed, 1)
	id := fmt.Sprintf("%s-%d", kind, len(h.Sent))
	h.Sent = append(h.Sent, Sent{ID: id, Script: Script{Kind: kind, Args: args}, At: noon, Acked: noon, Certain: true})
	return id
}

// ran tells of a run. With ended 0 it never ended.
func (h *told) ran(worker, id string, s slot, began, ended float64, o Outcome) {
	h.runs++
	kind, _, _ := strings.Cut(id, "-")
	r := Run{
		Worker: worker, Number: h.runs, Job: id, Kind: kind, Generation: s.generation, Attempts: s.attempts,
		Began: at(began),
	}
	if ended != 0 {
		r.Ended, r.Outcome = at(ended), o
	}
	h.Runs = append(h.Runs, r)
}

func (h *told) trouble(s Sort, worker string, from, to float64) {
	h.Troubles = append(h.Troubles, Trouble{s, worker, at(from), at(to)})
}

// away tells of an outage. For the first and last tenth of a second Redis may still have answered, or again.
func (h *told) away(from, to float64) {
	h.trouble(Outage, "", from, to)
	h.trouble(Gone, "", from+0.1, to-0.1)
}

func (h *told) died(id string, generation, attempts int, reason jobs.Reason, when float64) {
	kind, _, _ := strings.Cut(id, "-")
	h.Rest.Letters = append(h.Rest.Letters, Letter{id, kind, generation, attempts, reason, at(when)})
}

func (h *told) check() Report {
	slices.SortStableFunc(h.Runs, func(a, b Run) int { return a.Began.Compare(b.Began) })
	return h.Check()
}

// figures are the numbers of findings of each sort.
type figures struct{ lost, doubles, innocents, ticks, keys, wrong, struck, byRedis int }

func (r Report) figures() figures {
	return figures{len(r.Lost), len(r.Doubles), len(r.Innocents), len(r.Ticks), len(r.Keys), len(r.Wrong), len(r.Struck), len(r.LostByRedis)}
}

var first = slot{0, 0}

// steady is a steady job that was done in its one run, from 1 to 2 seconds after noon.
func (h *told) steady() string {
	id := h.send(Steady, Args{})
	h.ran("a", id, first, 1, 2, Done)
	return id
}

// failing is a job that failed as often as it may and died.
func (h *told) failing() string {
	id := h.send(Failing, Args{})
	for n := range Retries + 1 {
		h.ran("a", id, slot{0, n}, float64(n+1), float64(n)+1.5, Failed)
	}
	h.died(id, 0, Retries+1, jobs.ReasonFailed, Retries+2)
	return id
}

// deadly is a job that killed three workers, and ran alone on the third.
func (h *told) deadly() string {
	id := h.send(Deadly, Args{})
	for n, worker := range []string{"k1", "k2", "k3"} {
		began := float64(3*n + 1)
		h.ran(worker, id, first, began, began+0.1, Suicide)
		h.trouble(Crash, worker, began+0.1, began+0.2)
	}
	h.died(id, 0, Deliveries, jobs.ReasonPoison, 20)
	return id
}

func (h *told) tick(second int64, id string) {
	h.ran("a", id, first, float64(second), float64(second)+0.1, Done)
	r := &h.Runs[len(h.Runs)-1]
	r.Kind, r.Tick = EveryOne, noon.Unix()+second
}

func (h *told) remember(second int64) {
	h.Rest.Ticks = append(h.Rest.Ticks, Tick{EveryOne, noon.Unix() + second})
}

// wantFigures runs each history and compares what is found.
func wantFigures(t *testing.T, cases []figureCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := tell()
			c.tell(h)
			report := h.check()
			if got := report.figures(); got != c.want {
				t.Errorf("found %+v, want %+v\n%s", got, c.want, strings.Join(report.Findings(), "\n"))
			}
			if clean := c.want == (figures{struck: c.want.struck, byRedis: c.want.byRedis}); report.Clean() != clean {
				t.Errorf("Clean is %t", report.Clean())
			}
		})
	}
}

type figureCase struct {
	name string
	tell func(h *told)
	want figures
}

// What is in order is not found fault with.
func TestHistoryInOrder(t *testing.T) {
	t.Parallel()
	wantFigures(t, []figureCase{
		{"done", func(h *told) { h.steady() }, figures{}},
		{"failed until it died", func(h *told) { h.failing() }, figures{}},
		{"killed three workers", func(h *told) { h.deadly() }, figures{}},
		{"undecodable", func(h *told) { h.died(h.send(Garbled, Args{}), 0, 0, jobs.ReasonUndecodable, 1) }, figures{}},
		{"flaky", func(h *told) {
			id := h.send(Flaky, Args{Times: 1})
			h.ran("a", id, first, 1, 2, Failed)
			h.ran("b", id, slot{0, 1}, 3, 4, Done)
		}, figures{}},
		{"snoozed", func(h *told) {
			id := h.send(Sleepy, Args{Times: 1})
			h.ran("a", id, first, 1, 2, Snoozed)
			h.ran("b", id, first, 3, 4, Done)
		}, figures{}},
		{"replayed and done", func(h *told) {
			id := h.failing()
			h.Replays = []Replay{{Letter: h.Rest.Letters[0], Given: 1, Acked: at(9), Certain: true}}
			h.Rest.Letters = nil
			h.ran("a", id, slot{1, 0}, 10, 11, Done)
		}, figures{}},
		{"perhaps sent, and never in", func(h *told) { h.send(Steady, Args{}); h.Sent[0].Certain = false }, figures{}},
		{"perhaps sent, and in", func(h *told) { h.steady(); h.Sent[0].Certain = false }, figures{}},
		{"ticks", func(h *told) { h.tick(1, "x"); h.remember(1); h.tick(2, "y"); h.remember(2) }, figures{}},
		{"a tick that waits", func(h *told) { h.remember(1); h.Rest.Due[h.Rest.Ticks[0]] = true }, figures{}},
		{"a tick that waits again", func(h *told) {
			h.remember(1)
			h.tick(1, "x")
			h.Runs[0].Outcome = Released
			h.Rest.Waiting["x"] = true
		}, figures{}},
	})
}

// A run beyond the first needs a recorded reason.
func TestHistoryDoublesExplained(t *testing.T) {
	t.Parallel()
	// Each tells of the first run, from 1 on, of worker a. The second is from 6 to 7.
	again := func(ended float64, o Outcome, more func(h *told)) func(h *told) {
		return func(h *told) {
			id := h.send(Steady, Args{})
			h.ran("a", id, first, 1, ended, o)
			h.ran("b", id, first, 6, 7, Done)
			if more != nil {
				more(h)
			}
		}
	}
	trouble := func(s Sort, worker string, from, to float64) func(h *told) {
		return func(h *told) { h.trouble(s, worker, from, to) }
	}
	double := figures{doubles: 1}
	wantFigures(t, []figureCase{
		{"no reason", again(2, Done, nil), double},
		{"no end and no reason", again(0, "", nil), double},
		{"a crash during the run", again(0, "", trouble(Crash, "a", 3, 3)), figures{}},
		{"a crash just after it", again(2, Done, trouble(Crash, "a", 2.5, 2.6)), figures{}},
		{"a crash long after it", again(2, Done, trouble(Crash, "a", 4, 4)), double},
		{"a crash long after it, its outcome held up", again(2, Done, func(h *told) {
			h.trouble(Crash, "a", 4, 4)
			h.trouble(Stopped, "a", 2.5, 3.4)
		}), figures{}},
		{"a crash after the second began", again(0, "", trouble(Crash, "a", 6.5, 6.5)), double},
		{"another worker's crash", again(0, "", trouble(Crash, "c", 3, 3)), double},
		{"left without an end", again(0, "", trouble(Left, "a", 2, 3)), figures{}},
		{"given back at a shutdown", again(2.5, Released, trouble(Left, "a", 2, 3)), figures{}},
		{"done during a shutdown", again(2.5, Done, trouble(Left, "a", 2, 3)), double},
		{"given back without a shutdown", again(2.5, Released, nil), double},
		{"stopped for a lease", again(5, Done, trouble(Stopped, "a", 2, 4)), figures{}},
		{"stopped for almost a lease", again(5, Done, trouble(Stopped, "a", 2, 3.7)), figures{}},
		{"stopped for three quarters", again(5, Done, trouble(Stopped, "a", 2, 3.5)), double},
		{"stopped for half a lease", again(5, Done, trouble(Stopped, "a", 2, 3)), double},
		{"two stops, renewed between", again(5, Done, func(h *told) {
			h.trouble(Stopped, "a", 1, 2)
			h.trouble(Stopped, "a", 3, 4)
		}), double},
		{"two stops, one after the other", again(5, Done, func(h *told) {
			h.trouble(Stopped, "a", 1, 2)
			h.trouble(Hung, "a", 2.2, 3)
		}), figures{}},
		{"stopped for a lease before it", again(5, Done, trouble(Stopped, "a", -3, 0.5)), double},
		{"stopped for a lease after the second began", again(9, Done, trouble(Stopped, "a", 6, 8)), double},
		{"a connection cut", again(5, Done, trouble(Cutoff, "a", 2, 2)), double},
		{"cut off for a lease", again(5, Done, trouble(Cutoff, "a", 2, 4)), figures{}},
		{"Redis away for a lease", again(5, Done, func(h *told) { h.away(2, 4) }), double},
		{"Redis away for little more than half a lease, and so the worker", again(5, Done, func(h *told) {
			h.away(2, 3.1)
			h.trouble(Stopped, "a", 2.5, 4)
		}), figures{}},
		{"Redis away, and who took over had read its last word late", again(5, Done, func(h *told) {
			h.away(2, 3.6)
			h.trouble(Stopped, "b", 1.8, 2.6)
			h.trouble(Stopped, "a", 2.5, 4)
		}), figures{}},
		{"Redis away, and who took over had read its last word at once", again(5, Done, func(h *told) {
			h.away(2, 3.6)
			h.trouble(Stopped, "a", 2.5, 4)
		}), double},
		{"Redis away, and the worker for a lease after it", again(5, Done, func(h *told) {
			h.away(1.4, 2.6)
			h.trouble(Stopped, "a", 2, 4.5)
		}), figures{}},
		{"Redis away, and the worker for less than a lease after it", again(5, Done, func(h *told) {
			h.away(0.9, 2.6)
			h.trouble(Stopped, "a", 2, 4.2)
		}), double},
		{"another one cut off", again(5, Done, trouble(Cutoff, "c", 2, 4)), double},
		{"the second begun late", again(2, Done, trouble(Stopped, "b", 1.5, 5.9)), figures{}},
		{"the second begun long after", again(2, Done, trouble(Stopped, "b", 1.5, 4)), double},
		{"given before a stop, begun after it, and taken over", func(h *told) {
			id := h.send(Steady, Args{})
			h.trouble(Stopped, "a", 1, 2.8)
			h.ran("a", id, first, 2.9, 4, Done)
			h.ran("b", id, first, 3.2, 4, Done)
		}, figures{}},
		{"begun long after a stop", func(h *told) {
			id := h.send(Steady, Args{})
			h.trouble(Stopped, "a", -0.3, 1.5)
			h.ran("a", id, first, 2.9, 4, Done)
			h.ran("b", id, first, 3.2, 4, Done)
		}, double},
		{"one crash, two more runs", again(0, "", func(h *told) {
			h.trouble(Crash, "a", 3, 3)
			h.ran("c", h.Sent[0].ID, first, 7, 8, Done)
		}), double},
		{"two crashes, two more runs", func(h *told) {
			id := h.send(Steady, Args{})
			h.ran("a", id, first, 1, 0, "")
			h.trouble(Crash, "a", 2, 2)
			h.ran("b", id, first, 5, 0, "")
			h.trouble(Crash, "b", 6, 6)
			h.ran("c", id, first, 9, 10, Done)
		}, figures{}},
		{"Redis lost what was written", again(2, Done, trouble(Loss, "", 1.5, 3)), figures{byRedis: 1}},
	})
}

// What is wrong is found, and nothing else with it.
func TestHistoryFaults(t *testing.T) {
	t.Parallel()
	wantFigures(t, slices.Concat(lostCases, deadCases, otherCases))
}

var lostCases = []figureCase{
	{"never run", func(h *told) { h.steady(); h.send(Steady, Args{}) }, figures{lost: 1}},
	{"begun and never done", func(h *told) {
		h.ran("a", h.send(Steady, Args{}), first, 1, 0, "")
		h.trouble(Crash, "a", 2, 2)
	}, figures{lost: 1}},
	{"failed and never retried", func(h *told) { h.ran("a", h.send(Flaky, Args{Times: 1}), first, 1, 2, Failed) }, figures{lost: 1}},
	{"no dead letter", func(h *told) { h.failing(); h.Rest.Letters = nil }, figures{lost: 1}},
	{"done, where it was to fail", func(h *told) {
		h.ran("a", h.send(Failing, Args{}), first, 1, 2, Done)
	}, figures{lost: 1}},
	{"replayed and gone", func(h *told) {
		h.failing()
		h.Replays = []Replay{{Letter: h.Rest.Letters[0], Given: 1, Acked: at(9), Certain: true}}
		h.Rest.Letters = nil
	}, figures{lost: 1}},
	{"perhaps replayed, and gone", func(h *told) {
		h.failing()
		h.Replays = []Replay{{Letter: h.Rest.Letters[0], Given: 1, Acked: at(9)}}
		h.Rest.Letters = nil
	}, figures{lost: 1}},
	{"perhaps replayed, and still dead", func(h *told) {
		h.failing()
		h.Replays = []Replay{{Letter: h.Rest.Letters[0], Given: 1, Acked: at(9)}}
	}, figures{}},
	{"lost by Redis while it ran", func(h *told) {
		h.ran("a", h.send(Flaky, Args{Times: 1}), first, 1, 4, Failed)
		h.trouble(Loss, "", 0.5, 3)
	}, figures{byRedis: 1}},
	{"lost, and Redis lost nothing that late", func(h *told) {
		h.ran("a", h.send(Flaky, Args{Times: 1}), first, 4, 5, Failed)
		h.trouble(Loss, "", 0.5, 3)
	}, figures{lost: 1}},
	{"lost by Redis", func(h *told) { h.send(Steady, Args{}); h.trouble(Loss, "", -1, 1) }, figures{byRedis: 1}},
	{"not lost by Redis later", func(h *told) { h.send(Steady, Args{}); h.trouble(Loss, "", 2, 3) }, figures{lost: 1}},
}

var deadCases = []figureCase{
	{"an innocent", func(h *told) { h.died(h.steady(), 0, 1, jobs.ReasonFailed, 3) }, figures{innocents: 1}},
	{"an innocent as poison", func(h *told) { h.died(h.steady(), 0, 3, jobs.ReasonPoison, 3) }, figures{innocents: 1}},
	{"struck three times from outside", func(h *told) {
		id := h.steady()
		h.died(id, 0, 3, jobs.ReasonPoison, 3)
		h.Hit = map[string]bool{id: true}
	}, figures{struck: 1}},
	{"struck, and failed", func(h *told) {
		id := h.steady()
		h.died(id, 0, 1, jobs.ReasonFailed, 3)
		h.Hit = map[string]bool{id: true}
	}, figures{innocents: 1}},
	{"wrong attempts", func(h *told) { h.failing(); h.Rest.Letters[0].Attempts = 2 }, figures{wrong: 1}},
	{"more attempts than recorded", func(h *told) { h.failing(); h.Runs = h.Runs[:2] }, figures{wrong: 1}},
	{"died too early", func(h *told) { h.failing(); h.Runs = h.Runs[:2]; h.Rest.Letters[0].Attempts = 2 }, figures{wrong: 1}},
	{"wrong reason", func(h *told) { h.failing(); h.Rest.Letters[0].Reason = jobs.ReasonPoison }, figures{wrong: 1}},
	{"two dead letters", func(h *told) { h.failing(); h.Rest.Letters = append(h.Rest.Letters, h.Rest.Letters[0]) }, figures{wrong: 1}},
	{"dead and waiting", func(h *told) { h.Rest.Waiting[h.failing()] = true }, figures{wrong: 1}},
	{"dead and replayed", func(h *told) {
		h.failing()
		h.Replays = []Replay{{Letter: h.Rest.Letters[0], Given: 1, Acked: at(9), Certain: true}}
	}, figures{wrong: 1}},
	{"a killer that counts wrong", func(h *told) { h.deadly(); h.Rest.Letters[0].Attempts = 4 }, figures{wrong: 1}},
	{"a killer that was not alone", func(h *told) {
		h.deadly()
		h.ran("k3", h.send(Steady, Args{}), first, 6.9, 0, "")
		h.ran("b", h.Sent[1].ID, first, 10, 11, Done)
	}, figures{wrong: 1}},
	{"a killer beside what had ended", func(h *told) {
		h.deadly()
		h.ran("k3", h.send(Steady, Args{}), first, 6.5, 6.9, Done)
	}, figures{}},
	{"a killer that began a fourth time", func(h *told) {
		id := h.deadly()
		h.ran("k4", id, first, 30, 30.1, Suicide)
		h.trouble(Crash, "k4", 30.1, 30.2)
	}, figures{wrong: 1}},
	{"a killer that was given back before", func(h *told) {
		h.ran("a", h.deadly(), first, 0.5, 0.6, Released)
		h.trouble(Left, "a", 0.4, 0.7)
	}, figures{}},
	{"a killer whose second delivery never began", func(h *told) {
		h.deadly()
		h.Runs = slices.Delete(h.Runs, 1, 2)
	}, figures{}},
	{"a killer for a time that others helped", func(h *told) {
		id := h.send(Shaky, Args{Times: 1})
		h.ran("a", id, first, 1, 0, "")
		h.trouble(Crash, "a", 2, 2)
		h.ran("b", id, first, 5, 0, "")
		h.trouble(Crash, "b", 6, 6)
		h.ran("c", id, first, 9, 9.1, Suicide)
		h.trouble(Crash, "c", 9.1, 9.1)
		h.died(id, 0, 3, jobs.ReasonPoison, 20)
	}, figures{}},
}

var otherCases = []figureCase{
	{"a tick doubled", func(h *told) { h.remember(1); h.tick(1, "x"); h.tick(1, "y") }, figures{ticks: 1}},
	{"a tick lost", func(h *told) { h.remember(1) }, figures{ticks: 1}},
	{"a tick from nowhere", func(h *told) { h.tick(1, "x") }, figures{ticks: 1}},
	{"a tick never done", func(h *told) { h.remember(1); h.tick(1, "x"); h.Runs[0].Outcome = Failed }, figures{lost: 1}},
	{"a tick that died", func(h *told) { h.remember(1); h.tick(1, "x"); h.died("x", 0, 1, jobs.ReasonFailed, 3) }, figures{innocents: 1}},
	{"a key without expiry", func(h *told) { h.Rest.Keys = []string{"jobs:suspect"} }, figures{keys: 1}},
	{"nobody sent it", func(h *told) { h.ran("a", "steady-7", first, 1, 2, Done) }, figures{wrong: 1}},
	{"early", func(h *told) { h.steady(); h.Sent[0].Script.Delay = 1001 * time.Millisecond }, figures{wrong: 1}},
	{"not early", func(h *told) { h.steady(); h.Sent[0].Script.Delay = time.Second }, figures{}},
	{"still waiting", func(h *told) { h.Rest.Waiting[h.send(Steady, Args{})] = true }, figures{wrong: 1}},
	{"an attempt from nowhere", func(h *told) {
		id := h.steady()
		h.ran("b", id, slot{0, 1}, 3, 4, Done)
	}, figures{wrong: 1}},
	{"a generation from nowhere", func(h *told) {
		id := h.steady()
		h.ran("b", id, slot{1, 0}, 3, 4, Done)
	}, figures{wrong: 1}},
	{"a retry after a timeout that a pause made", func(h *told) {
		id := h.send(Hanging, Args{})
		h.ran("a", id, first, 1, 1.1, Done)
		h.trouble(Stopped, "a", 1.05, 3)
		h.ran("b", id, slot{0, 1}, 4, 5, Done)
	}, figures{}},
}
