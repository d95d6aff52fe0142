package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
	"github.com/stagedoor/jobs/jobstest"
)

// score is when a member of delayed is due, as it lies there.
func (q *queue) scores() map[string]float64 {
	q.t.Helper()
	members, err := q.rdb.ZRangeWithScores(q.t.Context(), q.key("delayed"), 0, -1).Result()
	must(q.t, err)
	all := map[string]float64{}
	for _, m := range members {
		all[m.Member.(string)] = m.Score
	}
	return all
}

func (q *queue) addDelayed(score float64, member string) {
	q.t.Helper()
	must(q.t, q.rdb.ZAdd(q.t.Context(), q.key("delayed"), redis.Z{Score: score, Member: member}).Err())
}

func TestADelayedJobIsNeverEarly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		type due struct{ at, began time.Time }
		ran := make(chan due, 100)
		kind := jobs.NewKind[struct{ Due time.Time }]("reminder", jobs.Policy{})
		q.start(jobs.Config{Slots: 50}, handle(kind, func(_ context.Context, args struct{ Due time.Time }) error {
			ran <- due{args.Due, q.now()}
			return nil
		}))
		const n = 40
		for i := range n {
			at := q.now().Add(time.Duration(i) * 37_654_321)
			q.enqueue(kind.Job(struct{ Due time.Time }{at}).At(at))
		}
		for range n {
			d := receive(t, ran)
			if early := d.at.Sub(d.began); early > 0 { // how late one is says TestHowLateADelayedJobIs, in fake time
				t.Errorf("due %s, ran %s earlier", d.at, early)
			}
		}
	})
}

func TestHowLateADelayedJobIs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ before, in, most time.Duration }{ // before: how long the worker was idle
		"known a second before": {0, 3 * time.Second, 20 * time.Millisecond},
		"after a fraction":      {700 * time.Millisecond, 1300*time.Millisecond + 1, 20 * time.Millisecond},
		"known too late":        {300 * time.Millisecond, 400 * time.Millisecond, 1100 * time.Millisecond},
		"at once, nearly":       {300 * time.Millisecond, 1, 1100 * time.Millisecond},
		"minutes":               {0, 3 * time.Minute, 20 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rs runs
			jobstest.Bubble(t, jobs.Config{}, func(q *jobstest.Queue) {
				jobs.Handle(q.Runner(), once, record[jobs.Fields](&rs))
			}, func(t *testing.T, q *jobstest.Queue) {
				time.Sleep(test.before)
				due := time.Now().Add(test.in)
				q.Enqueue(once.Job(nil).In(test.in))
				time.Sleep(test.in - 1)
				q.Drain()
				early := len(rs.all())
				time.Sleep(test.most)
				q.Drain()
				if early != 0 || len(rs.all()) != 1 {
					t.Fatalf("%d ran early, %d in all", early, len(rs.all()))
				}
				if late := rs.times()[0].Sub(due); late < 0 || late > test.most {
					t.Errorf("late by %s, at most %s", late, test.most)
				}
			})
		})
	}
}

// All are found before the first is run: one that fails at once is in delayed anew, and not meant.
func TestRunNowReadsFirst(t *testing.T) {
	t.Parallel()
	through(t, func(t *testing.T, q *queue, proxy *servers.Proxy) {
		js := many(3000)
		for i := range js {
			js[i] = js[i].In(time.Hour)
		}
		job := once.Job(nil).In(time.Hour)
		q.enqueue(append(js, job)...)
		var mu sync.Mutex
		var names []string
		proxy.Hook(func(cmd []string) servers.Action {
			mu.Lock()
			defer mu.Unlock()
			names = append(names, strings.ToLower(cmd[0]))
			return servers.Pass
		})
		must(t, q.Delayed().RunNow(t.Context(), job.ID))
		mu.Lock()
		defer mu.Unlock()
		first := slices.Index(names, "eval")
		if first < 0 || !slices.Contains(names[:first], "zscan") || slices.Contains(names[first:], "zscan") {
			t.Errorf("it sent %v", names)
		}
	})
}

