package crashes

import (
	"slices"
	"sync"
)

// An End is how a run ended, by what its handler returned.
type End int

const (
	Open     End = iota // it did not
	Finished            // well
	Retried             // an error, with retries left
	Expired             // an error, the last one permitted
	Snoozed
	CutOff // by a shutdown, or because the lease was lost
)

// A Run is one entering of a handler.
type Run struct {
	Job      string
	Attempts int
	Tick     string // the schedule and the instant, where it is of one
	Victim   bool   // it was in the process that died
	End      End
}

// History is what handlers recorded, in the order in which they were entered. What a dead process' handlers do is not to
// be recorded.
type History struct {
	mu   sync.Mutex
	runs []*Run
}

// Begin records that a handler was entered. The run is to be given to Conclude.
func (h *History) Begin(run Run) *Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs = append(h.runs, &run)
	return &run
}

// Conclude records how a run ended.
func (h *History) Conclude(run *Run, end End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run.End = end
}

// Of returns the runs of a job.
func (h *History) Of(job string) []Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	var runs []Run
	for _, run := range h.runs {
		if run.Job == job {
			runs = append(runs, *run)
		}
	}
	return runs
}

// Has says whether a run of the job ended so.
func (h *History) Has(job string, end End) bool {
	return slices.ContainsFunc(h.Of(job), func(run Run) bool { return run.End == end })
}

// Len is how many runs there were.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runs)
}

// jobs are the jobs that ran, in the order in which they first did.
func (h *History) jobs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	for _, run := range h.runs {
		if !slices.Contains(ids, run.Job) {
			ids = append(ids, run.Job)
		}
	}
	return ids
}
