package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// audit is the whole trail, newest first.
func (q *queue) audit(f jobs.Filter) []jobs.Action {
	q.t.Helper()
	return collect(q.t, q.Audit(q.t.Context(), f))
}

// as is the test's context for what somebody does by hand.
func (q *queue) as(who string) context.Context { return jobs.WithActor(q.t.Context(), who) }

func TestAuditSaysWhoDidWhat(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		letters := q.kill("render_tickets", 4)
		later, sooner := once.Job(nil).In(time.Hour), once.Job(nil).In(time.Minute)
		q.enqueue(later, sooner)
		dead, delayed := q.DeadLetters(), q.Delayed()
		must(t, dead.Replay(q.as("marek"), letters[0], jobs.ReplayOptions{Set: jobs.Fields{"seat": "14C", "n": "7"}}))
		_, err := dead.ReplayAll(q.as("anna"), jobs.Filter{ID: "render_tickets1"}, jobs.ReplayOptions{})
		must(t, err)
		must(t, dead.Discard(q.as("marek"), letters[2]))
		must(t, delayed.Cancel(q.as(strings.Repeat("x", 1000)), later.ID))
		must(t, delayed.RunNow(t.Context(), sooner.ID))
		got := q.audit(jobs.Filter{})
		if len(got) != 5 {
			t.Fatalf("%d actions: %+v", len(got), got)
		}
		slices.Reverse(got)
		if who := got[3].Who; len(who) > 256 || !strings.HasPrefix(who, "xxx") {
			t.Errorf("who: %q", who)
		}
		got[3].Who = "x"
		for i := range got {
			if got[i].At.Sub(q.now()).Abs() > time.Minute || got[i].Record == "" {
				t.Errorf("at %s, record %q", got[i].At, got[i].Record)
			}
			got[i].At, got[i].Record = time.Time{}, ""
		}
		want := []jobs.Action{
			{Who: "marek", What: jobs.ActionReplay, ID: "render_tickets0", Kind: "render_tickets", Entry: letters[0], Set: []string{"n", "seat"}},
			{Who: "anna", What: jobs.ActionReplay, ID: "render_tickets1", Kind: "render_tickets", Entry: letters[1]},
			{Who: "marek", What: jobs.ActionDiscard, ID: "render_tickets2", Kind: "render_tickets", Entry: letters[2]},
			{Who: "x", What: jobs.ActionCancel, ID: later.ID, Kind: "once"},
			{What: jobs.ActionRunNow, ID: sooner.ID, Kind: "once"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for name, value := range q.entries("jobs:audit")[0] {
			if strings.Contains(value, "14C") {
				t.Errorf("the trail has a value in %s: %q", name, value)
			}
		}
	})
}

// Who comes second has done nothing, and nothing is said of him.
func TestAuditOfWhatWasNotDone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		letter := q.kill("render_tickets", 1)[0]
		must(t, q.DeadLetters().Discard(t.Context(), letter))
		for what, err := range map[string]error{
			"replay": q.DeadLetters().Replay(t.Context(), letter, jobs.ReplayOptions{}), "discard": q.DeadLetters().Discard(t.Context(), letter),
			"cancel": q.Delayed().Cancel(t.Context(), "x"), "run now": q.Delayed().RunNow(t.Context(), "x"),
			"run schedule": q.RunSchedule(t.Context(), "x"),
		} {
			if !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := q.audit(jobs.Filter{}); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAuditIsFilteredAndPaged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		for _, letter := range append(q.kill("a", 120), q.kill("b", 3)...) {
			must(t, q.DeadLetters().Discard(t.Context(), letter))
		}
		all := q.audit(jobs.Filter{})
		for name, c := range map[string]struct {
			f    jobs.Filter
			want []jobs.Action
		}{
			"all":             {jobs.Filter{}, all},
			"one letter":      {jobs.Filter{Entry: all[5].Entry}, all[5:6]},
			"one job":         {jobs.Filter{ID: "a7"}, all[3+112 : 3+113]},
			"one kind":        {jobs.Filter{Kind: "b"}, all[:3]},
			"the newest":      {jobs.Filter{Limit: 2}, all[:2]},
			"the next":        {jobs.Filter{Limit: 2, Before: all[1].Record}, all[2:4]},
			"none before":     {jobs.Filter{Before: all[122].Record}, nil},
			"since the last":  {jobs.Filter{Since: all[0].At, Kind: "a", ID: "b1"}, nil},
			"until long ago":  {jobs.Filter{Until: all[122].At}, nil},
			"since long ago":  {jobs.Filter{Since: all[122].At}, all},
			"until, and then": {jobs.Filter{Until: all[0].At.Add(time.Hour), Before: all[120].Record}, all[121:]},
		} {
			if diff := cmp.Diff(c.want, q.audit(c.f)); diff != "" || len(all) != 123 {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

func TestAuditIsTrimmed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		pipe := q.rdb.Pipeline()
		for range 20_000 {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: q.key("jobs:audit"), Values: []string{"what", "old"}})
		}
		_, err := pipe.Exec(t.Context())
		must(t, err)
		for _, letter := range q.kill("a", 3) {
			must(t, q.DeadLetters().Discard(t.Context(), letter))
		}
		if n := q.rdb.XLen(t.Context(), q.key("jobs:audit")).Val(); n != 20_000 {
			t.Errorf("%d records", n)
		}
		if got := q.audit(jobs.Filter{Limit: 4}); got[2].What != jobs.ActionDiscard || got[3].What != "old" {
			t.Errorf("%+v", got)
		}
	})
}

