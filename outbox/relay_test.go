package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/outbox"
)

// Rows that were there before are carried in their order, those of one producer in the order of its transactions.
func TestManyRelaysCarryEachRowOnceInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.commit(many(3000)...)
	for range 4 {
		other := *f
		other.pool = newPool(t, f.url)
		other.relay(outbox.RelayConfig{})
	}
	const producers, transactions = 8, 40
	made := make([][]string, producers)
	stalled := make([]bool, producers) // a transaction that is open across two whole reads may be overtaken: see reach
	var producing sync.WaitGroup
	for i := range producers {
		producing.Go(func() {
			for range transactions {
				began := time.Now()
				made[i] = append(made[i], ids(f.commit(many(3)...))...)
				stalled[i] = stalled[i] || time.Since(began) > 250*time.Millisecond
			}
		})
	}
	producing.Wait()
	got := f.await(len(first) + producers*transactions*3)
	of := map[string]int{}
	for i, id := range got {
		if of[id] > 0 {
			t.Errorf("job %s was carried twice", id)
		}
		of[id] = i + 1
	}
	if len(got) != len(first)+producers*transactions*3 {
		t.Errorf("%d entries", len(got))
	}
	if !slices.Contains(stalled, false) {
		t.Log("each producer has stalled once: only the rows that were there before are judged by their order")
	}
	for i, ids := range append(made, ids(first)) {
		if !slices.IsSortedFunc(ids, func(a, b string) int { return of[a] - of[b] }) && (i == producers || !stalled[i]) {
			t.Error("out of order")
		}
	}
}

func TestCommitsOutOfTheOrderOfTheirNumbers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.relay(outbox.RelayConfig{})
	slow := f.begin()
	late := many(2)
	must(t, f.box.Enqueue(t.Context(), slow, late...))
	f.commit(many(2500)...)
	f.await(2500)
	for range 3 { // whole reads, none of which is the last
		f.commit(act.Job(nil))
		time.Sleep(1100 * time.Millisecond)
	}
	must(t, slow.Commit(t.Context()))
	got := f.await(2505)
	if len(got) != 2505 || !slices.Equal(got[2503:], ids(late)) {
		t.Errorf("%d entries, the last %v, want 2505 and %v", len(got), got[max(0, len(got)-2):], ids(late))
	}
}

