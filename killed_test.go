package jobs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

func killedWhileASiblingIsUp(p *plant) {
	workers := map[int]*unit{}
	for range 2 {
		u := p.spawn()
		workers[u.pid()] = u
	}
	p.enqueue(batch(2, "sleep", 2000)...) // when they have ended, both have been up for two leases
	p.await("finished", 2)
	j := job("sleep", 1000)
	p.enqueue(j)
	first := p.await("ran", 3)[2]
	workers[first.PID].kill()
	died := time.Now()
	second := p.await("ran", 4)[3]
	if second.ID != j.ID || second.PID == first.PID || second.Attempts != first.Attempts {
		p.Errorf("ran as %+v, then as %+v", first, second)
	}
	if took := second.at().Sub(died); took > 15*time.Second { // a lease, a sweep, a blocked read, and much slack
		p.Errorf("%s after the kill", took)
	}
	p.await("finished", 3)
	p.idle()
	if st := p.stats(); st != (jobs.Stats{}) || len(p.events("ran")) != 4 {
		p.Errorf("left %+v, %d runs", st, len(p.events("ran")))
	}
}

// onlyInFlight checks that what ran twice had run in a process that was killed.
func (p *plant) onlyInFlight(slots int, killed ...int) {
	p.T.Helper()
	byID := map[string][]event{}
	for _, e := range p.events("ran") {
		byID[e.ID] = append(byID[e.ID], e)
	}
	twice := 0
	for id, runs := range byID {
		if len(runs) == 1 {
			continue
		}
		twice++
		for _, e := range runs[:len(runs)-1] {
			if !slices.Contains(killed, e.PID) {
				p.Errorf("job %s ran again, and no killed process had it: %+v", id, runs)
			}
		}
	}
	if twice > slots*len(killed) {
		p.Errorf("%d jobs ran again after the kill of %d workers", twice, len(killed))
	}
}

func (p *plant) allFinished(js []jobs.Job) {
	p.T.Helper()
	done := map[string]bool{}
	for _, e := range p.events("finished") {
		done[e.ID] = true
	}
	for _, j := range js {
		if !done[j.ID] {
			p.Errorf("%s job %s never finished", j.Kind, j.ID)
		}
	}
}

func twoWorkersOnOneHost(p *plant) {
	sleep := jobs.NewKind[jobs.Fields]("sleep", jobs.Policy{})
	var here runs
	for range 3 {
		p.start(jobs.Config{}, handle(sleep, func(ctx context.Context, _ jobs.Fields) error {
			job, _ := jobs.FromContext(ctx)
			ms, err := time.ParseDuration(job.Fields["ms"] + "ms")
			time.Sleep(ms)
			here.add(ctx)
			return err
		}))
	}
	a, b := p.spawn(), p.spawn()
	p.enqueue(batch(40, "sleep", 500)...) // eight for each
	eventually(p.T, "five workers", func() bool { return len(p.consumers()) == 5 })
	host, err := os.Hostname()
	must(p.T, err)
	names := slices.Compact(slices.Sorted(slices.Values(p.consumers())))
	if len(names) != 5 || !strings.HasPrefix(names[0], host+"-") {
		p.Errorf("their names are %v", names)
	}
	p.idle()
	js := batch(200, "sleep", 20)
	before := len(p.events("ran"))
	p.enqueue(js...)
	p.await("ran", before+16)
	a.kill()
	b.kill()
	p.idle()
	p.onlyInFlight(8, a.pid(), b.pid())
	done := map[string]int{}
	for _, e := range p.events("finished") {
		done[e.ID]++
	}
	for _, j := range here.all() {
		done[j.ID]++
	}
	if len(done) != 240 || p.stats() != (jobs.Stats{}) {
		p.Errorf("%d of 240 are done, left %+v", len(done), p.stats())
	}
}

