//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// options of a run.
type options struct {
	seed          uint64
	jobs, workers int
	lease, length time.Duration
	spare         bool
	redis         string   // always, everysec, powercut
	args          []string // of redis-server
}

// A fleet is workers under supervision, each behind a proxy of its own, a Redis that is disturbed and one for the
// records that is not.
type fleet struct {
	testing.TB
	o       options
	redis   *servers.Redis
	record  *servers.Redis
	rdb     *redis.Client // past every proxy
	rec     *redis.Client
	direct  *jobs.Client
	net     *servers.Proxy // of producers and operators
	client  *jobs.Client   // through it
	members []*member
	journal journal
	aof     *aof // nil: nothing is cut off it

	closing     atomic.Bool
	supervisors sync.WaitGroup
	outage      sync.Mutex // held while Redis is away
}

// journal is what the harness writes down itself.
type journal struct {
	mu sync.Mutex
	History
	done map[Deed]int
	left map[Deed]int // deeds that came to nothing, since their time was a bad one
}

func (j *journal) note(f func(h *History)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(&j.History)
}

func (j *journal) trouble(s Sort, worker string, from, to time.Time) {
	j.note(func(h *History) { h.Troubles = append(h.Troubles, Trouble{s, worker, from, to}) })
}

// count counts a deed, as done or not.
func (j *journal) count(d Deed, done bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if done {
		j.done[d]++
	} else {
		j.left[d]++
	}
}

// A member is a place in the fleet: one process after the other.
type member struct {
	fleet *fleet
	index int
	proxy *servers.Proxy
	busy  sync.Mutex // held by the deed that is being done to it
	blind atomic.Value
	life  atomic.Pointer[process]
}

func newFleet(t testing.TB, o options) *fleet {
	f := &fleet{TB: t, o: o, journal: journal{done: map[Deed]int{}, left: map[Deed]int{}}}
	f.journal.Lease, f.journal.Hit = o.lease, map[string]bool{}
	f.redis = servers.NewRedis(t, servers.RedisOptions{Args: o.args})
	f.record = servers.NewRedis(t)
	f.rdb, f.rec = f.redis.Client(t), f.record.Client(t)
	f.direct = jobs.NewClient(f.rdb, jobs.Options{})
	f.net = servers.NewProxy(t, f.redis.Addr())
	through := redis.NewClient(&redis.Options{Addr: f.net.Addr()})
	t.Cleanup(func() { _ = through.Close() }) // nothing waits on it
	f.client = jobs.NewClient(through, jobs.Options{})
	for i := range o.workers {
		m := &member{fleet: f, index: i, proxy: servers.NewProxy(t, f.redis.Addr())}
		m.blind.Store("")
		f.members = append(f.members, m)
		f.supervisors.Go(m.supervise)
	}
	return f
}

// supervise starts one process after the other, as an init system would.
func (m *member) supervise() {
	f := m.fleet
	for n := 1; !f.closing.Load(); n++ {
		p, err := startWorker(f, fmt.Sprintf("w%d.%d", m.index, n),
			"REDIS_URL=redis://"+m.proxy.Addr(), "RECORD_URL="+f.record.URL(), "TICKS=1",
			"LEASE="+f.o.lease.String(), "GRACE=200ms", "BLIND="+m.blind.Load().(string))
		if err != nil {
			f.Error(err)
			return
		}
		m.life.Store(p)
		<-p.ended
		end, err := p.obituary()
		if err != nil {
			f.Error(err)
		}
		f.journal.note(func(h *History) { h.Troubles = append(h.Troubles, end) })
	}
}

// close lets every worker leave in peace.
func (f *fleet) close() {
	f.closing.Store(true)
	var all sync.WaitGroup
	for _, m := range f.members {
		all.Go(func() {
			m.busy.Lock()
			defer m.busy.Unlock()
			for p := m.life.Load(); p != nil && p.alive(); p = m.life.Load() {
				if !p.stop() {
					f.Errorf("worker %s does not leave:\n%s", p.name, p.log)
					p.kill()
				}
			}
		})
	}
	all.Wait()
	f.supervisors.Wait()
}

// probe asks Redis for an answer each 50 ms, past the proxies, and writes down where it was late.
func (f *fleet) probe(ctx context.Context) {
	o := *f.rdb.Options()
	o.MaxRetries, o.ReadTimeout = -1, -1
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	for ctx.Err() == nil {
		from := time.Now()
		err := rdb.Ping(ctx).Err()
		if to := time.Now(); err == nil && to.Sub(from) > Noticed {
			f.journal.trouble(Slow, "", from, to)
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// eventually waits for a condition.
func (f *fleet) eventually(within time.Duration, what string, holds func() bool) {
	for end := time.Now().Add(within); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			f.Errorf("not after %s: %s\n%s", within, what, f.state())
			return
		}
	}
}

// state is what Redis and the workers say, for whoever has to find out.
func (f *fleet) state() string {
	ctx := context.Background()
	var b strings.Builder
	st, err := f.direct.Stats(ctx)
	fmt.Fprintf(&b, "%+v %v\n", st, err)
	list, err := f.rdb.XInfoConsumers(ctx, "jobs", "workers").Result()
	fmt.Fprintf(&b, "consumers: %+v %v\n", list, err)
	for _, m := range f.members {
		if p := m.life.Load(); p != nil {
			log := p.log.String()
			fmt.Fprintf(&b, "worker %s, alive %t: %s\n", p.name, p.alive(), log[max(0, len(log)-1000):])
		}
	}
	return b.String()
}

// vitals are what the living workers last said.
func (f *fleet) vitals() map[string]Vitals {
	all := map[string]Vitals{}
	said := f.rec.HGetAll(context.Background(), "vitals").Val()
	for _, m := range f.members {
		p := m.life.Load()
		var v Vitals
		if p != nil && json.Unmarshal([]byte(said[p.name]), &v) == nil {
			all[p.name] = v
		}
	}
	return all
}

// goroutines is the highest number of a living worker; 0 where one has said nothing yet.
func (f *fleet) goroutines() int {
	most, all := 0, f.vitals()
	for _, v := range all {
		most = max(most, v.Goroutines)
	}
	if len(all) < len(f.members) {
		return 0
	}
	return most
}

// consumers is how many there are in the group; -1 where Redis does not say.
func (f *fleet) consumers() int {
	list, err := f.rdb.XInfoConsumers(context.Background(), "jobs", "workers").Result()
	if err != nil {
		return -1
	}
	return len(list)
}

// pending are the entries that a process owns, and how often they were delivered.
func (f *fleet) pending(p *process) ([]redis.XPendingExt, error) {
	all, err := f.rdb.XPendingExt(context.Background(), &redis.XPendingExtArgs{
		Stream: "jobs", Group: "workers", Start: "-", End: "+", Count: 10_000,
	}).Result()
	var own []redis.XPendingExt
	for _, e := range all {
		if strings.HasPrefix(e.Consumer, p.name+"-") {
			own = append(own, e)
		}
	}
	return own, err
}

// atTheirLast are those of a process's jobs that are at their last permitted delivery.
func (f *fleet) atTheirLast(p *process) (ids []string, err error) {
	own, err := f.pending(p)
	for _, e := range own {
		if e.RetryCount < Deliveries {
			continue
		}
		body, err := f.rdb.XRange(context.Background(), "jobs", e.ID, e.ID).Result()
		if err != nil {
			return ids, err
		}
		for _, m := range body {
			ids = append(ids, m.Values["job_id"].(string))
		}
	}
	return ids, err
}