// A transaction that holds a snapshot keeps everything that was published from being cleared away, one that holds a row
// is passed over.
func TestLongTransactionsStarveNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held := f.commit(many(3)...)
	snapshot, locker := f.begin(), f.begin()
	_, err := snapshot.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs.outbox`)
	must(t, err)
	_, err = locker.Exec(t.Context(), `SELECT FROM jobs.outbox WHERE outbox_id = '`+held[1].ID+`' FOR UPDATE`)
	must(t, err)
	f.relay(outbox.RelayConfig{})
	for range 5 {
		f.commit(many(2000)...)
	}
	f.eventually("all but one is carried", func() bool { return f.lag().Rows == 1 })
	if got := f.published(); len(got) != 10_002 || got[0] != held[0].ID || got[1] != held[2].ID {
		t.Errorf("%d entries", len(got))
	}
	must(t, locker.Rollback(t.Context()))
	if got := f.await(10_003); got[10_002] != held[1].ID {
		t.Errorf("last: %s", got[10_002])
	}
}

// Whatever the transactions of this database are unless they say it themselves.
func TestWhereTransactionsAreSerializableAndReadOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 3 {
		g := *f
		g.pool = newPool(t, f.url, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		})
		var log journal
		g.relay(outbox.RelayConfig{Logger: log.logger(t)})
		defer func() {
			if strings.Contains(log.String(), "trouble") {
				t.Error("there was trouble")
			}
		}()
	}
	for range 20 {
		f.commit(many(2)...)
	}
	if got := f.await(40); len(got) != 40 {
		t.Errorf("%d entries", len(got))
	}
}

// Each statement sees what is committed, whatever transactions are unless they say it themselves: a row that is changed
// between the beginning of a relay's transaction and its read is carried as it is then.
func TestARowThatIsChangedBeforeTheRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := f.commit(act.Job(nil))[0]
	g := *f
	g.pool = newPool(t, f.url, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
		c.ConnConfig.Tracer = beforeRead(sync.OnceFunc(func() { f.exec(`UPDATE jobs.outbox SET request_id = 'changed'`) }))
	})
	var log journal
	g.relay(outbox.RelayConfig{Logger: log.logger(t)})
	if got := f.await(1); got[0] != job.ID || f.entries()[0].Values["request_id"] != "changed" {
		t.Errorf("carried: %v", f.entries()[0].Values)
	}
	if strings.Contains(log.String(), "trouble") {
		t.Error("there was trouble")
	}
}

// beforeRead is called before each read of a relay.
type beforeRead func()

func (b beforeRead) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(q.SQL, "SELECT ctid") {
		b()
	}
	return ctx
}
func (beforeRead) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Rows written by another program.
func TestRowsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO jobs.outbox (kind, fields) VALUES ('act', '{"order_id": "4471"}')`)
	f.exec(`INSERT INTO jobs.outbox (kind) VALUES ('act')`)
	f.exec(`INSERT INTO jobs.outbox (kind, fields, request_id) VALUES ('act', json_build_object('order_id', 4471, 'vip', true,
		'rate', 1.50, 'seats', json_build_array('1A'), 'none', NULL, 'note', 'a "b"'), '7f3a')`)
	f.exec(`INSERT INTO jobs.outbox (kind, fields) VALUES ('act', '{"fields_base64": {"YQ==": "/w=="}}')`)
	f.exec(`COPY jobs.outbox (kind, fields) FROM PROGRAM 'printf "act\t{}\n"'`)
	f.exec(`INSERT INTO jobs.outbox (kind, fields) VALUES ('act', '{"a": "\ud800"}'), ('act', '{"a": "\ud800", "n": 1}')`)
	f.relay(outbox.RelayConfig{})
	f.await(7)
	want := []map[string]any{
		{"order_id": "4471"}, {},
		{"order_id": "4471", "vip": "true", "rate": "1.50", "seats": `["1A"]`, "note": `a "b"`, "request_id": "7f3a"},
		{"a": "\xff"}, {},
		{"a": "\xed\xa0\x80"}, {"a": "\xed\xa0\x80", "n": "1"}, // half of a surrogate pair, as Python writes bytes
	}
	for i, e := range f.entries() {
		if len(e.Values["outbox_id"].(string)) != 36 || e.Values["kind"] != "act" || e.Values["attempts"] != "0" {
			t.Errorf("entry %d: %v", i, e.Values)
		}
		for _, name := range []string{"outbox_id", "kind", "attempts"} {
			delete(e.Values, name)
		}
		if diff := cmp.Diff(want[i], e.Values); diff != "" {
			t.Errorf("entry %d (-want +got):\n%s", i, diff)
		}
	}
	for _, bad := range []string{
		`(kind, fields) VALUES ('act', '[]')`, `(kind, fields) VALUES ('act', '{')`, `(kind, fields) VALUES ('act', NULL)`,
		`(kind, due) VALUES ('act', 'infinity')`, `(kind, due) VALUES ('act', '-infinity')`,
		`(kind, due) VALUES ('act', '20000-01-01')`, `(kind, scheduled_at) VALUES ('act', 'infinity')`, `(kind, scheduled_at) VALUES ('act', '-infinity')`,
	} {
		if _, err := f.pool.Exec(t.Context(), `INSERT INTO jobs.outbox `+bad); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}