// Where the trail cannot be written, nothing is done.
func TestAuditThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		letter := q.kill("a", 1)[0]
		job := once.Job(nil).In(time.Hour)
		q.enqueue(job)
		must(t, q.rdb.Set(t.Context(), q.key("jobs:audit"), "x", time.Hour).Err())
		for what, err := range map[string]error{
			"replay": q.DeadLetters().Replay(t.Context(), letter, jobs.ReplayOptions{}), "discard": q.DeadLetters().Discard(t.Context(), letter),
			"cancel": q.Delayed().Cancel(t.Context(), job.ID), "run now": q.Delayed().RunNow(t.Context(), job.ID),
		} {
			if err == nil || errors.Is(err, jobs.ErrUncertain) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if st := q.stats(); st != (jobs.Stats{Delayed: 1, Dead: 1}) {
			t.Errorf("%+v", st)
		}
	})
}

// For want of memory a replay changes nothing, and what takes away is done and written.
func TestAuditForWantOfMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t), "")
	letters := q.kill("a", 2)
	job := once.Job(nil).In(time.Hour)
	q.enqueue(job)
	must(t, q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := q.DeadLetters().Replay(t.Context(), letters[0], jobs.ReplayOptions{}); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("replay: %v", err)
	}
	if n := len(q.audit(jobs.Filter{})); n != 0 {
		t.Errorf("%d records of a replay that was none", n)
	}
	must(t, q.DeadLetters().Discard(t.Context(), letters[1]))
	must(t, q.Delayed().Cancel(t.Context(), job.ID))
	if n := len(q.audit(jobs.Filter{})); n != 2 || q.stats() != (jobs.Stats{Dead: 1}) {
		t.Errorf("%d records, left %+v", n, q.stats())
	}
}

func TestNewestPagesByCursor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		ids := append(q.kill("a", 130), q.kill("b", 7)...)
		slices.Reverse(ids)
		var got []string
		f := jobs.Filter{Limit: 20}
		for {
			page := collect(t, q.DeadLetters().Newest(t.Context(), f))
			for _, letter := range page {
				got = append(got, letter.Entry)
			}
			if len(page) == 0 {
				break
			}
			f.Before = page[len(page)-1].Entry
		}
		if !slices.Equal(ids, got) {
			t.Errorf("%d of %d letters: %v", len(got), len(ids), got)
		}
		if page := collect(t, q.DeadLetters().Newest(t.Context(), jobs.Filter{Kind: "a", Error: "no: 12", Limit: 2})); len(page) != 2 || page[0].ID != "a129" || page[1].ID != "a128" {
			t.Errorf("filtered: %+v", page)
		}
		for what, err := range map[string]error{
			"newest": last(q.DeadLetters().Newest(t.Context(), jobs.Filter{Before: "yesterday"})),
			"list":   last(q.DeadLetters().List(t.Context(), jobs.Filter{Before: "yesterday"})),
			"audit":  last(q.Audit(t.Context(), jobs.Filter{Before: "yesterday"})),
		} {
			if err == nil || !strings.Contains(err.Error(), "Before") {
				t.Errorf("%s before yesterday: %v", what, err)
			}
		}
		if n, err := q.DeadLetters().ReplayAll(t.Context(), jobs.Filter{Before: ids[3]}, jobs.ReplayOptions{}); n != 133 || err != nil {
			t.Errorf("replayed %d, %v", n, err)
		}
	})
}

