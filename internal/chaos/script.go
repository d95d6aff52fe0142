// Package chaos runs a fleet of real worker processes on a real Redis through crashes, pauses, cuts and outages, and
// then reads the whole history: nothing may be lost, nothing may have run twice without a recorded reason, and nobody
// may be dead who does not deserve it.
//
// The jobs know what they are to do (Script), so what must become of each is known before it runs. What is done to the
// fleet is a plan made from a seed. Workers write each beginning and end of a run to a Redis that nobody disturbs, and
// the checker (History) joins that with what producers sent and with what is left. The tests are the commands; package
// worker beside this one is the process.
package chaos

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stagedoor/jobs"
)

// Args are what a job is told to do.
type Args struct {
	Work       time.Duration // what it takes
	Times      int           // how often it misbehaves, where that has an end
	Fixed      int           // the generation from which on it behaves
	Generation int           // how often it was replayed; each replay sets it
}

const (
	// Retries of the kinds that fail for good.
	Retries = 2
	// Deliveries are permitted to every kind.
	Deliveries = 3
	// Timeout of the kinds that hang.
	Timeout = 400 * time.Millisecond
	// Overtime is how long the library lets a handler go on after its timeout.
	Overtime = time.Second
)

// The kinds, by how their jobs misbehave. A worker's own code for each is in package worker.
const (
	Steady   = "steady"   // not at all
	Flaky    = "flaky"    // fails the first times
	Failing  = "failing"  // fails always
	Hopeless = "hopeless" // fails, and says that it is for good
	Panicky  = "panicky"  // panics always
	Exiting  = "exiting"  // ends its goroutine always
	Hanging  = "hanging"  // takes longer than its timeout, the first times
	Deaf     = "deaf"     // does so once, and does not heed its context: it is abandoned
	Sleepy   = "sleepy"   // snoozes the first times
	Garbled  = "garbled"  // cannot be decoded until a replay corrects it
	Shaky    = "shaky"    // kills its process the first times it begins
	Deadly   = "deadly"   // kills its process always
	EveryOne = "every-1s" // a tick each second
	EveryTwo = "every-2s" // a tick each two seconds
)

// Kinds are what workers and producers share.
var Kinds = makeKinds()

func makeKinds() map[string]jobs.Kind[Args] {
	policy := jobs.Policy{Retries: Retries, Backoff: jobs.FullJitter(20*time.Millisecond, 300*time.Millisecond)}
	// A pause of the worker can make these overrun their timeout when they would not: no run of bad luck may bury them.
	patient := policy
	patient.Retries, patient.Timeout = 20, Timeout
	kinds := map[string]jobs.Kind[Args]{}
	for _, name := range []string{
		Steady, Flaky, Failing, Hopeless, Panicky, Exiting, Sleepy, Garbled, Shaky, Deadly, EveryOne, EveryTwo,
	} {
		kinds[name] = jobs.NewKind[Args](name, policy)
	}
	for _, name := range []string{Hanging, Deaf} {
		kinds[name] = jobs.NewKind[Args](name, patient)
	}
	return kinds
}

// Schedules are what every worker has.
var Schedules = map[string]jobs.Schedule{
	EveryOne: jobs.Every(time.Second),
	EveryTwo: jobs.Every(2 * time.Second),
}

// A Script is what one job is told to do, and when.
type Script struct {
	Kind  string
	Args  Args
	Delay time.Duration // 0: at once
}

// Job makes the job.
func (s Script) Job() jobs.Job {
	job := Kinds[s.Kind].Job(s.Args)
	if s.Kind == Garbled {
		job.Fields["work"] = "soon"
	}
	return job.In(s.Delay)
}

// Correction is what a replay sets: the generation, and what was garbled.
func (s Script) Correction(generation int) jobs.Fields {
	set := jobs.Fields{"generation": strconv.Itoa(generation)}
	if s.Kind == Garbled {
		set["work"] = "1ms"
	}
	return set
}

// A Fate is what must become of a job in one generation.
type Fate struct {
	Reason   jobs.Reason // empty: it must be done
	Attempts int         // in its dead letter
}

// Fate is the job's, after so many replays.
func (s Script) Fate(generation int) Fate {
	if s.Kind == Garbled && generation == 0 {
		return Fate{jobs.ReasonUndecodable, 0}
	}
	if generation >= s.Args.Fixed {
		return Fate{}
	}
	switch s.Kind {
	case Failing, Panicky, Exiting:
		return Fate{jobs.ReasonFailed, Retries + 1}
	case Hopeless:
		return Fate{jobs.ReasonFailed, 1}
	case Deadly:
		return Fate{jobs.ReasonPoison, Deliveries}
	}
	return Fate{}
}

// often are the kinds that are drawn, and how often of a thousand; the rest is steady.
var often = []struct {
	kind     string
	thousand int
}{
	{Flaky, 90}, {Failing, 25}, {Hopeless, 15}, {Panicky, 20}, {Exiting, 10}, {Hanging, 20}, {Deaf, 5}, {Sleepy, 40},
	{Garbled, 15},
}

// Scripts are n jobs, the same ones for the same seed.
func Scripts(seed uint64, n int) []Script {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]Script, n)
	for i := range list {
		list[i] = script(r)
		switch { // those that cost processes, sparsely; and killers early, since they live long
		case i%400 == 37 && i < n/2:
			list[i].Kind, list[i].Args.Fixed = Deadly, 1
		case i%400 == 91:
			list[i].Kind = Shaky
		}
	}
	return list
}

func script(r *rand.Rand) Script {
	s := Script{Kind: draw(r), Args: Args{Work: work(r), Times: 1 + r.IntN(2), Fixed: 1 + r.IntN(4)/3}}
	if r.IntN(5) == 0 {
		s.Delay = time.Duration(1 + r.Int64N(int64(3*time.Second)))
	}
	if s.Kind == Hanging || s.Kind == Deaf {
		s.Args.Work = min(s.Args.Work, Timeout/8)
	}
	return s
}

func draw(r *rand.Rand) string {
	n := r.IntN(1000)
	for _, o := range often {
		if n -= o.thousand; n < 0 {
			return o.kind
		}
	}
	return Steady
}

// work is mostly short, and one time in a hundred longer than the short run's lease.
func work(r *rand.Rand) time.Duration {
	switch n := r.IntN(100); {
	case n < 1:
		return 2200*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))
	case n < 10:
		return time.Duration(r.Int64N(int64(700 * time.Millisecond)))
	}
	return time.Duration(r.Int64N(int64(50 * time.Millisecond)))
}
