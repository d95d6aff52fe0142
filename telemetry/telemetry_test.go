package telemetry_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/telemetry"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// The tests wait more than they work: more of them at once than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("8")
	}
	os.Exit(servers.Main(m))
}

// fleet is a queue with one worker, watched by OpenTelemetry's own readers.
type fleet struct {
	*jobs.Client
	t      *testing.T
	rdb    *redis.Client
	tel    *telemetry.Telemetry
	reader *sdkmetric.ManualReader
	meters *sdkmetric.MeterProvider
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	runner *jobs.Runner
	events chan jobs.Event
	came   []jobs.Event // and not asked for yet
}

// patience is for how long a test waits for what must come.
const patience = 30 * time.Second

// each runs f on a miniredis and on a real Redis.
func each(t *testing.T, f func(t *testing.T, q *fleet)) {
	t.Helper()
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) { f(t, watched(t, rdb, jobs.Config{}, jobs.Options{})) })
}

func watched(t *testing.T, rdb *redis.Client, cfg jobs.Config, o jobs.Options) *fleet {
	q := &fleet{t: t, rdb: rdb, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder(), events: make(chan jobs.Event, 1000)}
	q.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q.spans))
	q.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(q.reader))
	q.tel = telemetry.New(telemetry.Options{
		MeterProvider:  q.meters,
		TracerProvider: q.tracer,
		Prefix:         o.Prefix,
		Timeout:        time.Second,
	})
	q.Client = jobs.NewClient(rdb, q.tel.Client(o))
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Observe = func(e jobs.Event) { q.events <- e }
	if cfg.Lease == 0 {
		cfg.Lease = 400 * time.Millisecond
	}
	q.runner = jobs.NewRunner(q.Client, q.tel.Runner(cfg))
	return q
}

// run has the worker work until the test's end, or until stop is called.
func (q *fleet) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.runner.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), "grace time") {
			q.t.Error(err)
		}
	})
	q.t.Cleanup(stop)
	return stop
}

// await waits for an event, and takes it away; others stay for their turn.
func (q *fleet) await(what jobs.EventKind, is func(jobs.Event) bool) jobs.Event {
	q.t.Helper()
	late := time.After(patience)
	for next := 0; ; next++ {
		for next == len(q.came) {
			select {
			case e := <-q.events:
				q.came = append(q.came, e)
			case <-late:
				q.t.Fatalf("no event %d in %s: %+v", what, patience, q.came)
			}
		}
		if e := q.came[next]; e.What == what && (is == nil || is(e)) {
			q.came = slices.Delete(q.came, next, next+1)
			return e
		}
	}
}

// settled waits until a run has ended so.
func (q *fleet) settled(outcome string) jobs.Event {
	q.t.Helper()
	return q.await(jobs.EventSettled, func(e jobs.Event) bool { return e.Outcome == outcome })
}

func (q *fleet) enqueue(js ...jobs.Job) {
	q.t.Helper()
	must(q.t, q.Enqueue(q.t.Context(), js...))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// points are what a collection yields: by name and attributes, "jobs.outcomes{jobs.kind=a,jobs.outcome=done}", counts
// and gauges as they are, of histograms how many values there were, and of those of whole numbers, as "jobs.attempts.sum",
// their sum. What all have in common is left out.
func (q *fleet) points() map[string]float64 {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all metricdata.ResourceMetrics
	must(q.t, q.reader.Collect(ctx, &all))
	points := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			add(points, m)
		}
	}
	return points
}

// attributes are those of one point of a metric.
func (q *fleet) attributes(metric string) []attribute.KeyValue {
	q.t.Helper()
	var all metricdata.ResourceMetrics
	must(q.t, q.reader.Collect(context.Background(), &all))
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if data, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == metric {
				return data.DataPoints[0].Attributes.ToSlice()
			}
		}
	}
	return nil
}