// last is the error that a list ends with.
func last[T any](list func(yield func(T, error) bool)) (err error) {
	list(func(_ T, e error) bool { err = e; return true })
	return err
}

// The page of a million must not read a million: what it asks of Redis is counted.
func TestPagesAreSmall(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t), "")
	const n = 3000
	traceback := strings.Repeat("x", 32<<10)
	pipe := q.rdb.Pipeline()
	for i := range n {
		if i < 300 {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs:dead", Values: []string{"kind", "a", "error", "no", "traceback", traceback}})
		}
		pipe.ZAdd(t.Context(), "delayed", redis.Z{Score: float64(1e9 + i/1000), Member: fmt.Sprintf(`{"kind":"a","job_id":"%04d"}`, i)})
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	output := func() (bytes int64) {
		for line := range strings.Lines(q.rdb.Info(t.Context(), "stats").Val()) {
			_, _ = fmt.Sscanf(line, "total_net_output_bytes:%d", &bytes)
		}
		return bytes
	}
	before := output()
	if page := collect(t, q.DeadLetters().Newest(t.Context(), jobs.Filter{Limit: 50})); len(page) != 50 {
		t.Errorf("%d letters", len(page))
	}
	middle := output()
	first := 0
	for job, err := range q.Delayed().ListFrom(t.Context(), time.Unix(1e9+1, 0)) {
		if must(t, err); job.ID != fmt.Sprintf("%04d", 1000+first) {
			t.Fatalf("job %d is %s", first, job.ID)
		}
		if first++; first == 50 {
			break
		}
	}
	after := output()
	if letters, delayed := middle-before, after-middle; letters > 60*(33<<10) || delayed > 20<<10 {
		t.Errorf("the letters' page took %d bytes, the delayed page %d", letters, delayed)
	}
}

func TestListFromAndAfter(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		const n = 350 // all due at two instants, over page borders, but for the ends
		for i := range n {
			q.addDelayed(float64(2e9+i/200), fmt.Sprintf(`{"kind":"a","job_id":"%04d"}`, i))
		}
		q.addDelayed(-5, `{"kind":"a","job_id":"-5"}`)
		q.addDelayed(2e9+0.25, `rubbish`)
		ids := func(list func(yield func(jobs.DelayedJob, error) bool), most int) (ids []string, cursor string) {
			for job, err := range list {
				must(t, err)
				ids, cursor = append(ids, job.ID), job.Cursor
				if len(ids) == most {
					break
				}
			}
			return ids, cursor
		}
		var all []string
		for _, job := range q.delayed() {
			all = append(all, job.ID)
		}
		delayed := q.Delayed()
		got, cursor := ids(delayed.ListFrom(t.Context(), time.Time{}), 33)
		for page := got; len(page) > 0; got = append(got, page...) {
			page, cursor = ids(delayed.ListAfter(t.Context(), cursor), 33)
		}
		if len(all) != n+1 || !slices.Equal(all, got) {
			t.Errorf("%d of %d jobs: %v", len(got), len(all), got)
		}
		if got, _ := ids(delayed.ListFrom(t.Context(), time.Unix(2e9+1, 0)), 0); !slices.Equal(all[201:], got) {
			t.Errorf("from the second instant: %v", got)
		}
		if got, _ := ids(delayed.ListFrom(t.Context(), time.Unix(2e9+2, 0)), 0); len(got) != 0 {
			t.Errorf("from behind the last: %v", got)
		}
		for _, cursor := range []string{"", "x", "1/", "/1", "1/-1", "NaN/0"} {
			if err := last(delayed.ListAfter(t.Context(), cursor)); err == nil || !strings.Contains(err.Error(), "Cursor") {
				t.Errorf("after %q: %v", cursor, err)
			}
		}
	})
}