func killedWorkersAreForgotten(p *plant) {
	for i := range 5 {
		u := p.spawn("LEASE=300ms", "WORKER=doomed")
		p.enqueue(job("sleep", 200))
		p.await("ran", i+1)
		u.kill()
	}
	if n := len(p.consumers()); n != 5 {
		p.Errorf("%d consumers of 5 killed workers", n)
	}
	p.spawn("LEASE=300ms", "WORKER=stays")
	eventually(p.T, "one consumer is left", func() bool { // five leases, once it has taken their jobs over
		return len(p.consumers()) == 1
	})
	p.idle()
	if left := p.consumers(); !strings.HasPrefix(left[0], "stays-") || p.stats() != (jobs.Stats{}) || len(p.events("finished")) != 5 {
		p.Errorf("consumers %v, left %+v, finished %d", left, p.stats(), len(p.events("finished")))
	}
}

// expiring checks that every key that is neither a stream nor a sorted set has an end.
func (p *plant) expiring() {
	p.T.Helper()
	for _, key := range p.rdb.Keys(p.T.Context(), "*").Val() {
		kind, ttl := p.rdb.Type(p.T.Context(), key).Val(), p.rdb.PTTL(p.T.Context(), key).Val()
		if kind != "stream" && kind != "zset" && kind != "none" && ttl <= 0 {
			p.Errorf("%s, a %s, lives for ever", key, kind)
		}
	}
}

func sweepersRacingEachOther(p *plant) {
	js := batch(100, "sleep", 200)
	p.orphan("gone", time.Hour, 1, js...)
	var workers []*unit
	for range 4 {
		workers = append(workers, p.spawn("PERIODIC=beat=@every 1s"))
	}
	pid := p.await("ran", 1)[0].PID
	for _, u := range workers {
		if u.pid() == pid {
			u.kill()
		}
	}
	eventually(p.T, "all have finished", func() bool { return len(p.events("finished")) >= 100 && p.stats().Running == 0 })
	p.allFinished(js)
	p.onlyInFlight(8, pid)
	if st := p.stats(); st.Dead != 0 {
		p.Errorf("left %+v", st)
	}
	p.expiring()
}

func aKillerStartsThreeTimes(p *plant) {
	killer := jobs.NewKind[jobs.Fields]("kill", jobs.Policy{}).Job(jobs.Fields{"ms": "1", "order_id": "4471"})
	p.enqueue(killer)
	for range 2 {
		p.supervise("LEASE=500ms")
	}
	letter := p.awaitDead(1)[0]
	marker := job("ok", 0)
	p.enqueue(marker)
	eventually(p.T, "the marker has run", func() bool { return len(of(p.events("finished"), marker.ID)) == 1 })
	if runs := of(p.events("ran"), killer.ID); len(runs) != 3 {
		p.Errorf("it started %d times", len(runs))
	}
	if letter.ID != killer.ID || letter.Reason != jobs.ReasonPoison || letter.Attempts != 3 ||
		!strings.Contains(letter.Error, "3 deliveries") || letter.Fields["order_id"] != "4471" || letter.Fields["ms"] != "1" {
		p.Errorf("died as %+v", letter)
	}
	p.idle()
	if st := p.stats(); st != (jobs.Stats{Dead: 1}) {
		p.Errorf("left %+v", st)
	}
}

// Seven healthy jobs beside one that kills their process: they all finish, and only it dies.
func aNeighbourhoodOutlivesAKiller(p *plant) {
	killer, healthy := job("kill", 300), batch(7, "sleep", 600)
	p.enqueue(append([]jobs.Job{killer}, healthy...)...)
	for range 2 {
		p.supervise("LEASE=500ms")
	}
	within(p.T, 90*time.Second, "it is dead and they have finished", func() bool {
		return p.stats().Dead > 0 && len(p.events("finished")) >= 7
	})
	p.idle()
	p.allFinished(healthy)
	runs := of(p.events("ran"), killer.ID)
	if letters := p.dead(); len(letters) != 1 || letters[0].ID != killer.ID || len(runs) != 3 {
		p.Fatalf("dead %+v, the killer ran %d times", letters, len(runs))
	}
	last := runs[2]
	for _, e := range p.events("ran") { // of the process in which it was alone
		if e.PID != last.PID || e.ID == killer.ID {
			continue
		}
		if ended := of(p.events("finished"), e.ID); len(ended) == 0 || ended[0].PID != e.PID || ended[0].AtMS > last.AtMS {
			p.Errorf("%s ran beside the killer's last run", e.ID)
		}
	}
}

