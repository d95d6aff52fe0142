package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// TestProcesses has real worker processes, of internal/testworker, killed and paused.
func TestProcesses(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "testworker")
	if out, err := exec.Command("go", "build", "-o", program, "./internal/testworker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, test := range map[string]func(*plant){
		"S05_KilledWhileASiblingIsUp":           killedWhileASiblingIsUp,
		"S07_TwoWorkersOnOneHost":               twoWorkersOnOneHost,
		"R06_KilledWorkersAreForgotten":         killedWorkersAreForgotten,
		"R08_SweepersRacingEachOther":           sweepersRacingEachOther,
		"P01_AKillerStartsThreeTimes":           aKillerStartsThreeTimes,
		"APausedWorkerWritesNothing":            aPausedWorkerWritesNothing,
		"T03_KilledAtATickBeforeItIsSent":       killedAtATick(servers.CutBefore),
		"T03_KilledAtATickBeforeTheReply":       killedAtATick(servers.SwallowReply),
		"B07_KilledAtARetryBeforeItIsSent":      killedAtARetry(servers.CutBefore),
		"B07_KilledAtARetryBeforeTheReply":      killedAtARetry(servers.SwallowReply),
		"C06_RedisDown":                         redisDown,
		"P01_ANeighbourhoodOutlivesAKillerJob":  aNeighbourhoodOutlivesAKiller,
		"AKilledWorkersSuspectsLeaveNoRemnants": noRemnants,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newPlant(t, program))
		})
	}
}

// plant is a Redis with worker processes.
type plant struct {
	*queue
	*testing.T
	server  *servers.Redis
	records *servers.Redis // of what ran
	program string
}

func newPlant(t *testing.T, program string) *plant {
	t.Helper()
	server, records := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--appendonly", "yes"}}), servers.NewRedis(t)
	return &plant{queue: newQueue(t, server.Client(t), ""), T: t, server: server, records: records, program: program}
}

// unit is a worker process.
type unit struct {
	cmd   *exec.Cmd
	log   *journal
	ended chan struct{}
}

// spawn starts a worker process with further environment.
func (p *plant) spawn(env ...string) *unit {
	p.T.Helper()
	u, err := p.try(env...)
	must(p.T, err)
	return u
}

func (p *plant) try(env ...string) (*unit, error) {
	u := &unit{cmd: exec.Command(p.program), log: &journal{}, ended: make(chan struct{})}
	u.cmd.Env = append([]string{"REDIS_URL=" + p.server.URL(), "RECORD_URL=" + p.records.URL(), "LEASE=1s"}, env...)
	u.cmd.Stderr = u.log
	if err := u.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = u.cmd.Wait() // killed, as a rule
		close(u.ended)
	}()
	p.T.Cleanup(func() {
		u.kill()
		if p.T.Failed() {
			p.T.Logf("worker %d said:\n%s", u.pid(), u.log)
		}
	})
	return u, nil
}

func (u *unit) pid() int { return u.cmd.Process.Pid }

// kill ends the process at once; when kill returns it is gone.
func (u *unit) kill() {
	_ = u.cmd.Process.Kill() // it may have ended
	<-u.ended
}

// leave has the process shut down, and waits until it is gone.
func (u *unit) leave(t testing.TB) {
	t.Helper()
	must(t, u.cmd.Process.Signal(syscall.SIGTERM))
	<-u.ended
}

// supervise starts a worker process again whenever it has ended, until the test ends.
func (p *plant) supervise(env ...string) {
	p.T.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			u, err := p.try(env...)
			if err != nil {
				p.T.Error(err)
				return
			}
			select {
			case <-u.ended:
			case <-ctx.Done():
				u.kill()
			}
		}
	})
	p.T.Cleanup(func() {
		stop()
		watch.Wait()
	})
}

// event is one run of a job, as its process has recorded it.
type event struct {
	Kind, ID, Worker string
	Attempts, PID    int
	AtMS             int64 `json:"at_ms"`
}

func (e event) at() time.Time { return time.UnixMilli(e.AtMS) }

// events are the records of a list: ran or finished.
func (p *plant) events(list string) []event {
	p.T.Helper()
	rdb := p.records.Client(p.T)
	defer rdb.Close()
	lines, err := rdb.LRange(p.T.Context(), list, 0, -1).Result()
	must(p.T, err)
	all := make([]event, len(lines))
	for i, line := range lines {
		must(p.T, json.Unmarshal([]byte(line), &all[i]))
	}
	return all
}

// of are the events of one job.
func of(all []event, id string) []event {
	return slices.DeleteFunc(slices.Clone(all), func(e event) bool { return e.ID != id })
}

// await waits for n events.
func (p *plant) await(list string, n int) []event {
	p.T.Helper()
	eventually(p.T, fmt.Sprintf("%d %s", n, list), func() bool { return len(p.events(list)) >= n })
	return p.events(list)
}

// job is one of testworker's kinds.
func job(kind string, ms int) jobs.Job {
	return jobs.NewKind[jobs.Fields](kind, jobs.Policy{}).Job(jobs.Fields{"ms": strconv.Itoa(ms)})
}

func batch(n int, kind string, ms int) []jobs.Job {
	all := make([]jobs.Job, n)
	for i := range all {
		all[i] = job(kind, ms)
	}
	return all
}