func TestStatsByKind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		g := newGate()
		w := q.start(jobs.Config{Slots: 3}, handle(once, g.handle))
		q.enqueue(many(3)...)
		g.wait(t, 3)
		q.enqueue(many(2)...)
		q.add("jobs", "kind", "other")
		q.add("jobs", "no", "kind")
		q.enqueue(once.Job(nil).In(time.Hour))
		q.addDelayed(4e9, "rubbish")
		q.kill("render_tickets", 250)
		got, err := q.StatsByKind(t.Context())
		must(t, err)
		for kind, st := range got {
			if (st.OldestReady > 0) != (st.Ready > 0) && st.OldestReady > time.Minute {
				t.Errorf("%q: oldest %s", kind, st.OldestReady)
			}
			st.OldestReady = 0
			got[kind] = st
		}
		want := map[string]jobs.Stats{
			"once": {Ready: 2, Running: 3, Delayed: 1}, "other": {Ready: 1}, "": {Ready: 1, Delayed: 1}, "render_tickets": {Dead: 250},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for range 5 {
			g.end <- nil
		}
		g.wait(t, 5)
		must(t, w.stop())
	})
}

func TestStatsByKindOfNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		if got, err := q.StatsByKind(t.Context()); len(got) != 0 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func (q *queue) workers() []jobs.Worker {
	q.t.Helper()
	all, err := q.Workers(q.t.Context())
	must(q.t, err)
	return all
}

func TestWorkersSayWhatRuns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		if all := q.workers(); len(all) != 0 {
			t.Errorf("before the first: %+v", all)
		}
		begin := q.now()
		g := newGate()
		w := q.start(jobs.Config{Worker: "front", Slots: 3}, handle(once, g.handle), handle(failing, g.handle))
		eventually(t, "an idle worker is there", func() bool { return len(q.workers()) == 1 && !q.workers()[0].Seen.IsZero() })
		job := once.Job(jobs.Fields{"secret": "x"})
		job.RequestID = "7f3a9c2e"
		q.enqueue(job)
		g.wait(t, 1)
		eventually(t, "it says that it runs", func() bool { return len(q.workers()[0].Running) == 1 })
		got := q.workers()[0]
		host, _ := os.Hostname()
		if !strings.HasPrefix(got.Name, "front-") || got.Host != host || got.PID != os.Getpid() || got.Slots != 3 || got.Owns != 1 ||
			got.Lease != time.Second || !slices.Equal(got.Kinds, []string{"failing", "once"}) {
			t.Errorf("%+v", got)
		}
		for what, at := range map[string]time.Time{"started": got.Started, "seen": got.Seen, "since": got.Running[0].Since} {
			if at.Before(begin.Add(-time.Second)) || at.After(q.now().Add(time.Second)) {
				t.Errorf("%s: %s", what, at)
			}
		}
		if run := got.Running[0]; run.ID != job.ID || run.Kind != "once" || run.RequestID != "7f3a9c2e" || len(run.Fields) != 0 || run.Entry == "" {
			t.Errorf("runs %+v", run)
		}
		if text := fmt.Sprint(q.rdb.HGetAll(t.Context(), q.key("jobs:worker:"+got.Name)).Val()); strings.Contains(text, "secret") {
			t.Errorf("it tells the arguments: %s", text)
		}
		g.end <- nil
		eventually(t, "it says that nothing runs", func() bool { return len(q.workers()[0].Running) == 0 })
		must(t, w.stop())
		if n := q.rdb.Exists(t.Context(), q.key("jobs:worker:"+got.Name)).Val(); n != 0 {
			t.Error("its description is left")
		}
	})
}

// A worker that died has no description soon; what it owns still has its name.
func TestWorkersWithoutAProcess(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		g := newGate()
		h := q.hire(jobs.Config{Worker: "dead", Lease: 10 * time.Second}, handle(once, g.handle))
		q.enqueue(once.Job(nil))
		g.wait(t, 1)
		time.Sleep(5 * time.Second)
		h.die()
		if w := q.workers(); len(w) != 1 || w[0].Seen.IsZero() || len(w[0].Running) != 1 {
			t.Errorf("at its death: %+v", w)
		}
		time.Sleep(41 * time.Second)
		if w := q.workers(); len(w) != 1 || !w[0].Seen.IsZero() || w[0].Owns != 1 || len(w[0].Running) != 0 {
			t.Errorf("later: %+v", w)
		}
		g.end <- nil
	})
}

func TestSchedulesAndRunningOneByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		const period = 10_000 * time.Hour // no tick comes while the test runs
		var rs runs
		sweep := jobs.Periodic{Name: "sweep", When: jobs.Every(period), Job: once.Job(jobs.Fields{"area": "\xff\x00west"})}
		night := jobs.Periodic{When: jobs.Every(period), Job: once.Job(nil)}
		add := func(ps ...jobs.Periodic) func(*jobs.Runner) {
			return func(r *jobs.Runner) {
				for _, p := range ps {
					r.Schedule(p)
				}
			}
		}
		a := q.start(jobs.Config{Worker: "a"}, handle(once, record[jobs.Fields](&rs)), add(sweep, night))
		q.start(jobs.Config{Worker: "b"}, handle(once, record[jobs.Fields](&rs)), add(sweep))
		states := func() []jobs.ScheduleState {
			all, err := q.Schedules(t.Context())
			must(t, err)
			return all
		}
		eventually(t, "both follow it", func() bool {
			s := states()
			return len(s) == 2 && s[1].Workers == 2 && !s[1].Next.IsZero() && !s[1].Last.IsZero()
		})
		got := states()[1]
		last := time.Unix(q.now().Unix()/36_000_000*36_000_000, 0)
		if got.Name != "sweep" || got.Kind != "once" || got.Expression == "" || got.By != "" || got.Job.ID != "" || got.Job.Kind != "once" ||
			got.Job.Fields["area"] != "\xff\x00west" || !got.Last.Equal(last) || !got.Next.Equal(last.Add(period)) {
			t.Errorf("%+v", got)
		}
		must(t, q.rdb.Set(t.Context(), q.key(fmt.Sprint("sched:sweep:", last.Unix())), "a-1234", time.Hour).Err())
		if got := states()[1]; got.By != "a-1234" {
			t.Errorf("enqueued by %q", got.By)
		}
		must(t, q.RunSchedule(q.as("marek"), "sweep"))
		job := rs.wait(t, 1)[0]
		if job.Fields["area"] != "\xff\x00west" || job.ID == "" || job.ID == sweep.Job.ID || !job.Tick.IsZero() {
			t.Errorf("ran %+v", job)
		}
		if act := q.audit(jobs.Filter{}); len(act) != 1 || act[0].Who != "marek" || act[0].What != jobs.ActionRunSchedule || act[0].Schedule != "sweep" || act[0].ID != job.ID {
			t.Errorf("%+v", act)
		}
		must(t, a.stop())
		if err := q.RunSchedule(t.Context(), "once"); !errors.Is(err, jobs.ErrNotFound) || len(states()) != 1 {
			t.Errorf("of a worker that has left: %v, %+v", err, states())
		}
	})
}

// tells has a worker describe itself, with a schedule whose next tick is in epoch seconds; 0: it has not looked yet.
func (q *queue) tells(worker string, started int, expression string, next int) {
	q.t.Helper()
	ctx, stream, at := q.t.Context(), q.key("jobs"), ""
	if next != 0 {
		at = fmt.Sprintf(`"next":%d,`, next)
	}
	_ = q.rdb.XGroupCreateMkStream(ctx, stream, "workers", "0").Err() // there already, perhaps
	must(q.t, q.rdb.XGroupCreateConsumer(ctx, stream, "workers", worker).Err())
	must(q.t, q.rdb.HSet(ctx, q.key("jobs:worker:"+worker), "started", started, "seen", 3600, "lease", 12_000, "schedules",
		fmt.Sprintf(`[{"name":"beat","kind":"once","expression":%q,%s"job":"{\"kind\":\"once\"}"}]`, expression, at)).Err())
}

