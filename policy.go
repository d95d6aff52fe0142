package jobs

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Policy is what a kind does about failure. It lives in code and not in the entry, so
// a deployed policy governs what is already queued.
type Policy struct {
	// Retries is how often a failed job runs again: 5 means six runs at most, the zero
	// value means never again. It is asked after a run, so a job that arrives with more
	// attempts than permitted runs once and is then dead-lettered.
	Retries int

	// Backoff is the wait before a retry; nil: FullJitter(time.Second, time.Minute).
	Backoff Backoff

	// Timeout is of one attempt; 0: Config.Timeout; NoTimeout: none.
	Timeout time.Duration

	// Deliveries is how often an entry is handed to a worker before it is dead-lettered
	// as poison, unrun; 0: 3; at least 2, since a first delivery is never alone. Only
	// deliveries that ended in silence count: the process died or lost its contact.
	Deliveries int
}

// NoTimeout is the Policy.Timeout of a kind whose attempts may take any time.
const NoTimeout time.Duration = 1<<63 - 1

const defaultDeliveries = 3

// check refuses what cannot be meant.
func (p Policy) check() error {
	switch {
	case p.Retries < 0:
		return fmt.Errorf("Policy.Retries is %d, and cannot be negative", p.Retries)
	case p.Timeout < 0:
		return fmt.Errorf("Policy.Timeout is %s, and cannot be negative", p.Timeout)
	case p.Deliveries < 0, p.Deliveries == 1:
		return fmt.Errorf("Policy.Deliveries is %d, and must be at least 2 (or 0 for 3)", p.Deliveries)
	}
	return nil
}

func (p Policy) deliveries() int {
	if p.Deliveries == 0 {
		return defaultDeliveries
	}
	return p.Deliveries
}

// wait is the backoff after a job failed that had made so many attempts before. What a
// Backoff of the user's answers below zero is zero, and where it gives no answer the default
// stands in.
func (p Policy) wait(attempts int) time.Duration {
	if p.Backoff == nil {
		return defaultBackoff(attempts)
	}
	var d time.Duration
	select {
	case panicked := <-apart(func() { d = p.Backoff(attempts) }):
		if panicked == nil {
			return max(0, d)
		}
	case <-time.After(backoffHas):
	}
	return defaultBackoff(attempts)
}

// backoffHas is how long a Backoff has for its answer: no time at all, but this process may
// have been paused.
const backoffHas = 5 * time.Second

// A Backoff tells how long to wait before a retry, by the number of attempts made before
// the one that failed: 0 after the first run. It is called from many goroutines, and answers
// at once: where it panics, ends its goroutine or takes longer than five seconds, the default
// stands in.
type Backoff func(attempts int) time.Duration

// FullJitter waits for a uniformly random time in [0, min(limit, base·2ⁿ)], n the
// attempts made before; it does not overflow for any n. (Full jitter as in AWS's
// "Exponential Backoff And Jitter": of the usual ways it spreads a wave of failures best.)
// It panics where base or limit is negative, or base is above limit.
func FullJitter(base, limit time.Duration) Backoff {
	if base < 0 || limit < base {
		panic(fmt.Sprintf("jobs: FullJitter(%s, %s): want 0 <= base <= limit", base, limit))
	}
	return func(attempts int) time.Duration {
		ceiling := limit
		if base == 0 || attempts < 63 && base <= limit>>max(attempts, 0) {
			ceiling = base << max(attempts, 0)
		}
		if ceiling == NoTimeout {
			return time.Duration(rand.Int64())
		}
		return time.Duration(rand.Int64N(int64(ceiling) + 1))
	}
}

var defaultBackoff = FullJitter(time.Second, time.Minute)
