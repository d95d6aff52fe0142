package jobs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 0, "of TestRandomWalk; 0: another one each time")
	walkSteps = flag.Int("walk.steps", 150, "of TestRandomWalk on miniredis, in fake time")
)

// TestRandomWalk walks along the arrows of the life of a job, at random, beside a model in
// memory. After each step both must agree on every job: where it is, with how many attempts
// and deliveries, when it is due, how often it has run and whether too early.
//
//	go test . -run RandomWalk -walk.steps=5000 -walk.seed=1
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	seed := *walkSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -walk.seed=%d -walk.steps=%d", seed, *walkSteps)
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T, q *queue) {
			w := newWalk(q, seed, 12*time.Second)
			w.advances, w.strange = true, true
			w.walk(*walkSteps)
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t, servers.SharedRedis(t).Client(t), servers.Prefix(t))
		newWalk(q, seed, 300*time.Millisecond).walk(min(*walkSteps, 40))
	})
}

// A place is where a job is.
type place string

const (
	ready   place = "ready"
	running place = "running" // fetched by a worker that died
	delayed place = "delayed"
	dead    place = "dead"
	gone    place = "gone"
	limbo   place = "limbo" // of an unknown kind: anywhere but dead, until it dies of it
)

// walked is a job as the model has it.
type walked struct {
	jobs.Job
	n                    int // the how manieth
	place                place
	attempts, deliveries int
	want                 int           // runs there should be
	lower                time.Time     // the last run cannot have been before
	from                 time.Time     // it cannot leave its place before
	due                  time.Time     // where delayed; zero: not known yet
	least, most          time.Time     // bounds of what is not known yet
	wait                 time.Duration // where there is no upper bound: from when the run is seen on
	reason               jobs.Reason
	unknown              bool      // its kind
	since, latest        time.Time // a live worker has not known it from then on; it dies about then
	entry                string    // in the stream, or of its dead letter
}

// walk is a queue, a worker that comes and goes, and the model.
type walk struct {
	*queue
	seed              uint64
	rng               *rand.Rand
	lease             time.Duration
	advances, strange bool // the clock is moved; there are unknown kinds
	beats             *beats
	worker            *worker
	all               []*walked
	deaths            int // of workers

	mu  sync.Mutex
	ran map[string][]time.Time
	log []string
}

func newWalk(q *queue, seed uint64, lease time.Duration) *walk {
	return &walk{
		queue: q, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), lease: lease, beats: newBeats(),
		ran: map[string][]time.Time{},
	}
}

// How long things take that the walk decides on. Nothing is due by itself on a real Redis.
const (
	walkBackoff = time.Hour
	walkSnooze  = 40 * time.Minute
	unknownFor  = time.Hour
)

var (
	walks   = jobs.NewKind[jobs.Fields]("walks", jobs.Policy{Retries: 2, Backoff: func(int) time.Duration { return walkBackoff }})
	strange = jobs.NewKind[jobs.Fields]("strange", jobs.Policy{})
)

// outcome is what the how manieth run of a job comes to: the same for the model and the
// handler, in whatever order things run.
func (w *walk) outcome(n, run int) error {
	h := fnv.New64a()
	fmt.Fprint(h, w.seed, n, run)
	switch h.Sum64() % 10 {
	case 0, 1, 2:
		return errSeat
	case 3:
		return jobs.Permanent(errSeat)
	case 4, 5:
		return jobs.Snooze(walkSnooze)
	}
	return nil
}

func (w *walk) handle(ctx context.Context, args jobs.Fields) error {
	job, _ := jobs.FromContext(ctx)
	n, _ := strconv.Atoi(args["n"])
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ran[job.ID] = append(w.ran[job.ID], time.Now())
	return w.outcome(n, len(w.ran[job.ID]))
}

func (w *walk) walk(steps int) {
	for range steps {
		w.step()
		w.settle()
	}
	w.start()
	w.settle()
	count := map[place]int{}
	for _, j := range w.all {
		count[j.place]++
	}
	w.t.Logf("walk: steps: %d, jobs: %d, workers: %d, at the end: %v", steps, len(w.all), w.deaths, count)
}