// What a worker says stands still when it is killed, and is there for a few leases more.
func TestSchedulesSayWhichTickComesNext(t *testing.T) {
	t.Parallel()
	type told struct {
		expression string
		next       int
	}
	const minute, often, rarely = "@every 1m", "@every 10s", "@every 1h"
	for name, c := range map[string]struct {
		last    int
		workers []told // in the order in which they started
		want    told
	}{
		"all agree":                         {600, []told{{minute, 660}, {minute, 660}}, told{minute, 660}},
		"there was none yet":                {0, []told{{minute, 660}, {minute, 660}}, told{minute, 660}},
		"the last to start was killed":      {600, []told{{minute, 660}, {minute, 120}}, told{minute, 660}},
		"the first to start was killed":     {600, []told{{minute, 600}, {minute, 660}}, told{minute, 660}},
		"one has not looked yet":            {600, []told{{minute, 660}, {minute, 0}}, told{minute, 660}},
		"one is ahead":                      {600, []told{{minute, 660}, {minute, 720}}, told{minute, 660}},
		"none has told of it yet":           {600, []told{{minute, 540}, {minute, 600}}, told{minute, 600}},
		"a deploy, and the old were killed": {600, []told{{often, 610}, {often, 610}, {rarely, 3600}}, told{rarely, 3600}},
		"a deploy was taken back":           {600, []told{{minute, 660}, {often, 610}, {minute, 720}}, told{minute, 660}},
		"a deploy, and the new was killed":  {600, []told{{often, 610}, {often, 610}, {rarely, 600}}, told{rarely, 610}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *queue) {
				for i, w := range c.workers {
					q.tells(fmt.Sprint("w", len(c.workers)-i), i+1, w.expression, w.next)
				}
				if c.last > 0 {
					must(t, q.rdb.Set(t.Context(), q.key("sched:beat"), fmt.Sprint(c.last, " ", minute), 0).Err())
				}
				all, err := q.Schedules(t.Context())
				must(t, err)
				if len(all) != 1 || all[0].Workers != len(c.workers) || all[0].Expression != c.want.expression ||
					!all[0].Next.Equal(time.Unix(int64(c.want.next), 0)) {
					t.Errorf("%+v, want %+v", all, c.want)
				}
			})
		})
	}
}

// While the others tick on, a schedule's next tick is theirs.
func TestSchedulesAfterAWorkerDied(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		q.hire(jobs.Config{Worker: "lives"}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(10*time.Second)))
		time.Sleep(time.Second)
		h := q.hire(jobs.Config{Worker: "dies"}, handle(once, record[jobs.Fields](&rs)), on("beat", jobs.Every(10*time.Second)))
		time.Sleep(10 * time.Second)
		h.die()
		time.Sleep(35 * time.Second)
		all, err := q.Schedules(t.Context())
		must(t, err)
		if s := all[0]; s.Workers != 2 || s.Last.IsZero() || !s.Next.Equal(s.Last.Add(10*time.Second)) {
			t.Errorf("after %d ticks: %+v", len(rs.all()), s)
		}
	})
}

// history adds up what has ended how, by kind.
func (q *queue) history() map[string]jobs.Outcomes {
	q.t.Helper()
	minutes, err := q.History(q.t.Context(), time.Time{})
	must(q.t, err)
	sum := map[string]jobs.Outcomes{}
	for _, m := range minutes {
		for kind, o := range m.Kinds {
			s := sum[kind]
			sum[kind] = jobs.Outcomes{
				Done: s.Done + o.Done, Retried: s.Retried + o.Retried, Snoozed: s.Snoozed + o.Snoozed,
				Dead: s.Dead + o.Dead, Released: s.Released + o.Released, Parked: s.Parked + o.Parked,
			}
		}
	}
	return sum
}

var failing = jobs.NewKind[jobs.Fields]("failing", jobs.Policy{Retries: 1, Backoff: jobs.FullJitter(0, 0)})