func add(points map[string]float64, m metricdata.Metrics) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			points[m.Name+text(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			points[m.Name+text(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			points[m.Name+text(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			points[m.Name+text(p.Attributes)] = float64(p.Count)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			points[m.Name+text(p.Attributes)] = float64(p.Count)
			points[m.Name+".sum"+text(p.Attributes)] = float64(p.Sum)
		}
	}
}

func text(s attribute.Set) string {
	var words []string
	for _, a := range s.ToSlice() {
		switch a.Key {
		case "messaging.system", "messaging.destination.name", "messaging.operation.type", "messaging.consumer.group.name":
		default:
			words = append(words, string(a.Key)+"="+a.Value.String())
		}
	}
	return "{" + strings.Join(words, ",") + "}"
}

// moved fails the test where a point is not what is wanted; -1 is for an absent one.
func (q *fleet) moved(want map[string]float64) {
	q.t.Helper()
	points := q.points()
	for name, value := range want {
		got, ok := points[name]
		if !ok {
			got = -1
		}
		if got != value {
			q.t.Errorf("%s is %v, want %v", name, got, value)
		}
	}
	if q.t.Failed() {
		q.t.Logf("points: %v", points)
	}
}

// is for Handle: a handler without arguments.
func returns(err error) func(context.Context, jobs.None) error {
	return func(context.Context, jobs.None) error { return err }
}

var (
	none = jobs.None{}
	mail = jobs.NewKind[jobs.None]("mail", jobs.Policy{Retries: 1, Backoff: jobs.FullJitter(time.Millisecond, time.Millisecond)})
	pdf  = jobs.NewKind[jobs.None]("pdf", jobs.Policy{})
)

var errOut = errors.New("out of order")

func TestWithoutAnSDKNothingIsRecordedAndAllWorks(t *testing.T) {
	t.Parallel()
	for name, tel := range map[string]*telemetry.Telemetry{"nil": nil, "no SDK": telemetry.New(telemetry.Options{})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{Addr: servers.NewMiniredis(t).Addr()})
			defer rdb.Close()
			client := jobs.NewClient(rdb, tel.Client(jobs.Options{}))
			ran := make(chan jobs.Job, 1)
			runner := jobs.NewRunner(client, tel.Runner(jobs.Config{Logger: slog.New(slog.DiscardHandler)}))
			jobs.Handle(runner, mail, func(ctx context.Context, _ jobs.None) error {
				job, _ := jobs.FromContext(ctx)
				ran <- job
				return nil
			}, tel.Middleware)
			defer tel.Register(client)()
			tel.Observe(jobs.Event{What: jobs.EventSettled})
			tel.Annotate(t.Context(), &jobs.Job{})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- runner.Run(ctx) }()
			must(t, tel.Enqueue(t.Context(), client, mail.Job(none)))
			if job := <-ran; job.Trace != "" {
				t.Errorf("the trace is %q", job.Trace)
			}
			stop()
			must(t, <-ended)
		})
	}
}

// A queue that is registered twice, by two Telemetries even, is watched as one: nothing is counted double.
func TestRegisteringTwice(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		q.enqueue(mail.Job(none), mail.Job(none))
		again := telemetry.New(telemetry.Options{MeterProvider: q.meters, TracerProvider: q.tracer, Timeout: time.Second})
		for _, tel := range []*telemetry.Telemetry{q.tel, q.tel, again} {
			defer tel.Register(q.Client)()
		}
		q.moved(map[string]float64{"jobs.depth{jobs.state=ready}": 2, "jobs.workers{}": 0, "jobs.collect.errors{jobs.query=stats}": 0})
	})
}

// Run with -race: enqueueing, running, collecting and registering all at once.
func TestAllAtOnce(t *testing.T) {
	each(t, func(t *testing.T, q *fleet) {
		const producers, each = 8, 25
		jobs.Handle(q.runner, mail, returns(nil))
		jobs.Handle(q.runner, pdf, returns(errOut))
		q.run()
		var all sync.WaitGroup
		for range producers {
			all.Go(func() {
				for range each {
					if err := q.tel.Enqueue(t.Context(), q.Client, mail.Job(none), pdf.Job(none)); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				stop := q.tel.Register(q.Client)
				q.points()
				stop()
			})
		}
		for range 2 * producers * each {
			q.await(jobs.EventSettled, nil)
		}
		all.Wait()
		q.moved(map[string]float64{
			"messaging.client.sent.messages{jobs.kind=mail,messaging.operation.name=enqueue}":                           producers * each,
			"messaging.client.consumed.messages{jobs.kind=pdf,messaging.operation.name=fetch}":                          producers * each,
			"jobs.outcomes{jobs.kind=mail,jobs.outcome=done}":                                                           producers * each,
			"jobs.dead_letters{jobs.kind=pdf,jobs.reason=failed}":                                                       producers * each,
			"messaging.process.duration{jobs.kind=mail,messaging.operation.name=process}":                               producers * each,
			"messaging.client.operation.duration{messaging.operation.name=enqueue}":                                     producers * each,
			"jobs.depth{jobs.state=dead}":                                                                               -1, // nobody is registered any more
			"jobs.collect.errors{jobs.query=stats}":                                                                     0,
			"messaging.process.duration{error.type=*errors.errorString,jobs.kind=pdf,messaging.operation.name=process}": producers * each,
		})
	})
}

func kindsOf(points map[string]float64, metric string) (kinds []string) {
	for name := range points {
		if of, ok := strings.CutPrefix(name, metric+"{jobs.kind="); ok {
			kind, _, _ := strings.Cut(strings.TrimSuffix(of, "}"), ",")
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Two queues of one name would overwrite each other's figures.
func TestAPrefixThatIsForgottenIsTold(t *testing.T) {
	var told []error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { told = append(told, err) }))
	defer otel.SetErrorHandler(before)
	telemetry.New(telemetry.Options{Prefix: "b:"}).Client(jobs.Options{Prefix: "b:"})
	if len(told) > 0 {
		t.Errorf("told: %v", told)
	}
	telemetry.New(telemetry.Options{}).Client(jobs.Options{Prefix: "a:"})
	if len(told) != 1 || !strings.Contains(told[0].Error(), `"a:"`) {
		t.Errorf("told: %v", told)
	}
}