func TestTwentyThousandDueInTheSameSecond(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		n, batch := 20_000, 1000
		if isMini(t) {
			n = 3000 // it is several times slower, and under the race detector more so
		}
		due := float64(q.now().Unix()) - 1
		for i := range n / batch {
			pipe := rdb.Pipeline()
			for j := range batch {
				pipe.ZAdd(t.Context(), "delayed", redis.Z{Score: due + float64(j)/float64(batch), Member: fmt.Sprintf(`{"kind":"once","job_id":"%d"}`, i*batch+j)})
			}
			_, err := pipe.Exec(t.Context())
			must(t, err)
		}
		urgent := jobs.NewKind[jobs.None]("urgent", jobs.Policy{})
		var rs, direct runs
		q.start(jobs.Config{Slots: 200}, handle(once, record[jobs.Fields](&rs)), handle(urgent, record[jobs.None](&direct)))
		rs.wait(t, 1)
		q.enqueue(urgent.Job(jobs.None{}))
		direct.wait(t, 1)
		if left := q.stats().Delayed; left == 0 {
			t.Log("the direct job had no competition")
		}
		within(t, 2*time.Minute, "all are moved", func() bool { return rdb.ZCard(t.Context(), "delayed").Val() == 0 })
		q.idle()
		seen := map[string]bool{}
		for _, job := range rs.all() {
			seen[job.ID] = true
		}
		if len(seen) != n || len(rs.all()) != n {
			t.Errorf("%d runs of %d jobs", len(rs.all()), len(seen))
		}
	})
}

func TestD01_EqualJobsStaySeparate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		for range 3 {
			q.enqueue(once.Job(jobs.Fields{"a": "b"}).In(20 * time.Millisecond))
		}
		twin := once.Job(jobs.Fields{"c": "d"}).In(time.Minute)
		q.enqueue(once.Job(jobs.Fields{"c": "d"}).In(20*time.Millisecond), twin)
		if n := len(q.scores()); n != 5 {
			t.Fatalf("%d members", n)
		}
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		rs.wait(t, 4)
		last := once.Job(nil).In(time.Millisecond)
		q.enqueue(last)
		if all := rs.wait(t, 5); all[4].ID != last.ID {
			t.Errorf("runs %v", all)
		}
		if waits := q.delayed(); len(waits) != 1 || waits[0].ID != twin.ID {
			t.Errorf("waits %+v", waits)
		}
	})
}

func TestD04_ExtremeTimes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		far := map[string]jobs.Job{
			"253370764800": once.Job(nil).At(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
			"forever":      once.Job(nil).In(math.MaxInt64),
		}
		soon := []jobs.Job{
			once.Job(nil).At(time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)), once.Job(nil).At(time.Unix(0, 0)), once.Job(nil).At(time.Unix(0, -1)),
			once.Job(nil).In(-time.Hour), once.Job(nil).In(0), once.Job(nil).In(math.MinInt64), once.Job(nil).In(1),
			once.Job(nil).At(time.Now().Add(time.Hour)).In(0), // the last word counts
		}
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		if failed := q.refused(once.Job(nil).At(time.Time{})); !strings.Contains(failed.Error(), "zero time") {
			t.Error(failed)
		}
		for _, job := range far {
			q.enqueue(job)
		}
		q.enqueue(soon...)
		within(t, prompt, "what is past runs at once", func() bool { return len(rs.all()) == len(soon) })
		last := once.Job(nil).In(1)
		q.enqueue(last)
		if all := rs.wait(t, len(soon)+1); all[len(soon)].ID != last.ID {
			t.Errorf("runs %v", all)
		}
		scores := q.scores()
		for member, score := range scores {
			if strings.Contains(member, far["253370764800"].ID) && score != 253370764800 {
				t.Errorf("year 9999 has the score %f", score)
			}
			if strings.Contains(member, far["forever"].ID) && score < 9e9 {
				t.Errorf("the longest wait has the score %f", score)
			}
		}
		if len(scores) != 2 || len(q.delayed()) != 2 {
			t.Errorf("waits %v", scores)
		}
	})
}

func TestD06_EveryWorkerMoves(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, rdb *redis.Client) {
		q := newQueue(t, rdb, "")
		var rs runs
		for i := range 8 {
			q.start(jobs.Config{Worker: fmt.Sprint("w", i), Slots: 50}, handle(once, record[jobs.Fields](&rs)))
		}
		n, bursts := 5000, 10
		if isMini(t) {
			n = 500
		}
		for range bursts {
			js := make([]jobs.Job, n/bursts)
			for i := range js {
				js[i] = once.Job(nil).At(time.Unix(1, 0))
			}
			q.enqueue(js...)
		}
		rs.wait(t, n)
		q.idle()
		seen := map[string]int{}
		for _, job := range rs.all() {
			seen[job.ID]++
		}
		if len(seen) != n || len(rs.all()) != n || len(q.scores()) != 0 {
			t.Errorf("%d runs of %d jobs", len(rs.all()), len(seen))
		}
		info, err := rdb.XInfoStream(t.Context(), "jobs").Result()
		if err == nil && info.EntriesAdded != 0 && info.EntriesAdded != int64(n) { // miniredis does not count
			t.Errorf("%d entries were added", info.EntriesAdded)
		}
	})
}