// step takes one step, of those that can be taken now.
func (w *walk) step() {
	type option struct {
		weight int
		name   string
		take   func()
	}
	options := []option{
		{6, "enqueue", w.enqueueSome}, {3, "advance", w.advance}, {3, "run now", w.runNow}, {2, "cancel", w.cancel},
		{2, "replay", w.replay}, {1, "replay all", w.replayAll}, {1, "discard", w.discard},
	}
	if w.worker == nil {
		options = append(options, option{4, "crash", w.crash}, option{3, "crash again", w.crashAgain}, option{2, "start", w.start})
	} else {
		options = append(options, option{3, "stop", w.stop})
	}
	total := 0
	for _, o := range options {
		total += o.weight
	}
	for n := w.rng.IntN(total); ; {
		o := options[0]
		if n -= o.weight; n < 0 {
			w.log = append(w.log, o.name)
			o.take()
			return
		}
		options = options[1:]
	}
}

// one chooses a job of those that are somewhere.
func (w *walk) one(is func(j *walked) bool) *walked {
	var some []*walked
	for _, j := range w.all {
		if is(j) {
			some = append(some, j)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[w.rng.IntN(len(some))]
}

func at(p place) func(j *walked) bool { return func(j *walked) bool { return j.place == p } }

func (w *walk) enqueueSome() {
	var js []jobs.Job
	for range 1 + w.rng.IntN(3) {
		j := &walked{n: len(w.all), place: ready, from: w.now()}
		args := jobs.Fields{"n": fmt.Sprint(j.n), "bytes": "\xff"}
		j.Job = walks.Job(args)
		if j.unknown = w.strange && w.rng.IntN(10) == 0; j.unknown {
			j.Job = strange.Job(args)
		}
		enqueued := j.Job
		if w.rng.IntN(2) == 0 {
			d := time.Duration(1+w.rng.IntN(100)) * time.Minute
			j.place, j.least, j.most = delayed, j.from.Add(d), time.Time{}
			enqueued = j.Job.In(d)
		}
		w.all, js = append(w.all, j), append(js, enqueued)
	}
	w.enqueue(js...)
	for _, j := range w.all[len(w.all)-len(js):] {
		if j.place == delayed {
			j.most = j.least.Add(w.now().Sub(j.from))
		}
	}
}

// advance passes time, and stops wherever something is due.
func (w *walk) advance() {
	if !w.advances {
		return
	}
	end := w.now().Add([]time.Duration{time.Second, time.Minute, 20 * time.Minute, time.Hour, 3 * time.Hour}[w.rng.IntN(5)])
	for next := w.next(end); w.worker != nil && next.Before(end); next = w.next(end) {
		time.Sleep(next.Sub(w.now()))
		w.settle()
	}
	time.Sleep(end.Sub(w.now()))
}

// next is when the next job is due, or end.
func (w *walk) next(end time.Time) time.Time {
	for _, j := range w.all {
		if j.place == delayed && j.due.Before(end) {
			end = j.due
		}
	}
	return end
}

func (w *walk) start() {
	if w.worker != nil {
		return
	}
	for w.beats.next(w.now()) < 10*time.Second { // none comes while it starts
		time.Sleep(time.Second)
	}
	w.beats.up = w.now()
	w.worker = w.employ(w.Client, jobs.Config{Lease: w.lease}, handle(walks, w.handle), w.beats.register)
}

// stop ends the worker. Where those of unknown kinds are then is for the store to say.
func (w *walk) stop() {
	must(w.t, w.worker.stop())
	w.worker = nil
	w.deaths++
	seen := w.look()
	w.beats.left(w.entries("jobs"))
	for _, j := range w.all {
		s, ok := seen[j.ID]
		if j.place != limbo || !ok {
			continue
		}
		j.place, j.deliveries, j.entry, j.due, j.reason = s.place, s.deliveries, s.entry, s.due, s.reason
		if !s.parked {
			j.since = time.Time{} // it was on its way to the worker
		}
	}
}

// crash lets a worker fetch what is ready, and die.
func (w *walk) crash() {
	if w.one(at(ready)) == nil {
		return
	}
	w.deaths++
	name := fmt.Sprint("dead-", w.deaths)
	must(w.t, w.group())
	before := w.now()
	read, err := w.rdb.XReadGroup(w.t.Context(), &redis.XReadGroupArgs{
		Group: "workers", Consumer: name, Streams: []string{w.key("jobs"), ">"}, Count: int64(1 + w.rng.IntN(4)), Block: -1,
	}).Result()
	must(w.t, err)
	for _, m := range read[0].Messages {
		i := slices.IndexFunc(w.all, func(j *walked) bool { return j.ID == m.Values["job_id"] })
		if i < 0 {
			continue // a tick
		}
		j := w.all[i]
		j.place, j.deliveries, j.entry, j.from = running, 1, m.ID, before.Add(w.lease)
	}
}

func (w *walk) group() error {
	err := w.rdb.XGroupCreateMkStream(w.t.Context(), w.key("jobs"), "workers", "0").Err()
	if redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

// crashAgain lets another worker take over what a dead one held, and die too.
func (w *walk) crashAgain() {
	j := w.one(func(j *walked) bool { return j.place == running && j.deliveries < 3 })
	if j == nil {
		return
	}
	w.deaths++
	j.deliveries++
	j.from = w.now().Add(w.lease)
	w.hold(fmt.Sprint("dead-", w.deaths), j.entry, 0, j.deliveries)
}

func (w *walk) runNow() {
	if j := w.one(at(delayed)); j != nil {
		j.place, j.due, j.from = ready, time.Time{}, w.now()
		must(w.t, w.Delayed().RunNow(w.t.Context(), j.ID))
	}
}

func (w *walk) cancel() {
	if j := w.one(at(delayed)); j != nil {
		must(w.t, w.Delayed().Cancel(w.t.Context(), j.ID))
		j.place = gone
	}
}

func (w *walk) replay() {
	if j := w.one(at(dead)); j != nil {
		entry := j.entry
		w.revive(j)
		must(w.t, w.DeadLetters().Replay(w.t.Context(), entry, jobs.ReplayOptions{}))
	}
}

func (w *walk) replayAll() {
	j := w.one(at(dead))
	if j == nil {
		return
	}
	want := 0
	for _, other := range w.all {
		if other.place == dead && other.Kind == j.Kind {
			w.revive(other)
			want++
		}
	}
	n, err := w.DeadLetters().ReplayAll(w.t.Context(), jobs.Filter{Kind: j.Kind}, jobs.ReplayOptions{})
	if n != want || err != nil {
		w.t.Errorf("%d dead letters were replayed of %d: %v", n, want, err)
	}
}

func (w *walk) revive(j *walked) {
	j.place, j.attempts, j.deliveries, j.entry, j.reason = ready, 0, 0, "", ""
	j.from, j.since = w.now(), time.Time{}
}

func (w *walk) discard() {
	if j := w.one(at(dead)); j != nil {
		must(w.t, w.DeadLetters().Discard(w.t.Context(), j.entry))
		j.place = gone
	}
}

// settle waits until the model and the store agree.
func (w *walk) settle() {
	pause, patience := 5*time.Millisecond, 30*time.Second
	if w.advances {
		pause, patience = 250*time.Millisecond, 60*w.lease
	}
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		now := w.now()
		w.catchUp(now)
		err := w.compare(now)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("after %d steps (%s): %v", len(w.log), w.log[max(0, len(w.log)-5):], err)
		}
	}
}

var errDiffers = errors.New("the store differs from the model")

func differ(j *walked, format string, args ...any) error {
	return fmt.Errorf("%w: job %d (%s), %s with %d attempts and %d deliveries: %s",
		errDiffers, j.n, j.ID, j.place, j.attempts, j.deliveries, fmt.Sprintf(format, args...))
}