func TestHistoryCountsWhatEnded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var snoozed atomic.Bool
		w := q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)),
			handle(failing, func(context.Context, jobs.Fields) error {
				if !snoozed.Swap(true) {
					return jobs.Snooze(time.Millisecond)
				}
				return errors.New("503")
			}))
		q.enqueue(many(20)...)
		q.enqueue(failing.Job(nil))
		q.add("jobs", "kind", "once", "attempts", "many")
		q.add("jobs", "kind", "from\x00elsewhere:1")
		q.addDelayed(1, "rubbish")
		want := map[string]jobs.Outcomes{
			"once": {Done: 20, Dead: 1}, "failing": {Snoozed: 1, Retried: 1, Dead: 1}, "": {Dead: 1, Parked: 1},
		}
		got := func() map[string]jobs.Outcomes {
			h := q.history()
			o := h[""]
			o.Parked = min(o.Parked, 1) // it comes again and again
			h[""] = o
			return h
		}
		eventually(t, "all has been counted", func() bool { return cmp.Equal(want, got()) })
		q.enqueue(many(3)...)
		rs.wait(t, 23)
		q.idle()
		must(t, w.stop())
		want["once"] = jobs.Outcomes{Done: 23, Dead: 1}
		if diff := cmp.Diff(want, got()); diff != "" {
			t.Errorf("after the worker has left: %s", diff)
		}
	})
}

// A worker that leaves tells what it has counted since its last renewal.
func TestHistoryOfAWorkerThatLeavesAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		h := q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		time.Sleep(100 * time.Millisecond)
		q.enqueue(many(7)...)
		time.Sleep(time.Second)
		if got := q.history()["once"].Done; got != 0 {
			t.Errorf("%d are told before the renewal", got)
		}
		must(t, h.stop())
		if got := q.history()["once"].Done; got != 7 {
			t.Errorf("7 were counted as %d", got)
		}
	})
}

// A living worker is not forgotten, however long it has had nothing to do.
func TestAnIdleWorkerStaysInTheList(t *testing.T) {
	t.Parallel()
	q := newQueue(t, servers.NewRedis(t).Client(t), "")
	var rs runs
	for range 2 {
		q.start(jobs.Config{Lease: 100 * time.Millisecond}, handle(once, record[jobs.Fields](&rs)))
	}
	eventually(t, "both are there", func() bool { return len(q.workers()) == 2 })
	for _, w := range q.workers() { // as Redis tells of one that owned something an hour ago
		entry := q.add("jobs", "kind", "nobody's")
		q.hold(w.Name, entry, time.Hour, 1)
		must(t, q.rdb.XAck(t.Context(), q.key("jobs"), "workers", entry).Err())
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if n := len(q.workers()); n != 2 {
			t.Fatalf("%d workers", n)
		}
	}
}

func TestHistoryHasDepths(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		g := newGate()
		q.enqueue(many(5)...)
		q.enqueue(once.Job(nil).In(time.Hour))
		q.kill("a", 2)
		time.Sleep(30 * time.Second)
		for range 2 {
			q.hire(jobs.Config{Slots: 1}, handle(once, g.handle))
		}
		time.Sleep(3 * time.Minute)
		minutes, err := q.History(t.Context(), time.Now().Add(-2*time.Minute))
		must(t, err)
		if len(minutes) != 3 {
			t.Fatalf("%d minutes: %+v", len(minutes), minutes)
		}
		for i, m := range minutes {
			if m.At.Second() != 0 || m.Depth == nil {
				t.Fatalf("minute %d: %+v", i, m)
			}
			age := m.Depth.OldestReady
			m.Depth.OldestReady = 0
			if *m.Depth != (jobs.Stats{Ready: 3, Running: 2, Delayed: 1, Dead: 2}) || age < time.Duration(i+1)*time.Minute || age > time.Duration(i+3)*time.Minute {
				t.Errorf("minute %d: %+v, oldest %s", i, *m.Depth, age)
			}
		}
		ttl := q.rdb.TTL(t.Context(), q.key(fmt.Sprint("jobs:stats:", minutes[0].At.Unix()/60))).Val()
		if ttl < 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("it lives for %s", ttl)
		}
		for range 5 {
			g.end <- nil
		}
	})
}

// A renewal whose reply is lost is made again, and counts once.
func TestHistoryCountsOnce(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		var rs runs
		var told atomic.Int64
		proxy.Hook(func(cmd []string) servers.Action {
			if slices.Contains(cmd, "done:once") && told.Add(1) <= 2 {
				return servers.SwallowReply
			}
			return servers.Pass
		})
		q.enqueue(many(10)...)
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		rs.wait(t, 10)
		q.idle()
		must(t, q.Enqueue(t.Context(), once.Job(nil))) // told later than the ten
		rs.wait(t, 11)
		eventually(t, "it was told again", func() bool { return told.Load() >= 3 })
		eventually(t, "all has been counted", func() bool { return q.history()["once"].Done >= 11 })
		if got := q.history()["once"].Done; got != 11 {
			t.Errorf("11 jobs were counted as %d", got)
		}
	})
}

