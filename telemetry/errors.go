package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// errorClass is the error.type of an error of Redis's, out of a few.
func errorClass(err error) string {
	var refused redis.Error
	var network net.Error
	switch {
	case errors.As(err, &refused):
		return refusal(refused.Error())
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.As(err, &network):
		return "connection"
	}
	return other
}

// refusals are the words by which Redis says why it refuses something.
var refusals = strings.Fields("OOM READONLY NOPERM NOAUTH WRONGPASS NOGROUP WRONGTYPE LOADING MASTERDOWN " +
	"MISCONF NOREPLICAS BUSY CLUSTERDOWN CROSSSLOT TRYAGAIN UNBLOCKED EXECABORT")

// refusal finds the word in what Redis says. It is the first, but for what a script met in
// Redis 6.2, which says so in front.
func refusal(text string) string {
	for word := range strings.FieldsSeq(text) {
		if slices.Contains(refusals, word) {
			return word
		}
	}
	return "ERR"
}

// How a run ended, as far as can be seen from its error alone: what jobs.OutcomeOf says goes
// before, where something of the run is written.
const (
	runDone    = "done"
	runFailed  = "failed"
	runSnoozed = jobs.OutcomeSnoozed
)

// ending is how a run ended.
type ending struct{ outcome, class, text string }

// read reads the error that a run ended with. It may be hostile: its methods panic, its text
// is endless.
func read(ctx context.Context, err error) (e ending) {
	if err == nil {
		return ending{outcome: runDone}
	}
	defer func() {
		if recover() != nil {
			e = ending{runFailed, other, "an error that cannot be read"}
		}
	}()
	if is(err, snooze) {
		return ending{outcome: runSnoozed}
	}
	return ending{runFailed, class(ctx, err), bounded(err.Error())}
}

// class is the error.type of a handler's error: why its context was cancelled where it was,
// else the error's Go type, below what this library and fmt.Errorf wrap it in.
func class(ctx context.Context, err error) string {
	var panicked *jobs.PanicError
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, jobs.ErrTimeout):
		return "timeout"
	case errors.Is(cause, jobs.ErrShutdown):
		return "shutdown"
	case errors.Is(cause, jobs.ErrLeaseLost):
		return "lease_lost"
	case errors.As(err, &panicked):
		return "panic"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil || !wraps(err) {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}

var (
	snooze     = reflect.TypeOf(jobs.Snooze(1))
	permanent  = reflect.TypeOf(jobs.Permanent(io.EOF))
	retryAfter = reflect.TypeOf(jobs.RetryAfter(1, io.EOF))
	wrapped    = reflect.TypeOf(fmt.Errorf("%w", io.EOF))
)

func wraps(err error) bool {
	t := reflect.TypeOf(err)
	return t == permanent || t == retryAfter || t == wrapped
}

// is says whether an error of this type is in err's chain, as errors.As would.
func is(err error, t reflect.Type) bool { return errors.As(err, reflect.New(t).Interface()) }

// maxText is how many bytes of an error a span has.
const maxText = 1024

func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + " …"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