// A worker is paused for longer than its lease, and goes on when another has its job.
func aPausedWorkerWritesNothing(p *plant) {
	workers := map[int]*unit{}
	for range 2 {
		u := p.spawn("LEASE=500ms", "RETRIES=3", "BASE=100ms", "CAP=100ms")
		workers[u.pid()] = u
	}
	j := jobs.NewKind[jobs.Fields]("flaky", jobs.Policy{}).Job(jobs.Fields{"fails": "1", "ms": "1000"})
	p.enqueue(j)
	first := p.await("ran", 1)[0]
	must(p.T, workers[first.PID].cmd.Process.Signal(syscall.SIGSTOP))
	second := p.await("ran", 2)[1]
	must(p.T, workers[first.PID].cmd.Process.Signal(syscall.SIGCONT))
	if second.PID == first.PID || second.Attempts != 0 {
		p.Errorf("taken over as %+v", second)
	}
	p.await("finished", 1)
	eventually(p.T, "the paused one has noticed", func() bool {
		log := workers[first.PID].log.String()
		return strings.Contains(log, "lease lost") || strings.Contains(log, "not written")
	})
	p.idle()
	var attempts []int
	for _, e := range p.events("ran") {
		attempts = append(attempts, e.Attempts)
	}
	if !slices.Equal(attempts, []int{0, 0, 1}) || len(p.events("finished")) != 1 || p.stats() != (jobs.Stats{}) {
		p.Errorf("attempts %v, %d finished, left %+v", attempts, len(p.events("finished")), p.stats())
	}
}

// kills has a proxy kill a process where one of its commands is on its way.
func (p *plant) kills(is func(cmd []string) bool, action servers.Action, env ...string) *unit {
	p.T.Helper()
	proxy := servers.NewProxy(p.T, p.server.Addr())
	u := make(chan *unit, 1)
	var one sync.Once
	proxy.Hook(func(cmd []string) servers.Action {
		if !is(cmd) {
			return servers.Pass
		}
		return action.Then(func() { one.Do(func() { (<-u).kill() }) })
	})
	doomed := p.spawn(append(env, "REDIS_URL=redis://"+proxy.Addr())...)
	u <- doomed
	return doomed
}

// The process dies where it takes a tick: exactly one entry comes of it.
func killedAtATick(action servers.Action) func(*plant) {
	return func(p *plant) {
		beat := "PERIODIC=beat=@every 1s"
		first := p.spawn(beat)
		p.await("finished", 1)
		ticks := 0
		doomed := p.kills(func(cmd []string) bool {
			if isTick(cmd) {
				ticks++
			}
			return isTick(cmd) && ticks > 1
		}, action, beat)
		<-doomed.ended
		n := len(p.events("finished"))
		p.await("finished", n+3)
		second := p.spawn(beat)
		p.await("finished", n+4)
		first.leave(p.T)
		second.leave(p.T)
		var seconds []int
		for key := range p.sched() {
			if at, ok := strings.CutPrefix(key, "sched:beat:"); ok {
				second, err := strconv.Atoi(at)
				must(p.T, err)
				seconds = append(seconds, second)
			}
		}
		slices.Sort(seconds)
		for i, second := range seconds {
			if second != seconds[0]+i {
				p.Fatalf("the ticks are %v", seconds)
			}
		}
		became := map[string]bool{} // which a worker that loses its lease may run twice
		for _, e := range p.events("ran") {
			became[e.ID] = true
		}
		for _, entry := range p.entries("jobs") {
			became[entry["job_id"]] = true
		}
		if len(became) != len(seconds) {
			p.Errorf("%d jobs of %d ticks", len(became), len(seconds))
		}
		p.expiring()
	}
}

