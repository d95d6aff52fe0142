package jobstest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
)

// An abandoned handler may return while Run looks at what became of its job: the race detector judges.
func TestAttemptWhileAHandlerReturns(t *testing.T) {
	t.Parallel()
	q := New(t, jobs.Config{})
	returned := make(chan error)
	handler := q.record(func(context.Context, jobs.Job) error { return errors.New("too late") })
	go func() { returned <- handler(t.Context(), jobs.Job{}) }()
	if a := q.attempt(); a.Outcome != Done {
		t.Error(a)
	}
	<-returned
	if a := q.attempt(); a.Err == nil {
		t.Error("what the handler returned is not known")
	}
}

// A minute in a handler costs Drain few looks, and it ends in the instant in which the job does.
func TestBubbleDrainsAtOnceAndToTheInstant(t *testing.T) {
	t.Parallel()
	const long = time.Minute + 100*time.Microsecond
	slow, ran := jobs.NewKind[jobs.None]("slow", jobs.Policy{Timeout: jobs.NoTimeout}), 0
	Bubble(t, jobs.Config{}, func(q *Queue) {
		jobs.Handle(q.Runner(), slow, func(context.Context, jobs.None) error {
			time.Sleep(long)
			ran++
			return nil
		})
	}, func(t *testing.T, q *Queue) {
		start, commands := time.Now(), q.redis.CommandCount()
		q.Enqueue(slow.Job(jobs.None{}), slow.Job(jobs.None{}).In(long+time.Second))
		q.Drain()
		if took := time.Since(start); took != long || ran != 1 || len(q.Delayed()) != 1 {
			t.Errorf("%d jobs drained after %s, delayed %v", ran, took, q.Delayed())
		}
		q.Advance(2 * time.Second)
		if ran != 2 {
			t.Errorf("%d jobs drained", ran)
		}
		if n := q.redis.CommandCount() - commands; n > 5000 {
			t.Errorf("%d commands in two minutes", n)
		}
		q.events = nil // what others do is seen all the same
		start = time.Now()
		q.Enqueue(slow.Job(jobs.None{}))
		q.Drain()
		if took := time.Since(start); took < long || took > long+time.Second {
			t.Errorf("drained after %s without events", took)
		}
	})
}

// A worker that has left does not let Drain wait for ever: seen from outside, since the test that meets it fails.
func TestBubbleWhoseWorkerLeaves(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLeavingWorker$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), "JOBSTEST_LEAVE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the worker has left, and 1 jobs are not done") || !strings.Contains(string(out), "Goexit") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestLeavingWorker(t *testing.T) {
	if os.Getenv("JOBSTEST_LEAVE") == "" {
		return // for the one above
	}
	quick := jobs.NewKind[jobs.None]("quick", jobs.Policy{})
	Bubble(t, jobs.Config{Slots: 1, Observe: func(e jobs.Event) {
		if e.What == jobs.EventSettled {
			runtime.Goexit()
		}
	}}, func(q *Queue) {
		jobs.Handle(q.Runner(), quick, func(context.Context, jobs.None) error { return nil })
	}, func(t *testing.T, q *Queue) {
		q.Enqueue(quick.Job(jobs.None{}), quick.Job(jobs.None{}))
		q.Drain()
	})
}
