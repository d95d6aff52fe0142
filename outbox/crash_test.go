package outbox_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/crashes"
	"github.com/stagedoor/jobs/outbox"
)

// TestCrashPoints lets a relay die before and after each statement that it sends to PostgreSQL and each command that it
// sends to Redis, and looks whether another one then carries what was committed: each row at least once, and twice only
// if the first died between the entry and its mark. The points are found by watching a relay live.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	h := &harness{fixture: newFixture(t), hits: map[string]int{}}
	points := h.play(crashes.Point{}).points()
	if len(points) < 20 {
		t.Fatalf("%d points: %v", len(points), points)
	}
	room := make(chan struct{}, 8)
	var trying sync.WaitGroup
	for _, p := range points {
		for _, after := range []bool{false, true} {
			at := p
			at.After = after
			room <- struct{}{}
			trying.Go(func() {
				defer func() { <-room }()
				h.try(at)
			})
		}
	}
	trying.Wait()
	for _, name := range []string{"begin", "read", "mark", "multi xadd", "row", "zadd", "xadd"} {
		for _, when := range []string{"before ", "after "} {
			if h.hits[when+name] == 0 {
				t.Errorf("never came to %s%s", when, name)
			}
		}
	}
	fmt.Printf("outbox crash points: %d, rows: %d, lost: %d, unexplained doubles: %d, explained doubles: %d\n",
		h.struck, h.rows, h.lost, h.doubled, h.explained)
}

type harness struct {
	*fixture
	mu                                     sync.Mutex
	games                                  int
	hits                                   map[string]int
	struck, rows, lost, doubled, explained int
}

// try plays until the relay has died at the point; how often it polls is a matter of chance.
func (h *harness) try(at crashes.Point) {
	for range 3 {
		if v := h.play(at); v.died() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.struck++
			h.hits[at.Name()]++
			return
		}
	}
	h.Logf("does not come again: %s", at)
}

// play has a relay carry rows until it dies or has carried all, and then another one the rest.
func (h *harness) play(at crashes.Point) *victim {
	h.mu.Lock()
	h.games++
	name := fmt.Sprintf("game%d", h.games)
	h.mu.Unlock()
	f := *h.fixture
	f.prefix = h.prefix + name + ":"
	f.box = outbox.Outbox{Schema: name}
	f.client = jobs.NewClient(f.rdb, jobs.Options{Prefix: f.prefix})
	must(f, f.box.Migrate(f.Context(), f.pool))
	committed := f.commit(act.Job(nil), act.Job(nil), act.Job(nil).In(time.Hour))
	f.exec(`INSERT INTO ` + name + `.outbox (kind) VALUES ('no job')`)

	v := newVictim(at)
	stop := v.run(&f)
	for _, batch := range [][]jobs.Job{many(1), {act.Job(nil).In(time.Hour)}, many(2), nil} {
		f.eventually("the relay dies or goes on", func() bool { return v.Dead() || f.lag().Rows == 0 })
		committed = append(committed, f.commit(batch...)...)
	}
	f.eventually("the relay dies, or has rested", func() bool { return v.Dead() || v.rested() })
	stop()
	defer f.relay(outbox.RelayConfig{Schema: name, Poll: 20 * time.Millisecond, Logger: discard})()
	f.eventually("another carries the rest", func() bool { return f.lag().Rows == 0 })
	h.judge(&f, v, at, committed)
	return v
}

func (h *harness) judge(f *fixture, v *victim, at crashes.Point, committed []jobs.Job) {
	found := counts(f.published())
	for d, err := range f.client.Delayed().List(f.Context()) {
		must(f, err)
		found[d.ID]++
	}
	dead, err := f.rdb.XLen(f.Context(), f.prefix+"jobs:dead").Result()
	must(f, err)
	found["the row that is no job"] = int(dead)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range append(ids(committed), "the row that is no job") {
		h.rows++
		n := found[id]
		delete(found, id)
		switch {
		case n == 0:
			h.lost++
			f.Errorf("%s: lost: %s", at, id)
		case n == 2 && v.died() && v.unmarked:
			h.explained++
		case n > 1:
			h.doubled++
			f.Errorf("%s: unexplained: %s is there %d times", at, id, n)
		}
	}
	for id := range found {
		f.Errorf("%s: nobody committed %s", at, id)
	}
}

