package jobs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// acked are jobs whose Enqueue has said that they are in.
type acked struct {
	mu  sync.Mutex
	ids []string
}

func (a *acked) add(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, id)
}

func (a *acked) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ids)
}

// replicated waits until a replica has what was written before, on whatever connection: a
// write and WAIT on one connection.
func replicated(ctx context.Context, rdb redis.UniversalClient) error {
	pipe := rdb.Pipeline()
	pipe.Set(ctx, "barrier", "", time.Minute)
	n := pipe.Do(ctx, "wait", 1, 1000)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if have, err := n.Int(); err != nil || have < 1 {
		return fmt.Errorf("no replica has it: %w", err)
	}
	return nil
}

// A worker with an ordinary failover client lives through the death of the master. What a
// replica had runs, or has run; what died is dead once.
func TestWorkerLivesThroughAFailover(t *testing.T) {
	t.Parallel()
	sentinel := servers.NewSentinel(t)
	rdb := sentinel.Client(t)
	q := newQueue(t, rdb, "")
	var rs runs
	fails := jobs.NewKind[jobs.Fields]("fails", jobs.Policy{})
	flaky := jobs.NewKind[jobs.Fields]("flaky", jobs.Policy{Retries: 1, Backoff: soon})
	long := jobs.NewKind[jobs.Fields]("long", jobs.Policy{})
	goOn := make(chan struct{})
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)),
		handle(fails, func(ctx context.Context, _ jobs.Fields) error { rs.add(ctx); return errSeat }),
		handle(long, func(ctx context.Context, _ jobs.Fields) error { rs.add(ctx); <-goOn; return nil }),
		handle(flaky, func(ctx context.Context, _ jobs.Fields) error {
			if rs.add(ctx).Attempts == 0 {
				return errSeat
			}
			return nil
		}))

	want := map[string]int{} // runs, where nothing is done twice
	doomed := map[string]bool{}
	round := func() error {
		js := []jobs.Job{once.Job(nil), flaky.Job(nil), fails.Job(nil), once.Job(nil).In(200 * time.Millisecond), once.Job(nil)}
		ctx := t.Context()
		if err := errors.Join(q.Enqueue(ctx, js[:4]...), q.Enqueue(ctx, js[4])); err != nil {
			return err
		}
		if err := replicated(ctx, rdb); err != nil {
			return err
		}
		for _, j := range js {
			want[j.ID] = 1
		}
		want[js[1].ID] = 2
		doomed[js[2].ID] = true
		return nil
	}
	for range 50 {
		must(t, round())
	}
	before := []jobs.Job{long.Job(nil), long.Job(nil), long.Job(nil)} // they run through it all
	q.enqueue(before...)
	eventually(t, "they run", func() bool { return rs.of(before[0].ID)+rs.of(before[1].ID)+rs.of(before[2].ID) == 3 })
	must(t, replicated(t.Context(), rdb))
	must(t, sentinel.Nodes[0].Kill())
	killed := time.Now()
	close(goOn)
	// The replica of the new master is dead, so from here on nothing is replicated.
	after := once.Job(nil)
	eventually(t, "a job is enqueued at the new master", func() bool { return q.Enqueue(t.Context(), after) == nil })
	writes := time.Since(killed)
	eventually(t, "the worker runs it by itself", func() bool { return rs.of(after.ID) > 0 })
	t.Logf("after the kill of the master: enqueued again within %s, run within %s",
		writes.Round(time.Millisecond), time.Since(killed).Round(time.Millisecond))

	eventually(t, "all is settled", func() bool {
		st := q.stats()
		return st.Ready+st.Running+st.Delayed == 0
	})
	again := 0
	for id, least := range want {
		n := rs.of(id)
		if n < least {
			t.Errorf("job %s was replicated and has run %d times, want %d", id, n, least)
		}
		again += max(0, n-least)
	}
	for _, j := range before {
		if n := rs.of(j.ID); n != 1 {
			t.Errorf("a job that ran while the master died ran %d times: its outcome was not kept", n)
		}
	}
	letters := map[string]int{}
	for _, d := range q.dead() {
		letters[d.ID]++
	}
	for id := range doomed {
		if letters[id] != 1 {
			t.Errorf("job %s is dead %d times, want once", id, letters[id])
		}
	}
	t.Logf("%d jobs were replicated before the kill, lost: 0, runs done twice: %d", len(want), again)
}

// A managed Redis swaps roles: the old master lives on as a replica and keeps its connections, and
// its name leads to the new one. A worker and a producer follow it.
func TestWorkerFollowsTheName(t *testing.T) {
	t.Parallel()
	old, next := servers.NewRedis(t), servers.NewRedis(t)
	var now atomic.Pointer[servers.Redis]
	now.Store(old)
	follow := func() *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: "queue:6379", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", now.Load().Addr())
		}})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	q, producer := newQueue(t, follow(), ""), newQueue(t, follow(), "")
	var rs runs
	q.start(jobs.Config{Lease: lease}, handle(once, record[jobs.Fields](&rs)))
	producer.enqueue(many(20)...)
	rs.wait(t, 20)
	q.idle()
	host, port, err := net.SplitHostPort(next.Addr())
	must(t, err)
	now.Store(next)
	must(t, old.Client(t).Do(t.Context(), "replicaof", host, port).Err())
	pair := many(2)
	within(t, prompt, "two are enqueued", func() bool { return producer.Enqueue(t.Context(), pair...) == nil })
	within(t, prompt, "they run", func() bool { return rs.of(pair[0].ID) == 1 && rs.of(pair[1].ID) == 1 })
}

