package outbox_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/outbox"
)

func TestRolledBackIsNothingAndCommittedIsOneEntry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.relay(outbox.RelayConfig{})
	tx := f.begin()
	must(t, outbox.Enqueue(t.Context(), tx, many(3)...))
	must(t, tx.Rollback(t.Context()))
	job := jobs.NewKind[jobs.Fields]("render", jobs.Policy{}).Job(jobs.Fields{"order_id": "4471"})
	job.RequestID, job.Trace = "7f3a9c2e", "4bf92f35"
	f.commit(job)
	f.await(1)
	if entries := f.entries(); len(entries) != 1 {
		t.Errorf("%d entries, want 1", len(entries))
	} else if diff := cmp.Diff(map[string]any{
		"kind": "render", "order_id": "4471", "outbox_id": job.ID, "attempts": "0",
		"request_id": "7f3a9c2e", "trace": "4bf92f35",
	}, entries[0].Values); diff != "" {
		t.Errorf("the entry (-want +got):\n%s", diff)
	}
}

// The runner knows the job by its outbox_id, in the handler's context and in the dead letters.
func TestTheJobRunsUnderItsOutboxID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.relay(outbox.RelayConfig{})
	ran := f.work(act)
	job := f.commit(act.Job(jobs.Fields{"label": "14-C"}))[0]
	if got := <-ran; got.ID != job.ID || got.Fields["label"] != "14-C" || len(got.Fields) != 1 {
		t.Errorf("%+v ran, want %+v", got, job)
	}
}

// work runs a worker of a kind, whose jobs are told.
func (f *fixture) work(k jobs.Kind[jobs.Fields]) <-chan jobs.Job {
	f.Helper()
	ran := make(chan jobs.Job, 10_000)
	r := jobs.NewRunner(f.client, jobs.Config{Logger: f.quiet(outbox.RelayConfig{}).Logger})
	jobs.Handle(r, k, func(ctx context.Context, _ jobs.Fields) error {
		job, _ := jobs.FromContext(ctx)
		ran <- job
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		must(f, <-ended)
	})
	return ran
}

func TestWhatTheClientRefusesIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tooMany := make(jobs.Fields)
	for i := range 1000 {
		tooMany[strconv.Itoa(i)] = ""
	}
	for name, bad := range map[string]jobs.Job{
		"reserved name":   act.Job(jobs.Fields{"outbox_id": "1"}),
		"zero time":       act.Job(nil).At(time.Time{}),
		"too many fields": act.Job(tooMany),
		"no kind":         {ID: act.Job(nil).ID},
		"space in kind":   {ID: act.Job(nil).ID, Kind: "a b"},
		"unwritable":      jobs.NewKind[struct{ X odd }]("x", jobs.Policy{}).Job(struct{ X odd }{}),
	} {
		t.Run(name, func(t *testing.T) {
			tx := f.begin()
			err := outbox.Enqueue(t.Context(), tx, act.Job(nil), bad)
			want := f.client.Enqueue(t.Context(), act.Job(nil), bad)
			if _, ok := errors.AsType[*jobs.EnqueueError](err); !ok || want == nil || err.Error() != want.Error() {
				t.Errorf("outbox: %v\nclient: %v", err, want)
			}
			must(t, tx.Commit(t.Context())) // it is whole
		})
	}
	if lag := f.lag(); lag.Rows != 0 {
		t.Errorf("%d rows were written", lag.Rows)
	}
}

// What the table would refuse is refused before anything is sent, and nothing else.
func TestAsManyFieldsAsARowMayHave(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const most = 64<<20 - len(`{"big":""}`)
	big := func(n int) jobs.Job { return act.Job(jobs.Fields{"big": strings.Repeat("x", n)}) }
	tx := f.begin()
	err := f.box.Enqueue(t.Context(), tx, act.Job(nil), big(most+1))
	if _, ok := errors.AsType[*jobs.EnqueueError](err); !ok || !strings.HasSuffix(err.Error(), "its fields are 67108865 bytes as JSON, and 67108864 are permitted") {
		t.Errorf("%.300v", err)
	}
	_, err = tx.Exec(t.Context(), `INSERT INTO jobs.outbox (kind, fields) VALUES ('act', json_build_object('big', repeat('x', 64 << 20)))`)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.ConstraintName != "outbox_fields" {
		t.Errorf("written by others: %v", err)
	}
	err = f.box.Enqueue(t.Context(), tx, big(most)) // which is sent, and not written only because the transaction has failed
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "25P02" {
		t.Errorf("at the limit: %.300v", err)
	}
}