func TestD08_GarbageAtTheHeadOfTheSet(t *testing.T) {
	t.Parallel()
	wide := jobs.Fields{"kind": "once"}
	for i := range 1010 {
		wide[fmt.Sprint(i)] = "x"
	}
	garbage := []string{
		"not-a-job", "", "{}", "[]", "null", `"kind"`, `{"kind":1}`, `{"kind":"once"`, `{"kind":"once"}x`, "\xff\x00",
		`{"kind":"once","a":null}`, `{"fields_base64":{"a2luZA==":"!"}}`, member(wide), strings.Repeat("[", 100_000),
	}
	each(t, func(t *testing.T, q *queue) {
		var rs runs
		var log journal
		for _, member := range garbage {
			q.addDelayed(1, member)
		}
		q.addDelayed(math.Inf(-1), "before all times")
		q.addDelayed(2, `{"kind":"once","job_id":"behind"}`)
		q.start(jobs.Config{Logger: log.logger(t)}, handle(once, record[jobs.Fields](&rs)))
		q.enqueue(once.Job(nil).In(time.Second))
		within(t, prompt, "both jobs run", func() bool { return len(rs.all()) == 2 })
		raws := map[string]bool{}
		for _, d := range q.awaitDead(len(garbage) + 1) {
			if raws[d.Raw] = true; d.Reason != jobs.ReasonUndecodable || d.Error == "" || d.Attempts != 0 {
				t.Errorf("%.200q: %.200q", d.Raw, d.Error)
			}
		}
		for _, member := range append(garbage, "before all times") {
			if !raws[member] {
				t.Errorf("not among the dead: %.200q", member)
			}
		}
		if n := len(log.lines(t, "")); n > 3+len(raws) {
			t.Errorf("%d log lines about %d pieces of garbage", n, len(raws))
		}
	})
}

// member is how another program writes a job into delayed.
func member(f jobs.Fields) string {
	pairs := []string{}
	for name, value := range f {
		pairs = append(pairs, fmt.Sprintf(" %q\t:\n%q ", name, value))
	}
	return "\n{" + strings.Join(pairs, ",") + "} "
}

func TestD09_TheProducersClockIsWrong(t *testing.T) {
	t.Parallel()
	const in = 5 * time.Second
	for name, skew := range map[string]time.Duration{"behind": -120 * time.Second, "ahead": 120 * time.Second, "right": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := servers.NewMiniredis(t)
			rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			q := newQueue(t, rdb, "")
			clock := time.Now().Add(-skew).Truncate(time.Second) // Redis's is right, and ours wrong by skew
			m.SetTime(clock)
			var rs runs
			q.enqueue(once.Job(nil).In(in), once.Job(nil).At(clock.Add(in)))
			for _, job := range q.delayed() {
				if wait := job.Due.Sub(clock); wait != in {
					t.Errorf("waits for %s by Redis's clock", wait)
				}
			}
			q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
			m.SetTime(clock.Add(in - time.Microsecond))
			q.enqueue(once.Job(nil).In(-1)) // a marker: the worker has promoted and run
			rs.wait(t, 1)
			if n := len(q.scores()); n != 2 {
				t.Errorf("%d wait before they are due", n)
			}
			m.SetTime(clock.Add(in))
			rs.wait(t, 3)
		})
	}
	t.Run("redis", func(t *testing.T) { // whose clock is ours: it is asked, at least
		t.Parallel()
		q := newQueue(t, servers.SharedRedis(t).Client(t), servers.Prefix(t))
		before := q.now()
		q.enqueue(once.Job(nil).In(in))
		after := q.now()
		if due := q.delayed()[0].Due; due.Before(before.Add(in)) || due.After(after.Add(in)) {
			t.Errorf("due %s, enqueued between %s and %s", due, before, after)
		}
	})
}

func TestDelayedJobsByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		js := many(1200) // more than a page
		for i := range js {
			js[i] = js[i].At(time.Unix(4e9+int64(i), 0))
		}
		slices.Reverse(js)
		q.enqueue(js...)
		q.addDelayed(5e9, "rubbish")
		q.addDelayed(6e9, `{"kind":"once"}`) // which has no ID to be named by
		listed := q.delayed()
		if len(listed) != 1201 {
			t.Fatalf("%d listed", len(listed))
		}
		for i, job := range listed[:1200] {
			if want := strconv.Itoa(i); job.Fields["n"] != want || job.Due.Unix() != 4e9+int64(i) || job.Kind != "once" {
				t.Fatalf("%d: %+v", i, job)
			}
		}
		delayed, cancelled, now := q.Delayed(), listed[3].ID, listed[1100].ID
		got, err := delayed.Get(t.Context(), now)
		if must(t, err); len(got) != 1 || got[0].Fields["n"] != "1100" || !got[0].Due.Equal(listed[1100].Due) {
			t.Errorf("got %+v", got)
		}
		must(t, delayed.Cancel(t.Context(), cancelled))
		must(t, delayed.RunNow(t.Context(), now))
		for _, id := range []string{cancelled, now, "", "nobody"} {
			_, err := delayed.Get(t.Context(), id)
			for what, err := range map[string]error{"get": err, "cancel": delayed.Cancel(t.Context(), id), "run now": delayed.RunNow(t.Context(), id)} {
				if !errors.Is(err, jobs.ErrNotFound) || !strings.Contains(err.Error(), strconv.Quote(id)) {
					t.Errorf("%s %q: %v", what, id, err)
				}
			}
		}
		var rs runs
		q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		if all := rs.wait(t, 1); all[0].ID != now || !maps.Equal(all[0].Fields, jobs.Fields{"n": "1100"}) {
			t.Errorf("ran %+v", all)
		}
		if n := len(q.delayed()); n != 1199 {
			t.Errorf("%d still wait", n)
		}
	})
}

// Kinds that share an ID: looked at, run and cancelled together; twenty people act once.
func TestDelayedJobsThatShareAnID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *queue) {
		for i, kind := range []string{"c", "a", "b"} {
			job := jobs.NewKind[jobs.Fields](kind, jobs.Policy{}).Job(nil).At(time.Unix(4e9-int64(i), 0))
			job.ID = "shared"
			q.enqueue(job)
		}
		got, err := q.Delayed().Get(t.Context(), "shared")
		must(t, err)
		if len(got) != 3 || got[0].Kind != "b" || got[2].Kind != "c" || got[1].Due.Unix() != 4e9-1 {
			t.Errorf("got %+v", got)
		}
		var people sync.WaitGroup
		for range 20 {
			people.Go(func() {
				if err := q.Delayed().RunNow(t.Context(), "shared"); err != nil && !errors.Is(err, jobs.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		people.Wait()
		if st, n := q.stats(), len(q.audit(jobs.Filter{ID: "shared"})); st != (jobs.Stats{Ready: 3, OldestReady: st.OldestReady}) || n != 3 {
			t.Errorf("%+v, %d records", st, n)
		}
	})
}

// A worker that is far from its Redis and works off what has gathered is busy, and not stuck.
func TestPromotingForMinutesIsHealthy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		const gathered = 2_000
		for i := range gathered {
			q.addDelayed(1, fmt.Sprintf(`{"kind":"elsewhere","job_id":"%d"}`, i))
		}
		w := q.hire(jobs.Config{Slots: 1}, handle(once, func(ctx context.Context, _ jobs.Fields) error { <-ctx.Done(); return nil }))
		q.enqueue(once.Job(nil)) // it fills the slot
		time.Sleep(time.Second)
		w.far(1500 * time.Millisecond)
		began := time.Now()
		for ; q.stats().Delayed > 0; time.Sleep(time.Second) {
			must(t, w.Healthy())
		}
		if took := time.Since(began); took < 90*time.Second {
			t.Errorf("moved within %s: too soon to tell", took)
		}
	})
}

func TestGarbageThatCannotBeBuriedHoldsNothingUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *queue) {
		var rs runs
		q.hire(jobs.Config{}, handle(once, record[jobs.Fields](&rs)))
		must(t, q.rdb.Set(t.Context(), q.key("jobs:dead"), "another program's", 0).Err())
		q.addDelayed(1, "not-a-job")
		q.enqueue(once.Job(nil).In(time.Second))
		time.Sleep(10 * time.Second)
		if len(rs.all()) != 1 {
			t.Errorf("%d runs", len(rs.all()))
		}
		must(t, q.rdb.Del(t.Context(), q.key("jobs:dead")).Err())
		time.Sleep(10 * time.Second)
		if dead := q.dead(); len(dead) != 1 {
			t.Errorf("buried: %+v", dead)
		}
	})
}