// kills is for a report that says more than one kill can.
var kills = flag.Int("failover.kills", 1, "masters that die for each line of TestWhatReplicationLoses")

// TestWhatReplicationLoses measures how many jobs whose Enqueue was answered are missing at
// the replica that becomes the master. Only what was confirmed by WAIT is promised to be
// there. For figures:
//
//	go test . -run WhatReplicationLoses -v -failover.kills=10
func TestWhatReplicationLoses(t *testing.T) {
	t.Parallel()
	guard := []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"}
	for _, test := range []loss{
		{name: "a replica close by"},
		{name: "a replica 50 ms behind", behind: 50 * time.Millisecond},
		{name: "a replica cut off for 4 s", cut: 4 * time.Second},
		{name: "the same, with min-replicas-to-write 1 and min-replicas-max-lag 2", cut: 4 * time.Second, args: guard},
		{name: "the same, with WAIT 1 after each Enqueue", cut: 4 * time.Second, wait: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var answered, lost, worst int
			for range *kills {
				in, missing := test.kill(t)
				answered, lost, worst = answered+in, lost+missing, max(worst, missing)
			}
			t.Logf("kills: %d, answered: %d, lost: %d, worst: %d", *kills, answered, lost, worst)
			if answered == 0 {
				t.Error("nothing was enqueued")
			}
			if test.wait && lost > 0 {
				t.Errorf("%d jobs are lost that a replica had", lost)
			}
			if test.cut > 0 && !test.wait && lost == 0 {
				t.Error("nothing is lost: this measures nothing")
			}
		})
	}
}

// loss is one way in which a master dies under load.
type loss struct {
	name   string
	behind time.Duration // the replica, all the time
	cut    time.Duration // for how long it hears nothing before the kill
	args   []string      // of redis-server
	wait   bool          // an Enqueue counts as answered once a replica has it
}

// kill kills one master, and returns how many jobs were answered and how many of these the
// replica does not have.
func (l loss) kill(t *testing.T) (answered, lost int) {
	master := servers.NewRedis(t, servers.RedisOptions{Args: append([]string{"--repl-diskless-sync-delay", "0"}, l.args...)})
	c := lay(t, master.Addr())
	c.late(l.behind)
	replica, err := servers.StartReplica(c.Addr().String(), servers.RedisOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, replica.Close()) })

	var in acked
	ctx, stop := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	for range 4 {
		producers.Go(func() { l.produce(ctx, master.Client(t), &in) })
	}
	eventually(t, "it is under load", func() bool { return len(in.all()) > 500 })
	if l.cut > 0 {
		c.late(time.Hour)
		time.Sleep(l.cut)
	}
	must(t, master.Kill())
	c.sever()
	stop()
	producers.Wait()

	rdb := replica.Client(t)
	must(t, rdb.Do(t.Context(), "replicaof", "no", "one").Err())
	there := map[string]bool{}
	for _, f := range newQueue(t, rdb, "").entries("jobs") {
		there[f["job_id"]] = true
	}
	for _, id := range in.all() {
		if !there[id] {
			lost++
		}
	}
	return len(in.all()), lost
}

// produce enqueues until ctx ends, a few hundred jobs a second.
func (l loss) produce(ctx context.Context, rdb *redis.Client, in *acked) {
	client := jobs.NewClient(rdb, jobs.Options{})
	for pace := time.NewTicker(4 * time.Millisecond); ctx.Err() == nil; {
		job := once.Job(nil)
		err := client.Enqueue(ctx, job)
		if err == nil && l.wait {
			err = replicated(ctx, rdb)
		}
		if err == nil {
			in.add(job.ID)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

// cable leads from a replica to its master. What either says arrives late, or never.
type cable struct {
	net.Listener
	master string

	mu    sync.Mutex
	delay time.Duration
	cut   chan struct{}
}

func lay(t *testing.T, master string) *cable {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	c := &cable{Listener: listener, master: master, cut: make(chan struct{})}
	var ends sync.WaitGroup
	ends.Go(func() {
		for {
			replica, err := c.Accept()
			if err != nil {
				return
			}
			ends.Go(func() { c.carry(replica) })
		}
	})
	t.Cleanup(func() { c.sever(); ends.Wait() })
	return c
}

// late is for how long what is said from now on is on its way.
func (c *cable) late(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = d
}

// sever loses what is on its way.
func (c *cable) sever() {
	_ = c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.cut:
	default:
		close(c.cut)
	}
}

type parcel struct {
	bytes []byte
	due   time.Time
}

func (c *cable) carry(replica net.Conn) {
	defer replica.Close()
	master, err := net.Dial("tcp4", c.master)
	if err != nil {
		return
	}
	defer master.Close()
	var both sync.WaitGroup
	for _, ends := range [][2]net.Conn{{master, replica}, {replica, master}} {
		parcels := make(chan parcel, 1<<16)
		both.Go(func() { c.take(ends[0], parcels) })
		both.Go(func() {
			c.deliver(parcels, ends[1])
			_, _ = replica.Close(), master.Close() // one end is gone, or the cable is cut
		})
	}
	both.Wait()
}

func (c *cable) take(from net.Conn, parcels chan<- parcel) {
	defer close(parcels)
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		c.mu.Lock()
		due := time.Now().Add(c.delay)
		c.mu.Unlock()
		select {
		case parcels <- parcel{b[:n], due}:
		case <-c.cut:
			return
		}
	}
}

func (c *cable) deliver(parcels <-chan parcel, to net.Conn) {
	for p := range parcels {
		select {
		case <-time.After(time.Until(p.due)):
		case <-c.cut:
			return
		}
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}