// victim is a relay that dies: to Redis it is a crashes.Process, to PostgreSQL the tracer of a pool.
type victim struct {
	*crashes.Process
	at crashes.Point

	mu    sync.Mutex
	seen  map[string]int
	list  []crashes.Point
	conns []net.Conn
	hit   bool

	unmarked bool // entries were made, and the mark has not come back: these may be made once more
}

func newVictim(at crashes.Point) *victim {
	return &victim{at: at, seen: map[string]int{}, Process: crashes.NewProcess(redisName, 0, at)}
}

// run runs the relay; stop ends it, if it has not died, and takes its connections away.
func (v *victim) run(f *fixture) (stop func()) {
	rdb := redis.NewClient(&redis.Options{Addr: f.rdb.Options().Addr})
	rdb.AddHook(v.Process)
	rdb.AddHook(entries{v})
	pool := newPool(f.T, f.url, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = v
		c.ConnConfig.DialFunc = v.dial
	})
	r := outbox.NewRelay(pool, jobs.NewClient(rdb, jobs.Options{Prefix: f.prefix}),
		outbox.RelayConfig{Schema: f.box.Schema, Poll: 20 * time.Millisecond, Logger: discard})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	go func() {
		<-v.Over()
		v.close()
		cancel()
	}()
	return func() {
		v.Kill()
		<-ended
		pool.Close()
		_ = rdb.Close()
	}
}

func (v *victim) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conns = append(v.conns, c)
	return c, nil
}

func (v *victim) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.conns {
		_ = c.Close() // the client may have closed it
	}
}

type statement struct{} // the key of a point in a context

func (v *victim) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	v.mu.Lock()
	name := postgresName(q.SQL)
	v.seen[name]++
	p := crashes.Point{Command: name, Nth: v.seen[name]}
	v.list = append(v.list, p)
	v.mu.Unlock()
	v.strike(p)
	if v.Dead() {
		dead, cancel := context.WithCancel(ctx)
		cancel() // nothing is sent
		return dead
	}
	return context.WithValue(ctx, statement{}, p)
}

func (v *victim) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if p, ok := ctx.Value(statement{}).(crashes.Point); ok {
		v.mu.Lock()
		v.unmarked = v.unmarked && (p.Command != "mark" || q.Err != nil)
		v.mu.Unlock()
		p.After = true
		v.strike(p)
	}
}

func (v *victim) strike(p crashes.Point) {
	if p != v.at || v.Dead() {
		return
	}
	v.mu.Lock()
	v.hit = true
	v.mu.Unlock()
	v.Kill()
	v.close()
}

// died says that it did so at its point.
func (v *victim) died() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hit || v.Struck()
}

// rested says that it has found nothing to do, and listens.
func (v *victim) rested() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen["rollback"] > 1 && v.seen["notify"] > 0
}

// points are what it came past: of what is done again and again the first few.
func (v *victim) points() []crashes.Point {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(append(v.list, v.Points()...), func(p crashes.Point) bool { return p.Nth > 3 })
}

// entries are seen as they reach Redis.
type entries struct{ *victim }

func (entries) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e entries) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e.see(cmd)
		return next(ctx, cmd)
	}
}

func (e entries) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		e.see(cmds...)
		return next(ctx, cmds)
	}
}

func (e entries) see(cmds ...redis.Cmder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cmd := range cmds {
		words := make([]string, len(cmd.Args()))
		for i, arg := range cmd.Args() {
			words[i] = fmt.Sprint(arg)
		}
		e.unmarked = e.unmarked || slices.Contains([]string{"xadd", "zadd", "row"}, redisName(words))
	}
}

func postgresName(sql string) string {
	for _, c := range [...][2]string{
		{"WHERE false", "try"}, {"pg_try_advisory", "begin"}, {"SELECT ctid", "read"}, {"UPDATE", "mark"},
		{"ROLLBACK", "rollback"}, {"LISTEN", "listen"}, {"NOTIFY", "notify"}, {"pg_backend_pid", "pid"},
	} {
		if strings.Contains(sql, c[0]) {
			return c[1]
		}
	}
	return sql
}

func redisName(words []string) string {
	name := strings.ToLower(words[0])
	switch {
	case slices.Contains(words, "nomkstream"), slices.Contains(words, "xx"), slices.Contains(words, "return 1"):
		return "try " + name
	case name == "eval":
		return "row"
	}
	return name
}