// The process dies where it writes a retry: it is written or not, with the acknowledgement.
func killedAtARetry(action servers.Action) func(*plant) {
	return func(p *plant) {
		j := jobs.NewKind[jobs.Fields]("flaky", jobs.Policy{}).Job(jobs.Fields{"fails": "1"})
		p.enqueue(j)
		doomed := p.kills(func(cmd []string) bool {
			return strings.EqualFold(cmd[0], "eval") && strings.Contains(cmd[1], "running -> delayed")
		}, action, "BASE=1ms", "CAP=1ms")
		<-doomed.ended
		if st := p.stats(); st.Delayed+st.Running != 1 || st.Ready+st.Dead != 0 {
			p.Errorf("after the kill: %+v", st)
		}
		p.spawn("BASE=1ms", "CAP=1ms")
		p.await("finished", 1)
		p.idle()
		byAttempts := map[int]int{}
		for _, e := range p.events("ran") {
			byAttempts[e.Attempts]++
		}
		if byAttempts[1] != 1 || byAttempts[0] > 2 || len(byAttempts) != 2 || p.stats() != (jobs.Stats{}) {
			p.Errorf("runs by attempts %v, left %+v", byAttempts, p.stats())
		}
	}
}

// A suspect's worker is killed while it has the right to empty itself: the next one gets it.
func noRemnants(p *plant) {
	first := p.spawn("LEASE=1s")
	p.enqueue(job("sleep", 60_000))
	p.await("ran", 1)
	p.orphan("gone", time.Hour, 2, job("ok", 0))
	eventually(p.T, "it empties itself", func() bool { return p.holder() != "" })
	p.expiring()
	first.kill()
	p.spawn("LEASE=1s", "KINDS=ok")
	p.await("finished", 1)
	p.expiring()
	if st := p.stats(); st.Dead != 0 {
		p.Errorf("left %+v", st)
	}
}

// cpu is the time that a process has spent on a processor.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	words := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	ticks := 0
	for _, word := range words[11:13] { // user and system time, in hundredths of a second
		n, err := strconv.Atoi(string(word))
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func redisDown(p *plant) {
	outage := 15 * time.Second
	if testing.Short() {
		outage = 3 * time.Second
	}
	u := p.spawn("LEASE=12s")
	p.enqueue(job("ok", 0))
	p.await("finished", 1)
	before := cpu(p.T, u.pid())
	must(p.T, p.server.Stop())
	time.Sleep(outage)
	if used := cpu(p.T, u.pid()) - before; used > outage/10 {
		p.Errorf("%s of processor time during %s of outage", used, outage)
	}
	must(p.T, p.server.Start())
	back := time.Now()
	js := batch(16, "sleep", 1000)
	p.enqueue(js...)
	if first := p.await("ran", 2)[1]; first.at().Sub(back) > 15*time.Second {
		p.Errorf("the first run came %s after Redis", first.at().Sub(back))
	}
	finished := p.await("finished", 17)
	if took := finished[16].at().Sub(back); took > 30*time.Second {
		p.Errorf("all were done after %s", took)
	}
	p.allFinished(js)
	peak := 0
	for _, e := range p.events("ran")[1:] {
		at := 0
		for _, other := range p.events("ran")[1:] {
			if d := e.at().Sub(other.at()); d >= 0 && d < time.Second {
				at++
			}
		}
		peak = max(peak, at)
	}
	if peak != 8 {
		p.Errorf("%d ran at once, on 8 slots", peak)
	}
	if lines := strings.Count(u.log.String(), "jobs: "); lines > 30 { // go-redis has a log of its own
		p.Errorf("%d lines of log", lines)
	}
}