// What cannot be a job is a dead letter, and in nobody's way.
func TestRowsThatAreNoJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	manyFields := func(n int) string {
		all := make(map[string]string)
		for i := range n {
			all[fmt.Sprint(i)] = ""
		}
		text, err := json.Marshal(all)
		must(t, err)
		return string(text)
	}
	before := f.commit(act.Job(nil))
	bad := []struct{ kind, fields, want string }{
		{"", `{}`, "a kind without a name"},
		{"a b", `{}`, "has a space"},
		{"act", `{"job_id": "1"}`, `the field name "job_id" is reserved`},
		{"act", `{"error": "x", "n": 1}`, `the field name "error" is reserved`},
		{"act", `{"fields_base64": {"a": "b"}}`, "is not base64"},
		{"act", `{"fields_base64": {}, "a": "b"}`, "an object beside other fields"},
		{"act", manyFields(1001), "it has 1001 fields"},
		{"act", manyFields(997), "it has 1001 fields"}, // with its kind, its ID, its request's and its attempts
	}
	for _, b := range bad {
		f.exec(`INSERT INTO jobs.outbox (kind, fields, request_id) VALUES ($1, $2, '7f3a')`, b.kind, b.fields)
	}
	after := f.commit(act.Job(nil))
	var log journal
	f.relay(outbox.RelayConfig{Logger: log.logger(t)})
	if got := f.await(2); !slices.Equal(got, []string{before[0].ID, after[0].ID}) {
		t.Errorf("carried: %v", got)
	}
	i := 0
	for letter, err := range f.client.DeadLetters().List(t.Context(), jobs.Filter{}) {
		must(t, err)
		b := bad[i]
		row := one[string](f, `SELECT outbox_id::text FROM jobs.outbox ORDER BY seq OFFSET $1 LIMIT 1`, i+1)
		where := one[string](f, `SELECT 'row ' || seq || ' of the outbox: ' FROM jobs.outbox ORDER BY seq OFFSET $1 LIMIT 1`, i+1)
		if !strings.Contains(letter.Error, where) || !strings.Contains(letter.Error, b.want) ||
			letter.Reason != jobs.ReasonUndecodable || letter.Raw != b.fields ||
			letter.Kind != b.kind || letter.ID != row || letter.RequestID != "7f3a" || letter.Attempts != 0 {
			t.Errorf("letter %d: %+v, want %+v of row %s", i, letter, b, row)
		}
		// As the worker has it, so that one search finds both.
		line := " job.id=" + row + " job.kind=" + quoted(b.kind) + " job.attempts=0 job.request_id=7f3a reason=undecodable err="
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log has no %s", line)
		}
		i++
	}
	if i != len(bad) {
		t.Errorf("%d dead letters, want %d", i, len(bad))
	}
	if n := strings.Count(log.String(), "dead-lettered"); n != len(bad) {
		t.Errorf("%d lines in the log", n)
	}
	f.exec(`UPDATE jobs.outbox SET kind = 'act', published_at = NULL WHERE kind = 'a b'`) // and a human has corrected it
	f.await(3)
}

// quoted is a value as slog writes it.
func quoted(s string) string {
	if s == "" || strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return s
}

// However large a row that is no job, its dead letter is not.
func TestDeadLettersOfLargeRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO jobs.outbox (kind, trace, fields) VALUES ('a b', '4bf9', json_build_object('big', repeat('x', 3 << 20)))`)
	f.relay(outbox.RelayConfig{})
	f.await(0)
	n := 0
	for letter, err := range f.client.DeadLetters().List(t.Context(), jobs.Filter{}) {
		must(t, err)
		n++
		if len(letter.Raw) != 1<<20 || !strings.HasPrefix(letter.Raw, `{"big" : "xxx`) || !strings.HasSuffix(letter.Raw, "[cut, 3145740 bytes]") {
			t.Errorf("of the row %d bytes are kept, %.20q … %q", len(letter.Raw), letter.Raw, letter.Raw[max(0, len(letter.Raw)-30):])
		}
		if letter.Trace != "4bf9" {
			t.Errorf("its trace is %q", letter.Trace)
		}
	}
	if n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

func TestOldDeadLettersFallOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO jobs.outbox (kind) SELECT '' FROM generate_series(1, 5)`)
	var log journal
	f.relay(outbox.RelayConfig{KeepDead: 3, Logger: log.logger(t)})
	f.await(0)
	f.eventually("it says so", func() bool { return strings.Contains(log.String(), "dropped=2 kept=3") })
	if n := f.rdb.XLen(t.Context(), f.prefix+"jobs:dead").Val(); n != 3 {
		t.Errorf("%d dead letters, want 3", n)
	}
}

func TestABatchIsOneTripToRedis(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var trips tripCounter
	f.rdb.AddHook(&trips)
	f.commit(many(2000)...)
	f.relay(outbox.RelayConfig{})
	f.await(2000)
	if n := trips.transactions.Load(); n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
}

type tripCounter struct{ transactions atomic.Int64 }

func (*tripCounter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "multi" && cmds[1].Name() == "xadd" {
			c.transactions.Add(1)
		}
		return next(ctx, cmds)
	}
}

func TestLargeRowsGoInSmallerBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var trips tripCounter
	f.rdb.AddHook(&trips)
	batch := many(30)
	for i := range batch {
		batch[i].Fields = jobs.Fields{"big": strings.Repeat("x", 1<<20)}
	}
	f.commit(batch...)
	f.relay(outbox.RelayConfig{})
	if diff := cmp.Diff(ids(batch), f.await(30)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if n := trips.transactions.Load(); n < 4 || n > 8 {
		t.Errorf("%d transactions of 30 MiB", n)
	}
	before := trips.transactions.Load()
	f.commit(many(2000)...)
	f.await(2030)
	if n := trips.transactions.Load() - before; n > 20 {
		t.Errorf("%d transactions of 2,000 small rows: the batches did not grow again", n)
	}
}

// A batch that does not come through in the time there is goes in halves, and not again and again as it is.
func TestABatchThatFailsGoesInHalves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.rdb.AddHook(narrow(150))
	batch := many(400)
	f.commit(batch...)
	f.relay(outbox.RelayConfig{})
	if diff := cmp.Diff(ids(batch), f.await(400)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// narrow is a connection that is cut where more commands than that are sent at once.
type narrow int

func (narrow) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (narrow) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (n narrow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > int(n) {
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmds)
	}
}

// With an hour between polls it is notifications that carry, of rows from anywhere.
func TestACommitWakesTheRelay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.relay(outbox.RelayConfig{Poll: time.Hour})
	for i := range 5 {
		f.exec(`INSERT INTO jobs.outbox (kind) VALUES ('act')`)
		f.await(i + 1)
	}
	if n := one[int](f, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`); n != 1 {
		t.Errorf("%d connections listen", n)
	}
}

func TestWithoutNotificationsTheRelayPolls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.relay(outbox.RelayConfig{Poll: 20 * time.Millisecond, Listen: nowhere(t)})
	for i := range 5 {
		f.commit(act.Job(nil))
		f.await(i + 1)
	}
}

// With an hour between polls and no notifications it is nothing but the backlog itself that keeps the relay going.
func TestABacklogIsCarriedWithoutAPause(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.commit(many(2500)...)
	f.relay(outbox.RelayConfig{Poll: time.Hour, Listen: nowhere(t)})
	f.await(2500)
}

// nowhere is where no connection is to be had.
func nowhere(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://127.0.0.1:1/nowhere")
	must(t, err)
	return config
}

