package telemetry

import (
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Attributes that the conventions have none for.
const (
	kindKey     = attribute.Key("jobs.kind")
	outcomeKey  = attribute.Key("jobs.outcome")
	reasonKey   = attribute.Key("jobs.reason")
	stateKey    = attribute.Key("jobs.state")
	scheduleKey = attribute.Key("jobs.schedule")
	loopKey     = attribute.Key("jobs.loop")
	queryKey    = attribute.Key("jobs.query")
	attemptKey  = attribute.Key("jobs.attempt")
	tickKey     = attribute.Key("jobs.tick")
)

// metrics are the instruments.
type metrics struct {
	// of the conventions
	sent, consumed     metric.Int64Counter
	operation, process metric.Float64Histogram

	lag                  metric.Float64Histogram
	attempts, deliveries metric.Int64Histogram
	outcomes, dead       metric.Int64Counter
	reclaimed, lost      metric.Int64Counter
	abandoned            metric.Int64UpDownCounter
	promote, tick        metric.Float64Histogram
	trouble, blind       metric.Int64Counter

	// looked up at each collection
	depth, workers, slots metric.Int64ObservableGauge
	oldest                metric.Float64ObservableGauge
	overdue, period       metric.Float64ObservableGauge

	meter metric.Meter
}

// seconds are the conventions' buckets, and beyond them those of long jobs.
var seconds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800, 3600}

func newMetrics(meter metric.Meter) *metrics {
	b := builder{meter: meter}
	m := &metrics{
		meter:    meter,
		sent:     b.counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued, or could not be."),
		consumed: b.counter("messaging.client.consumed.messages", "{message}", "Jobs that came to this worker."),
		operation: b.seconds("messaging.client.operation.duration",
			"How long enqueueing took."),
		process: b.seconds("messaging.process.duration", "How long a run of a handler took."),

		lag:        b.seconds("jobs.lag", "For how long a job was ready before a worker had it."),
		attempts:   b.numbers("jobs.attempts", "{attempt}", "How many attempts a job took until it was done or dead.", 1, 2, 3, 4, 5, 6, 8, 11, 21),
		deliveries: b.numbers("jobs.deliveries", "{delivery}", "How often a job had been delivered when its run was over.", 1, 2, 3, 5),
		outcomes:   b.counter("jobs.outcomes", "{run}", "Runs by how they ended."),
		dead:       b.counter("jobs.dead_letters", "{job}", "Jobs that were dead-lettered, by the reason."),
		reclaimed:  b.counter("jobs.reclaimed", "{job}", "Jobs that were taken over from a silent worker."),
		lost:       b.counter("jobs.leases.lost", "{lease}", "Jobs that became another worker's while they ran here."),
		promote:    b.seconds("jobs.promote.lateness", "How late a due job became ready: the latest of each batch."),
		tick:       b.seconds("jobs.tick.lateness", "How late a tick of a schedule became a job."),
		trouble:    b.counter("jobs.redis.errors", "{error}", "Commands of a worker's loops that Redis did not answer or refused."),
		blind:      b.counter("jobs.collect.errors", "{error}", "Collections in which Redis could not be asked for the gauges."),

		depth:   b.gauge("jobs.depth", "{job}", "Jobs by where they are."),
		workers: b.gauge("jobs.workers", "{worker}", "Workers that live."),
		slots:   b.gauge("jobs.slots", "{slot}", "Slots of all workers that live."),
		oldest:  b.age("jobs.ready.oldest.age", "For how long the oldest ready job has waited."),
		overdue: b.age("jobs.schedule.overdue", "For how long a schedule's next tick has been due; 0 while it is not."),
		period:  b.age("jobs.schedule.period", "The time between a schedule's last tick and its next; 0 where the last is not known."),
	}
	var err error
	m.abandoned, err = meter.Int64UpDownCounter("jobs.handlers.abandoned", metric.WithUnit("{handler}"),
		metric.WithDescription("Handlers that outlived their timeout, and still run without a slot."))
	if err = errors.Join(b.err, err); err != nil {
		otel.Handle(err)
	}
	return m
}

// builder makes instruments, and keeps what the SDK says against them.
type builder struct {
	meter metric.Meter
	err   error
}

func (b *builder) counter(name, unit, about string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	b.err = errors.Join(b.err, err)
	return c
}

func (b *builder) seconds(name, about string) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(seconds...))
	b.err = errors.Join(b.err, err)
	return h
}

func (b *builder) numbers(name, unit, about string, bounds ...float64) metric.Int64Histogram {
	h, err := b.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(bounds...))
	b.err = errors.Join(b.err, err)
	return h
}

func (b *builder) gauge(name, unit, about string) metric.Int64ObservableGauge {
	g, err := b.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	b.err = errors.Join(b.err, err)
	return g
}

func (b *builder) age(name, about string) metric.Float64ObservableGauge {
	g, err := b.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
	b.err = errors.Join(b.err, err)
	return g
}

// A series is the attributes of a point, in the forms that instruments take them.
type series struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe metric.ObserveOption
}

// seriesKey is what is said beside the queue's attributes.
type seriesKey [5]attribute.KeyValue

// known are the series that there are: each is made once, for making one costs more than all
// else that is done for a point.
type known struct {
	mu  sync.RWMutex
	all map[seriesKey]*series
}

// with is the queue's attributes and more; a seriesKey has room for so many.
func (t *Telemetry) with(more ...attribute.KeyValue) *series {
	var key seriesKey
	copy(key[:], more)
	t.known.mu.RLock()
	s := t.known.all[key]
	t.known.mu.RUnlock()
	if s == nil {
		s = t.series(key, len(more))
	}
	return s
}

func (t *Telemetry) series(key seriesKey, n int) *series {
	of := metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(key[:n]), t.queue...)...))
	s := &series{[]metric.AddOption{of}, []metric.RecordOption{of}, of}
	t.known.mu.Lock()
	defer t.known.mu.Unlock()
	if t.known.all == nil {
		t.known.all = map[seriesKey]*series{}
	}
	t.known.all[key] = s
	return s
}

// operation are the attributes of what the conventions call an operation.
func operation(name string, of attribute.KeyValue, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, semconv.MessagingOperationName(name), of)
}