// odd cannot be written as a field.
type odd struct{ F func() }

func (odd) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

func TestIDsThatAreNoUUIDs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"88210", "0197A3C0-0000-7000-8000-00000000000A", "{0197a3c0-0000-7000-8000-00000000000a}", "\xff"} {
		err := outbox.Enqueue(t.Context(), f.begin(), jobs.Job{Kind: "act", ID: id})
		if err == nil || !strings.Contains(err.Error(), "is no UUID") {
			t.Errorf("ID %q: %v", id, err)
		}
	}
	f.commit(jobs.Job{Kind: "act"}) // mints one
	if id := one[string](f, `SELECT outbox_id::text FROM jobs.outbox`); uuid.Validate(id) != nil || id[14] != '7' {
		t.Errorf("the ID %s is no UUIDv7", id)
	}
}

// A transaction whose COMMIT was never answered is tried again with the same jobs.
func TestTheSameJobIsOneRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := act.Job(nil)
	f.commit(job, job)
	f.commit(job, act.Job(nil))
	other := jobs.NewKind[jobs.None]("other", jobs.Policy{}).Job(jobs.None{})
	other.ID = job.ID // kind and ID together are a job
	f.commit(other)
	if lag := f.lag(); lag.Rows != 3 {
		t.Errorf("%d rows, want 3", lag.Rows)
	}
}

func TestManyRowsAreOneRoundTripInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var tracer counter
	pool := newPool(t, f.url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &tracer })
	batch := many(2500)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		tracer.n = 0
		err := outbox.Enqueue(t.Context(), tx, batch...)
		if tracer.n != 1 {
			t.Errorf("%d statements, want 1", tracer.n)
		}
		return err
	}))
	f.relay(outbox.RelayConfig{})
	if diff := cmp.Diff(ids(batch), f.await(len(batch))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// counter counts statements.
type counter struct{ n int }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n++
	return ctx
}
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestVeryManyRowsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	batch := many(20_000) // more columns than a statement may have parameters
	f.commit(batch...)
	if n := f.lag().Rows; n != int64(len(batch)) {
		t.Errorf("%d rows, want %d", n, len(batch))
	}
	if last := one[string](f, `SELECT outbox_id::text FROM jobs.outbox ORDER BY seq DESC LIMIT 1`); last != batch[len(batch)-1].ID {
		t.Errorf("the last row is %s", last)
	}
}

// A savepoint is a transaction in the transaction.
func TestEnqueueWithinASavepoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin()
	kept := many(4)
	must(t, f.box.Enqueue(t.Context(), tx, kept[0]))
	must(t, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return f.box.Enqueue(t.Context(), tx, kept[1:3]...) }))
	no := errors.New("no")
	err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
		must(t, f.box.Enqueue(t.Context(), tx, many(2)...))
		return no
	})
	if !errors.Is(err, no) {
		t.Fatal(err)
	}
	must(t, f.box.Enqueue(t.Context(), tx, kept[3]))
	must(t, tx.Commit(t.Context()))
	f.relay(outbox.RelayConfig{})
	if diff := cmp.Diff(ids(kept), f.await(4)); diff != "" {
		t.Errorf("carried (-want +got):\n%s", diff)
	}
}

func TestEnqueueInATransactionThatHasFailed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin()
	must(t, f.box.Enqueue(t.Context(), tx, act.Job(nil)))
	if _, err := tx.Exec(t.Context(), `SELECT 1 / 0`); err == nil {
		t.Fatal("it has not failed")
	}
	for _, n := range []int{1, 2} {
		err := f.box.Enqueue(t.Context(), tx, many(n)...)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "25P02" || !strings.HasPrefix(err.Error(), "outbox: enqueue: ") {
			t.Errorf("%d jobs: %v", n, err)
		}
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("COMMIT: %v", err)
	}
	if lag := f.lag(); lag.Rows != 0 {
		t.Errorf("%d rows were written", lag.Rows)
	}
}

func TestAnnotateAndTheJobInTheContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	annotated := outbox.Outbox{Annotate: func(_ context.Context, j *jobs.Job) { j.Trace = "annotated"; j.Fields["by"] = "us" }}
	ctx := jobs.NewContext(t.Context(), jobs.Job{RequestID: "7f3a9c2e", Trace: "parent"})
	fields := jobs.Fields{"a": "1"}
	for _, box := range []outbox.Outbox{{}, annotated} {
		must(t, pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error { return box.Enqueue(ctx, tx, act.Job(fields)) }))
	}
	f.relay(outbox.RelayConfig{})
	f.await(2)
	want := []map[string]any{{"a": "1", "trace": "parent"}, {"a": "1", "trace": "annotated", "by": "us"}}
	for i, e := range f.entries() {
		maps.Copy(want[i], map[string]any{"kind": "act", "attempts": "0", "request_id": "7f3a9c2e", "outbox_id": e.Values["outbox_id"]})
		if diff := cmp.Diff(want[i], e.Values); diff != "" {
			t.Errorf("entry %d (-want +got):\n%s", i, diff)
		}
	}
	if len(fields) != 1 {
		t.Errorf("the caller's fields were changed: %v", fields)
	}
}

func TestAnyBytesComeThrough(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	values := []string{
		"", "\x00", "a\x00b", "\xff\xfe", string(all), "123456789012345678", `{"a":1}`, `\u0000`, "'; DROP TABLE jobs.outbox; --",
		"\u2028 ä 𝄞 \ufffd", "\xed\xa0\x80", strings.Repeat("é", 1<<19),
	}
	var batch []jobs.Job
	for _, v := range values {
		job := act.Job(jobs.Fields{"value": v, "name " + v[:min(len(v), 300)]: "x"})
		job.RequestID, job.Trace = v[:min(len(v), 100)], v[:min(len(v), 50)]
		batch = append(batch, job)
	}
	f.commit(batch...)
	f.relay(outbox.RelayConfig{})
	f.await(len(batch))
	for i, e := range f.entries() {
		want := map[string]any{"kind": "act", "attempts": "0", "outbox_id": batch[i].ID}
		for name, v := range batch[i].Fields {
			want[name] = v
		}
		if v := batch[i].RequestID; v != "" {
			want["request_id"], want["trace"] = v, batch[i].Trace
		}
		if !maps.Equal(want, e.Values) {
			t.Errorf("value %.40q came as %.200v", values[i], e.Values)
		}
	}
}

func TestTicksComeThrough(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := act.Job(nil)
	job.Tick = time.Date(2026, 11, 30, 3, 0, 0, 0, time.FixedZone("", 3600))
	f.commit(job)
	f.relay(outbox.RelayConfig{})
	f.await(1)
	if at := f.entries()[0].Values["scheduled_at"]; at != "2026-11-30T02:00:00Z" {
		t.Errorf("scheduled at %v", at)
	}
}

func TestDueTimes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	at := time.Date(2040, 2, 29, 1, 2, 3, 456_789_001, time.UTC)
	batch := []jobs.Job{
		act.Job(nil).At(at),
		act.Job(nil).At(time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)), // past
		act.Job(nil).At(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)),
		act.Job(nil).In(time.Hour + 1),
		act.Job(nil).In(math.MaxInt64),
		act.Job(nil).In(-time.Hour), // at once
	}
	tx := f.begin()
	var began time.Time
	must(t, tx.QueryRow(t.Context(), `SELECT now()`).Scan(&began))
	must(t, outbox.Enqueue(t.Context(), tx, batch...))
	must(t, tx.Commit(t.Context()))
	f.relay(outbox.RelayConfig{})
	if got := f.await(1); !slices.Equal(got, []string{batch[5].ID}) {
		t.Errorf("ready: %v", got)
	}
	due := map[string]time.Time{}
	for d, err := range f.client.Delayed().List(t.Context()) {
		must(t, err)
		due[d.ID] = d.Due
	}
	for i, want := range []time.Time{
		at.Add(999), batch1969, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		began.Add(time.Hour + time.Microsecond), began.Add(math.MaxInt64),
	} {
		if got := due[batch[i].ID]; got.Sub(want).Abs() > 100*time.Microsecond || got.Before(want.Truncate(time.Microsecond)) && i != 4 && i != 2 {
			t.Errorf("job %d is due at %v, want %v", i, got, want)
		}
	}
	for _, year := range []int{10_000, -1} {
		err := outbox.Enqueue(t.Context(), f.begin(), act.Job(nil).At(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)))
		if err == nil || !strings.Contains(err.Error(), "in the year") {
			t.Errorf("a job of the year %d: %v", year, err)
		}
	}
}

var batch1969 = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)