// What cannot be told is no reason not to work.
func TestWorkersThatCannotTell(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		g := newGate()
		var log journal
		q.start(jobs.Config{Logger: log.logger(t)}, handle(once, g.handle))
		q.enqueue(many(2)...)
		g.wait(t, 2)
		self := q.key("jobs:worker:") + q.consumers()[0]
		must(t, q.rdb.Set(t.Context(), self, "x", 0).Err())
		eventually(t, "it is said", func() bool { return len(log.lines(t, "cannot be told")) == 1 })
		g.end <- nil
		eventually(t, "one is done", func() bool { return q.stats().Running == 1 })
		must(t, q.rdb.Del(t.Context(), self).Err())
		g.end <- nil
		eventually(t, "both are counted", func() bool { return q.history()["once"].Done == 2 })
		if n := len(log.lines(t, "cannot be told")); n != 1 || len(log.lines(t, "lease lost")) != 0 {
			t.Errorf("said %d times: %s", n, log.String())
		}
	})
}

// For want of memory a worker that lives is still seen to.
func TestWorkersForWantOfMemory(t *testing.T) {
	t.Parallel()
	q, _ := apart(t)
	g := newGate()
	var log journal
	began := time.Now()
	q.start(jobs.Config{Logger: log.logger(t), Lease: 500 * time.Millisecond}, handle(once, g.handle))
	seen := func() time.Time {
		all, err := q.Workers(t.Context())
		must(t, err)
		if len(all) == 0 {
			return time.Time{}
		}
		return all[0].Seen
	}
	eventually(t, "it describes itself", func() bool { return !seen().IsZero() })
	must(t, q.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	described := seen()
	eventually(t, "it has outlived its description", func() bool {
		last := seen()
		return last.IsZero() || last.Sub(described) > 5*500*time.Millisecond
	})
	if seen().IsZero() || len(log.lines(t, "cannot be told")) != 0 {
		t.Errorf("after %s it looks dead: %s", time.Since(began), log.String())
	}
}

func TestKeepDeadFor(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var log journal
		old := q.kill("a", 3)
		time.Sleep(time.Hour)
		young := q.kill("b", 2)
		q.hire(jobs.Config{KeepDeadFor: 2 * time.Hour, Logger: log.logger(t)}, handle(once, record[jobs.Fields](new(runs))))
		time.Sleep(59 * time.Minute)
		if n := len(q.dead()); n != 5 {
			t.Errorf("%d letters before the time", n)
		}
		time.Sleep(2 * time.Minute)
		if left := q.dead(); len(left) != 2 || left[0].Entry != young[0] {
			t.Errorf("left: %+v (the old ones were %v)", left, old)
		}
		lines := log.lines(t, "dropped for their age")
		if len(lines) != 1 || lines[0]["dropped"] != 3.0 {
			t.Errorf("said: %v", lines)
		}
	})
}

func TestRunScheduleWhereTheTrailCannotBeWritten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), on("sweep", jobs.Every(24*time.Hour)))
		time.Sleep(time.Minute)
		must(t, q.rdb.Set(t.Context(), q.key("jobs:audit"), "x", time.Hour).Err())
		if err := q.RunSchedule(t.Context(), "sweep"); err == nil || errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		if len(rs.all()) != 0 || q.stats() != (jobs.Stats{}) {
			t.Errorf("%d ran, and left %+v", len(rs.all()), q.stats())
		}
	})
}

// The last counts of a worker that leaves just after the turn of a minute, of which nobody has told the depths.
func TestLastCountsExpire(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		h := q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		for time.Now().Second() != 0 || time.Now().Minute() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		q.enqueue(many(3)...)
		time.Sleep(10 * time.Millisecond)
		must(t, h.stop())
		key := q.key(fmt.Sprint("jobs:stats:", q.now().Unix()/60))
		if n, ttl := q.history()["once"].Done, q.rdb.TTL(t.Context(), key).Val(); n != 3 || ttl < 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("%d are counted, in %s, which lives for %s", n, key, ttl)
		}
	})
}
