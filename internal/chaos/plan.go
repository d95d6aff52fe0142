package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Deed is something that is done to the fleet.
type Deed string

// The deeds. Those with a duration end by themselves.
const (
	Kill        Deed = "kill"         // SIGKILL of a worker; its supervisor starts another
	Pause       Deed = "pause"        // SIGSTOP of a worker, and SIGCONT after a while
	Roll        Deed = "roll"         // SIGTERM of a worker; the next knows every kind
	Blind       Deed = "blind"        // SIGTERM of a worker; the next does not know some kinds
	Cut         Deed = "cut"          // a worker's connections are closed
	Swallow     Deed = "swallow"      // a worker's next script runs, and its reply is lost
	Stall       Deed = "stall"        // a worker's connections carry nothing for a while
	Snip        Deed = "snip"         // producers' and operators' connections are closed
	SnipReply   Deed = "snip reply"   // their next command runs, and its reply is lost
	StopRedis   Deed = "stop redis"   // ended as an operator would, and started after a while
	KillRedis   Deed = "kill redis"   // SIGKILL, and started after a while
	FreezeRedis Deed = "freeze redis" // SIGSTOP, and SIGCONT after a while
	ReplayDead  Deed = "replay"       // two operators replay dead letters at once
)

// An Event is a deed at its time.
type Event struct {
	At     time.Duration // since the beginning
	Deed   Deed
	Worker int // whose; of deeds that are done to a worker
	For    time.Duration
}

func (e Event) String() string {
	return fmt.Sprintf("%v %s %d %v", e.At.Round(time.Millisecond), e.Deed, e.Worker, e.For.Round(time.Millisecond))
}

// Plan is what is done to the fleet, the same for the same seed. Pauses last up to two and a half leases: a last
// delivery is poison only after five in silence, and that is for killers.
func Plan(seed uint64, workers int, length, lease time.Duration) []Event {
	p := planner{rand.New(rand.NewPCG(seed, 2)), length, lease}
	events := slices.Concat(p.toWorkers(workers), p.toRedis(), p.others())
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

type planner struct {
	*rand.Rand
	length, lease time.Duration
}

// about is between a half and one and a half of d.
func (p planner) about(d time.Duration) time.Duration { return d/2 + time.Duration(p.Int64N(int64(d))) }

// between is of a lease, in hundredths.
func (p planner) between(low, high int) time.Duration {
	return p.lease * time.Duration(low+p.IntN(high-low)) / 100
}

var toWorkers = []Deed{Kill, Kill, Kill, Kill, Pause, Pause, Pause, Stall, Stall, Cut, Swallow, Swallow, Roll, Blind}

// toWorkers disturbs each worker every few seconds, never two ways at once. The deeds are dealt like cards, so that a
// short plan has each of them.
func (p planner) toWorkers(n int) (events []Event) {
	var deck []Deed
	free := make([]time.Duration, n)
	step := 4 * time.Second / time.Duration(n)
	for at := p.about(step); at < p.length; at += p.about(step) {
		worker := p.whoIs(free, at)
		if worker < 0 {
			continue
		}
		if len(deck) == 0 {
			deck = slices.Clone(toWorkers)
			p.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		e := Event{At: at, Worker: worker, Deed: deck[0]}
		deck = deck[1:]
		switch e.Deed {
		case Pause:
			e.For = p.between(20, 250)
		case Stall:
			e.For = p.between(20, 200)
		}
		free[worker] = at + e.For + time.Second
		events = append(events, e)
	}
	return events
}

// whoIs draws one who is free at a time; -1 where nobody is.
func (p planner) whoIs(free []time.Duration, at time.Duration) int {
	for _, i := range p.Perm(len(free)) {
		if free[i] <= at {
			return i
		}
	}
	return -1
}

// toRedis takes Redis away for up to a lease and a half, in each of the three ways.
func (p planner) toRedis() (events []Event) {
	deeds := []Deed{KillRedis, StopRedis, FreezeRedis, KillRedis}
	first := p.IntN(len(deeds))
	for at := p.about(4 * time.Second); at < p.length; at += p.about(9 * time.Second) {
		deed := deeds[(first+len(events))%len(deeds)]
		events = append(events, Event{At: at, Deed: deed, For: p.between(10, 150)})
	}
	return events
}

// others disturb producers, and replay.
func (p planner) others() (events []Event) {
	for at := p.about(2 * time.Second); at < p.length; at += p.about(2 * time.Second) {
		events = append(events, Event{At: at, Deed: []Deed{Snip, SnipReply, SnipReply}[p.IntN(3)]})
	}
	for at := 2 * time.Second; at < p.length; at += p.about(4 * time.Second) {
		events = append(events, Event{At: at, Deed: ReplayDead})
	}
	return events
}