// A relay that stands by looks whether the other is gone, however seldom it polls.
func TestARelayThatStandsByTakesOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.commit(many(1)...)
	other := f.begin() // has what gives a relay the right to publish
	key := fnv.New32a()
	_, _ = key.Write([]byte("jobs"))
	_, err := other.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1886547833, $1)`, int32(key.Sum32()))
	must(t, err)
	g := *f
	g.pool = newPool(t, f.url)
	g.relay(outbox.RelayConfig{Poll: time.Hour, Listen: nowhere(t)})
	f.eventually("it stands by", func() bool { return g.pool.Stat().AcquireCount() > 3 })
	if got := f.published(); len(got) != 0 {
		t.Errorf("%d rows were carried by the other's leave", len(got))
	}
	must(t, other.Rollback(t.Context()))
	f.await(1)
}

func TestRunReturnsForWhatWaitingDoesNotMend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA jobs TO reader;
		GRANT SELECT ON jobs.outbox TO reader`)
	t.Cleanup(func() { _, _ = f.pool.Exec(context.Background(), `DROP OWNED BY reader; DROP ROLE reader`) })
	broken := jobs.NewClient(f.rdb, jobs.Options{Prefix: f.prefix + "broken:"})
	must(t, f.rdb.Set(t.Context(), f.prefix+"broken:jobs", "x", time.Minute).Err())
	for name, c := range map[string]struct {
		pool   *pgxpool.Pool
		client *jobs.Client
		schema string
		want   string
	}{
		"no schema":    {f.pool, f.client, "elsewhere", `"elsewhere.outbox" does not exist`},
		"no table":     {f.pool, f.client, "public", `"public.outbox" does not exist`},
		"no right":     {newPool(t, strings.Replace(f.url, "postgres@", "reader@", 1)), f.client, "", "permission denied"},
		"no user":      {newPool(t, strings.Replace(f.url, "postgres@", "nobody@", 1)), f.client, "", `"nobody" does not exist`},
		"no database":  {newPool(t, strings.Replace(f.url, "?", "x?", 1)), f.client, "", "does not exist"},
		"a wrong type": {f.pool, broken, "", "holds a string"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			var log journal
			err := outbox.NewRelay(c.pool, c.client, outbox.RelayConfig{Schema: c.schema, Logger: log.logger(t)}).Run(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "outbox: Run: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run: %v, want %s", err, c.want)
			}
			if text := strings.ReplaceAll(log.String(), `\"`, `"`); strings.Count(text, "level=ERROR") != 1 ||
				!strings.Contains(text, `msg="outbox: the relay cannot start"`) || !strings.Contains(text, c.want) {
				t.Errorf("the log says %s", text)
			}
		})
	}
}

func TestRunEndsWhileTheServersAreAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	nobody := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer nobody.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0") // and never answers
	must(t, err)
	defer l.Close()
	silent := newPool(t, "postgres://postgres@"+l.Addr().String()+"/x?sslmode=disable")
	for name, r := range map[string]*outbox.Relay{
		"no Redis":      outbox.NewRelay(f.pool, jobs.NewClient(nobody, jobs.Options{}), f.quiet(outbox.RelayConfig{})),
		"no PostgreSQL": outbox.NewRelay(silent, f.client, f.quiet(outbox.RelayConfig{})),
	} {
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, stop)
		start := time.Now()
		if err := r.Run(ctx); err != nil || time.Since(start) > 3*time.Second {
			t.Errorf("%s: Run: %v after %s", name, err, time.Since(start))
		}
	}
}

func TestARelayRunsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := outbox.NewRelay(f.pool, f.client, f.quiet(outbox.RelayConfig{}))
	f.run(r)()
	if err := r.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
}

func TestConfigsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]outbox.RelayConfig{
		"poll": {Poll: -1}, "keep": {KeepDead: -1}, "schema": {Schema: strings.Repeat("x", 64)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			outbox.NewRelay(f.pool, f.client, c)
		}()
	}
	for name, relay := range map[string]func(){
		"no pool":   func() { outbox.NewRelay(nil, f.client, outbox.RelayConfig{}) },
		"no client": func() { outbox.NewRelay(f.pool, nil, outbox.RelayConfig{}) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "without a pool or a client") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			relay()
		}()
	}
}

// However wrong PostgreSQL's idea of how many rows wait, a batch reads no more of them than it carries.
func TestABacklogIsReadOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 40 { // of which PostgreSQL has no statistics
		f.commit(many(1000)...)
	}
	g := *f
	g.pool = newPool(t, f.url)
	stop := g.relay(outbox.RelayConfig{Poll: time.Hour})
	f.eventually("the rows are carried", func() bool { // asking PostgreSQL would count, too
		return f.rdb.XLen(t.Context(), f.prefix+"jobs").Val() == 40_000
	})
	stop()
	g.pool.Close() // its sessions hand their counts in
	read := func() int {
		return one[int](f, `SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_unpublished'`)
	}
	f.eventually("the counts are in", func() bool { return read() >= 40_000 })
	// Once by the batches, and at most once more by each of the two reads that begin at the bottom: the one behind the
	// last batch, and the one when somebody listens. Read by each batch anew it is 800,000.
	if n := read(); n > 120_000 {
		t.Errorf("%d entries of the index were read", n)
	}
}
