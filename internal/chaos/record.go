package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A Record is one line that a worker writes, before what it speaks of goes on.
type Record struct {
	What   What   `json:"what"`
	Worker string `json:"worker"`        // one life of a process
	Run    int    `json:"run,omitempty"` // counts the runs of a worker
	At     int64  `json:"at"`            // microseconds since the epoch; all processes are on one machine
	Since  int64  `json:"since,omitempty"`

	Job        string  `json:"job,omitempty"`
	Kind       string  `json:"kind,omitempty"`
	Generation int     `json:"generation,omitempty"`
	Attempts   int     `json:"attempts,omitempty"` // made before this run
	Tick       int64   `json:"tick,omitempty"`     // epoch seconds
	Outcome    Outcome `json:"outcome,omitempty"`
}

// What a Record speaks of.
type What string

const (
	Began   What = "began"   // a run
	Ended   What = "ended"   // the same run, with what its handler is about to do
	Stalled What = "stalled" // the process got no processor, since Since
)

// Noticed is how long a process must have stood still for it to be recorded.
const Noticed = 200 * time.Millisecond

// An Outcome is what a handler is about to do.
type Outcome string

const (
	Done     Outcome = "done"     // return nil
	Failed   Outcome = "failed"   // return an error, panic, end its goroutine, or outlive its timeout
	Snoozed  Outcome = "snoozed"  // return Snooze
	Released Outcome = "released" // return an error because the worker shuts down
	Robbed   Outcome = "robbed"   // return an error because the lease is lost
	Suicide  Outcome = "suicide"  // kill the process
)

// A Run is a beginning and its end.
type Run struct {
	Worker               string
	Number               int
	Job, Kind            string
	Generation, Attempts int
	Tick                 int64
	Began, Ended         time.Time // Ended is zero where the process died before
	Outcome              Outcome
}

// slot is what is to be run once: one attempt of one generation.
type slot struct{ generation, attempts int }

func (r Run) slot() slot { return slot{r.Generation, r.Attempts} }

func (r Run) String() string {
	ended := "never ended"
	if !r.Ended.IsZero() {
		ended = fmt.Sprintf("%s %s", r.Outcome, clock(r.Ended))
	}
	return fmt.Sprintf("%s run %d of %s %s, generation %d, attempts %d: began %s, %s",
		r.Worker, r.Number, r.Kind, r.Job, r.Generation, r.Attempts, clock(r.Began), ended)
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

type runKey struct {
	worker string
	run    int
}

// Join makes runs of what workers wrote, by their beginning, and troubles of where they stood still. A line that came
// twice counts once.
func Join(lines []string) (runs []Run, stalls []Trouble, err error) {
	index := map[runKey]int{}
	for _, line := range lines {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, nil, fmt.Errorf("record %q: %w", line, err)
		}
		at := time.UnixMicro(r.At)
		key := runKey{r.Worker, r.Run}
		i, known := index[key]
		switch {
		case r.What == Stalled:
			stalls = append(stalls, Trouble{Hung, r.Worker, time.UnixMicro(r.Since), at})
		case r.What == Began && !known:
			index[key] = len(runs)
			runs = append(runs, Run{
				Worker: r.Worker, Number: r.Run, Job: r.Job, Kind: r.Kind,
				Generation: r.Generation, Attempts: r.Attempts, Tick: r.Tick, Began: at,
			})
		case r.What == Ended && !known:
			return nil, nil, fmt.Errorf("record %q: a run ended that never began", line)
		case r.What == Ended:
			runs[i].Ended, runs[i].Outcome = at, r.Outcome
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return a.Began.Compare(b.Began) })
	return runs, stalls, nil
}

// Vitals are what a worker says of its process each second, in the hash vitals.
type Vitals struct {
	Goroutines int           `json:"goroutines"`
	CPU        time.Duration `json:"cpu"`
	Heap       int           `json:"heap"`
}
