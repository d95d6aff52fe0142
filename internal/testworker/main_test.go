package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

func TestWorkerRunsWhatIsEnqueued(t *testing.T) {
	s := newSite(t, "PREFIX={t}:", "WORKER=w7")
	before := time.Now()
	w := s.work()
	ids := s.do("enqueue", "echo", "-n", "2", "order_id=4471", "odd\xff name=a=b")
	if len(ids) != 2 || ids[0] == ids[1] {
		t.Fatalf("two jobs printed the IDs %q", ids)
	}
	got := map[string]record{}
	for range ids {
		ran := s.next("ran")
		finished := s.next("finished")
		got[ran.ID] = ran
		if finished.PID != w.cmd.Process.Pid || finished.Kind != "echo" {
			t.Errorf("finished: %+v", finished)
		}
	}
	for _, id := range ids {
		at := got[id].AtMS
		if at < before.UnixMilli() || at > time.Now().UnixMilli() {
			t.Errorf("at_ms is %d", at)
		}
		want := record{
			Kind: "echo", ID: id, Worker: "w7", PID: w.cmd.Process.Pid, AtMS: at,
			Fields: map[string]string{"order_id": "4471", "odd\xff name": "a=b"},
		}
		if diff := cmp.Diff(want, got[id]); diff != "" {
			t.Error(diff)
		}
	}
	if code := w.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d after SIGTERM: %s", code, w.stderr)
	}
	s.empty("ran", "finished")
	if n := s.rdb.Exists(t.Context(), "jobs").Val(); n != 0 {
		t.Error("PREFIX was ignored")
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind   string
		fields []string
		runs   int    // that are recorded
		dies   string // of what; "": it finishes
	}{
		{"ok", nil, 1, ""},
		{"echo", nil, 1, ""},
		{"noop", nil, 0, ""},
		{"sleep", []string{"ms=1"}, 1, ""},
		{"hog", []string{"ms=1"}, 1, ""},
		{"flaky", []string{"fails=1", "ms=1"}, 2, ""},
		{"flaky", []string{"fails=9"}, 2, "failed as told: attempt 2 of 9"},
		{"fail", nil, 2, "failed as told"},
		{"permanent", nil, 1, "failed for good as told"},
		{"panic", nil, 2, "panicked as told"},
		{"goexit", nil, 2, "Goexit"},
		{"broken", nil, 2, "Error"},
		{"sleep", []string{"ms=long"}, 2, `field ms: strconv.Atoi: parsing "long"`},
		{"sleep", []string{"ms=60000"}, 2, "timeout"},
	} {
		t.Run(strings.Join(append([]string{c.kind}, c.fields...), " "), func(t *testing.T) {
			s := newSite(t, "RETRIES=1", "BASE=1ms", "CAP=1ms", "TIMEOUT=1s")
			w := s.work()
			id := s.do(append([]string{"enqueue", c.kind}, c.fields...)...)[0]
			for attempt := range c.runs {
				if r := s.next("ran"); r.ID != id || r.Attempts != attempt {
					t.Errorf("run %d: %+v", attempt, r)
				}
			}
			if c.dies != "" {
				_, letter := s.dead("0")
				if text := letter["error"].(string); !strings.Contains(text, c.dies) || letter["job_id"] != id {
					t.Errorf("died as %q of %q", letter["job_id"], text)
				}
			} else if c.runs > 0 {
				if r := s.next("finished"); r.ID != id || r.Attempts != c.runs-1 {
					t.Errorf("finished: %+v", r)
				}
			}
			s.settled() // of noop nothing else tells that the worker is up
			if code := w.stop(syscall.SIGINT); code != 0 {
				t.Errorf("exit %d after SIGINT: %s", code, w.stderr)
			}
			s.empty("ran", "finished")
		})
	}
}

func TestKillEndsTheProcess(t *testing.T) {
	s := newSite(t, "LEASE=300ms")
	id := s.do("enqueue", "kill", "ms=1")[0]
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w := s.work()
		if status := w.end(); status.Signal() != syscall.SIGKILL {
			t.Errorf("it ended by %v, exit %d: %s", status.Signal(), status.ExitStatus(), w.stderr)
		}
		if r := s.next("ran"); r.ID != id || r.PID != w.cmd.Process.Pid || r.Worker != host {
			t.Errorf("ran: %+v", r)
		}
	}
	s.work()
	if _, letter := s.dead("0"); letter["job_id"] != id || letter["attempts"] != "3" {
		t.Errorf("dead: %v", letter)
	}
	s.empty("ran", "finished")
}

func TestSlots(t *testing.T) {
	s := newSite(t, "SLOTS=1")
	s.do("enqueue", "sleep", "ms=50", "-n", "2")
	s.work()
	s.next("ran")
	second := s.next("ran")
	if first := s.next("finished"); second.AtMS < first.AtMS {
		t.Errorf("one slot ran a job from %d while another ended at %d", second.AtMS, first.AtMS)
	}
}

func TestRecordsHaveTheirOwnRedis(t *testing.T) {
	s := newSite(t)
	s.work("RECORD_URL=" + s.url + "/1")
	id := s.do("enqueue", "ok")[0]
	lists := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr, DB: 1})
	defer lists.Close()
	elsewhere := s
	elsewhere.rdb = lists
	if r := elsewhere.next("finished"); r.ID != id {
		t.Errorf("finished: %+v", r)
	}
	s.empty("ran", "finished")
}

func TestShutdown(t *testing.T) {
	for _, c := range []struct {
		kind, says string
		code       int
	}{
		{kind: "sleep", code: 0},
		{kind: "hog", code: 1, says: "testworker: "},
	} {
		t.Run(c.kind, func(t *testing.T) {
			s := newSite(t, "GRACE=10ms", "LEASE=500ms")
			w := s.work()
			id := s.do("enqueue", c.kind, "ms=600000")[0]
			s.next("ran")
			if code := w.stop(syscall.SIGTERM); code != c.code || !strings.Contains(w.stderr.String(), c.says) {
				t.Errorf("exit %d: %s", code, w.stderr)
			}
			s.work()
			if again := s.next("ran"); again.ID != id || again.Attempts != 0 {
				t.Errorf("then ran: %+v", again)
			}
			s.empty("finished")
		})
	}
}

func TestPeriodic(t *testing.T) {
	s := newSite(t, "PERIODIC=beat=@every 1s;night=0 3 * * *;")
	s.work()
	first, second := s.next("finished"), s.next("finished")
	for _, r := range []record{first, second} {
		if diff := cmp.Diff(map[string]string{"from": "beat"}, r.Fields); r.Kind != "ok" || diff != "" {
			t.Errorf("%s: %s", r.Kind, diff)
		}
	}
	if first.ID == second.ID {
		t.Error("two ticks have one ID")
	}
}

func TestKindsThatAWorkerKnows(t *testing.T) {
	s := newSite(t)
	a := s.work("KINDS=ok,noop", "WORKER=a")
	unknown := s.do("enqueue", "echo")[0]
	s.do("enqueue", "ok")
	s.next("finished")
	if code := a.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d: %s", code, a.stderr)
	}
	s.work("KINDS=echo", "WORKER=b")
	if r := s.next("finished"); r.ID != unknown || r.Worker != "b" || r.Attempts != 0 {
		t.Errorf("finished: %+v", r)
	}
}
