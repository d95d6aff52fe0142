//go:build !race

package jobs_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/crashes"
)

// An arrow is one of those in the life of a job, with what the victim finds and what it does about it.
type arrow struct {
	name  string
	act   func(w *world)
	whole bool // all commands count, also those with which a worker prepares itself
}

// arrows are all of them, the slowest first.
var arrows = []arrow{
	{name: "poison", act: func(w *world) {
		w.ghost(3, 6*w.lease, "do", "ok")
		w.ghost(3, 6*w.lease, "do", "ok", "attempts", "1")
		w.work()
	}},
	{name: "suspect", act: func(w *world) {
		w.ghost(2, 2*w.lease, "do", "ok")
		w.ready("do", "long")
		w.work()
	}},
	{name: "suspect beside a long job", act: func(w *world) {
		w.ghost(2, 2*w.lease, "do", "ok")
		w.ready("do", "longer")
		w.work()
	}},
	{name: "leave while emptying for a suspect", act: func(w *world) {
		w.ghost(2, 2*w.lease, "do", "ok")
		w.ready("do", "longer")
		w.start()
		w.await("it empties itself", func() bool { return w.exists("jobs:suspect") || w.settled() })
		w.leave()
	}},
	{name: "reclaim", act: func(w *world) {
		for range 3 {
			w.ghost(1, 2*w.lease, "do", "ok")
		}
		w.ghost(1, 2*w.lease, "do", "fail", "job_id", "")
		w.work()
	}},
	{name: "lease lost", act: func(w *world) {
		id := w.ready("do", "heed")
		w.start()
		w.await("it runs", func() bool { return w.history.Len() == 1 })
		w.claim("ghost", id, 0, 1)
		w.await("it is told so", func() bool { return w.history.Has(id, crashes.CutOff) })
	}},
	{name: "fail after the lease was lost", act: func(w *world) {
		retried, expired := w.ready("do", "fail", "wait", "1"), w.ready("do", "permanent", "wait", "1")
		w.start()
		w.await("they run", func() bool { return w.history.Len() == 2 })
		w.claim("ghost", retried, 0, 1)
		w.claim("ghost", expired, 0, 1)
		w.await("they fail", func() bool { return w.history.Has(retried, crashes.CutOff) && w.history.Has(expired, crashes.CutOff) })
		w.rest(w.victim, w.lease/4)
	}},
	{name: "renew", act: func(w *world) {
		w.ready("do", "long")
		w.work()
	}},
	{name: "body gone", act: func(w *world) {
		id := w.ghost(1, 2*w.lease, "do", "ok")
		w.check(w.rdb.XDel(context.Background(), w.key("jobs"), w.entries[id]).Err())
		w.jobs = nil
		w.start()
		w.await("it is noticed", func() bool { return w.look().Bodiless == 0 })
	}},
	{name: "unknown kind, pending for an hour", act: func(w *world) {
		w.ghost(1, 61*time.Minute, "kind", "nobody's")
		w.last().Buried = crashes.UnknownKind
		w.work()
	}},
	{name: "unknown kind, fetched after an hour", act: func(w *world) {
		id := w.ready("kind", "nobody's", "unknown_since", fmt.Sprint(w.now().Add(-61*time.Minute).Unix()))
		w.last().Buried = crashes.UnknownKind
		w.later = func() { w.claim("ghost", id, 61*time.Minute, 1) } // a sweep leaves it alone for an hour
		w.work()
	}},
	{name: "unknown kind", act: func(w *world) {
		w.ready("kind", "elsewhere")
		w.start()
		w.await("it is put off", func() bool { return w.rdb.ZCard(context.Background(), w.key("delayed")).Val() == 1 })
	}},
	{name: "hand over", act: func(w *world) {
		w.ready("do", "stubborn")
		w.start()
		w.await("it runs", func() bool { return w.history.Len() == 1 })
		w.leave()
	}},
	{name: "hand over what was taken over", act: func(w *world) {
		w.ghost(1, 2*w.lease, "do", "stubborn")
		w.start()
		w.await("it runs", func() bool { return w.history.Len() == 1 })
		w.leave()
	}},
	{name: "release", act: func(w *world) {
		w.ready("do", "heed")
		w.ready("do", "heed", "job_id", "")
		w.start()
		w.await("they run", func() bool { return w.history.Len() == 2 })
		w.leave()
	}},
	{name: "release of what the last read brings", act: func(w *world) {
		w.start()
		w.await("it waits for an entry", func() bool { return w.victim.Sent("xreadgroup block") > 0 })
		w.cancel()
		w.ready("do", "ok")
		w.leave()
	}},
	{name: "prepare", whole: true, act: func(w *world) {
		w.ready("do", "ok")
		w.work()
	}},
	{name: "fetch and done", act: func(w *world) {
		for range 3 {
			w.ready("do", "ok", "brief", "1")
		}
		w.work()
	}},
	{name: "blocked read", act: func(w *world) {
		w.start()
		w.await("it waits for an entry", func() bool { return w.victim.Sent("xreadgroup block") > 0 })
		w.ready("do", "ok")
		w.ready("do", "ok")
		w.await("they are done", w.settled)
	}},
	{name: "retry", act: func(w *world) {
		w.ready("do", "fail")
		w.ready("do", "fail", "job_id", "")
		w.work()
	}},
	{name: "snooze", act: func(w *world) {
		w.ready("do", "snooze")
		w.work()
	}},
	{name: "bury", act: func(w *world) {
		w.ready("do", "die")
		w.ready("do", "permanent")
		w.ready("kind", "strict", "order_id", "many", "seat", "14C")
		w.last().Buried = crashes.Undecodable
		w.ready("kind", "")
		w.last().Buried = crashes.Undecodable
		w.work()
	}},
	{name: "several outcomes in one trip", act: func(w *world) {
		for _, what := range []string{"ok", "fail", "permanent", "snooze", "ok", "die"} {
			w.ready("do", what, "brief", "1")
		}
		w.work()
	}},
	{name: "promote", act: func(w *world) {
		for range 3 {
			w.delayed(w.now().Add(-time.Hour), "do", "ok")
		}
		w.rubbish(`{"kind": 14C}`)
		w.rubbish(`{"kind":"act","job_id":["x"]}`)
		w.delayed(w.now().Add(24*time.Hour), "do", "ok")
		w.last().Stays = crashes.Delayed
		w.far++
		w.work()
	}},
	{name: "tick", act: func(w *world) {
		at, period := w.hours()
		for i := range 3 {
			w.schedule(fmt.Sprint("s", i), jobs.Every(period), at.Add(-period), at)
		}
		w.start()
		w.await("the ticks are done", func() bool { return w.victim.Answered("tick.lua") >= 3 && w.settled() })
	}},
	{name: "tick on time", act: func(w *world) {
		at := w.now().Truncate(time.Second).Add(2 * time.Second)
		w.schedule("s", instants{at, at.Add(time.Hour)}, at.Add(-time.Hour), at)
		w.start()
		w.await("it is done", func() bool { return w.victim.Answered("tick.lua") > 0 && w.settled() })
	}},
	{name: "schedule seen for the first time", act: func(w *world) {
		_, period := w.hours()
		w.schedule("s", jobs.Every(period), time.Time{})
		w.start()
		w.await("it is noted", func() bool { return w.exists("sched:s") })
	}},
	{name: "group gone", act: func(w *world) {
		w.start()
		w.await("it waits for an entry", func() bool { return w.victim.Sent("xreadgroup block") > 0 })
		w.check(w.rdb.Del(context.Background(), w.key("jobs")).Err())
		w.ready("do", "ok")
		w.await("it is done", w.settled)
	}},
	{name: "enqueue one", whole: true, act: func(w *world) { w.enqueue(w.job()) }},
	{name: "enqueue in a while", whole: true, act: func(w *world) { w.enqueue(w.job().In(time.Millisecond)) }},
	{name: "enqueue at a time", whole: true, act: func(w *world) { w.enqueue(w.job().At(w.now().Add(time.Millisecond))) }},
	{name: "enqueue several", whole: true, act: func(w *world) {
		w.enqueue(w.job(), w.job().In(time.Millisecond), w.job().At(w.now()), w.job())
	}},
	{name: "enqueue more than one transaction takes", whole: true, act: func(w *world) {
		js := make([]jobs.Job, 1002)
		for i := range js {
			js[i] = w.job()
		}
		w.cfg.Slots = 500
		w.enqueue(js...)
	}},
	{name: "replay", whole: true, act: func(w *world) {
		entry := w.dead()
		w.operate(func(ctx context.Context, c *jobs.Client) error {
			return c.DeadLetters().Replay(ctx, entry, jobs.ReplayOptions{Set: jobs.Fields{"do": "ok"}})
		})
	}},
	{name: "replay all", whole: true, act: func(w *world) {
		for range 3 {
			w.dead()
		}
		w.operate(func(ctx context.Context, c *jobs.Client) error {
			_, err := c.DeadLetters().ReplayAll(ctx, jobs.Filter{Kind: "act"}, jobs.ReplayOptions{Set: jobs.Fields{"do": "fail"}})
			return err
		})
	}},
	{name: "discard", whole: true, act: func(w *world) {
		entry := w.dead()
		w.last().Vanishes = true
		w.operate(func(ctx context.Context, c *jobs.Client) error { return c.DeadLetters().Discard(ctx, entry) })
	}},
	{name: "cancel", whole: true, act: func(w *world) {
		id := w.delayed(w.now().Add(24*time.Hour), "do", "ok")
		w.last().Stays, w.last().Vanishes = crashes.Delayed, true
		w.operate(func(ctx context.Context, c *jobs.Client) error { return c.Delayed().Cancel(ctx, id) })
		w.far = w.rdb.ZCard(context.Background(), w.key("delayed")).Val()
	}},
	{name: "run now", whole: true, act: func(w *world) {
		id := w.delayed(w.now().Add(24*time.Hour), "do", "ok")
		w.last().Stays = crashes.Delayed
		w.operate(func(ctx context.Context, c *jobs.Client) error { return c.Delayed().RunNow(ctx, id) })
		w.far = w.rdb.ZCard(context.Background(), w.key("delayed")).Val()
	}},
}
