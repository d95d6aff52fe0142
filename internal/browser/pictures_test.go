package browser

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
)

// TestPictures makes pictures of each page of a shop with a past. It judges what can be judged without eyes (audit); a
// person looks at the pictures.
func TestPictures(t *testing.T) {
	w := shop(t)
	pages := map[string]string{
		"overview": "", "dead": "dead", "delayed": "delayed", "schedules": "schedules", "workers": "workers", "audit": "audit",
		"run-schedule": "confirm?do=run-schedule&name=expire_holds", "said": "dead?n=2&said=replayed&gone=1",
	}
	for l, err := range w.client.DeadLetters().List(t.Context(), jobs.Filter{Kind: "render_tickets", Since: time.Now().Add(-time.Hour), Limit: 1}) {
		must(t, err)
		pages["letter"], pages["confirm"] = "letter?entry="+l.Entry, "confirm?do=discard&entry="+l.Entry
		pages["correct"] = "confirm?do=correct&set:label=7B&entry=" + l.Entry
	}
	pictures(t, open(t, 1280), w, "shop", pages)
}

var looks = []struct {
	name   string
	width  int64
	scheme string
}{{"wide", 1280, "light"}, {"wide-dark", 1280, "dark"}, {"narrow", 390, "light"}}

// pictures looks at pages in each look, and stores them in the folder SHOTS where there is one.
func pictures(t *testing.T, ctx context.Context, w *world, of string, pages map[string]string) {
	t.Helper()
	folder := os.Getenv("SHOTS")
	for _, look := range looks {
		do(t, ctx, chromedp.EmulateViewport(look.width, 760))
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}},
		})
		must(t, err)
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			do(t, ctx, chromedp.Navigate(w.url+pages[name]), chromedp.WaitVisible(chromedp.CSS("footer")))
			faults, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](audit))
			must(t, err)
			for _, fault := range faults {
				t.Errorf("%s, %s: %s", name, look.name, fault)
			}
			if folder == "" {
				continue
			}
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(folder, of+"-"+name+"-"+look.name+".png"), png, 0o644))
		}
	}
}

type mailArgs struct {
	OrderID int    `job:"order_id"`
	Email   string `job:"email"`
}

// shop is a queue with an hour behind it: two kinds that die, one that waits, schedules, a long run, and hands that did
// something.
func shop(t *testing.T) *world {
	t.Helper()
	send := jobs.NewKind[mailArgs]("send_tickets", jobs.Policy{})
	remind := jobs.NewKind[mailArgs]("send_reminder", jobs.Policy{})
	reconcile := jobs.NewKind[jobs.None]("reconcile_payments", jobs.Policy{})
	expire := jobs.NewKind[jobs.None]("expire_holds", jobs.Policy{})
	started := make(chan struct{}, 1)
	w := newWorld(t, dashboard.Options{Title: "Stagedoor", Actor: func(*http.Request) string { return "marek" }}, func(r *jobs.Runner) {
		jobs.Handle(r, renderTickets, func(_ context.Context, a renderArgs) error {
			return fmt.Errorf("render order %d: %w", a.OrderID, fmt.Errorf("SeatLabelInvalid: '%s' is not a row letter and a seat number", a.Label))
		})
		jobs.Handle(r, send, func(context.Context, mailArgs) error {
			return jobs.Permanent(errors.New("mail provider answered 550 <nobody@example.org>: no such mailbox"))
		})
		jobs.Handle(r, remind, func(context.Context, mailArgs) error { return nil })
		jobs.Handle(r, expire, func(context.Context, jobs.None) error { return nil })
		jobs.Handle(r, reconcile, func(ctx context.Context, _ jobs.None) error {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}, func(next jobs.Handler) jobs.Handler {
			return func(ctx context.Context, j jobs.Job) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				context.AfterFunc(t.Context(), cancel) // the test's end
				return next(ctx, j)
			}
		})
		r.Schedule(jobs.Periodic{When: jobs.Every(time.Minute), Job: expire.Job(jobs.None{})})
		r.Schedule(jobs.Periodic{When: jobs.Daily(3, 0), Job: reconcile.Job(jobs.None{})})
	})
	w.past(t)
	var all []jobs.Job
	for i, label := range []string{"14-C", "3-A", "7-B", "19-D"} {
		all = append(all, renderTickets.Job(renderArgs{4471 + i, label}))
	}
	for i := range 5 {
		all = append(all, send.Job(mailArgs{4480 + i, "nobody@example.org"}),
			remind.Job(mailArgs{4480 + i, "ada@example.org"}).In(time.Duration(i+1)*7*time.Hour))
	}
	must(t, w.client.Enqueue(t.Context(), append(all, reconcile.Job(jobs.None{}))...))
	<-started
	await(t, "nine are dead", func() (bool, error) {
		stats, err := w.client.Stats(t.Context())
		return stats.Dead == 9, err
	})
	hands := jobs.WithActor(t.Context(), "marek")
	must(t, w.client.RunSchedule(hands, "expire_holds"))
	must(t, w.client.Delayed().Cancel(jobs.WithActor(t.Context(), "anna"), all[4+9].ID))
	_, err := w.client.DeadLetters().ReplayAll(hands, jobs.Filter{Kind: "render_tickets", Limit: 2}, jobs.ReplayOptions{Set: jobs.Fields{"label": "14-C"}})
	must(t, err)
	await(t, "nine are dead again, and the run is known", func() (bool, error) {
		stats, err := w.client.Stats(t.Context())
		workers, err2 := w.client.Workers(t.Context())
		return stats.Dead == 9 && len(workers) == 1 && len(workers[0].Running) == 1, errors.Join(err, err2)
	})
	return w
}

// past writes what workers would have counted in the last hour.
func (w *world) past(t *testing.T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	now := time.Now()
	pipe := w.rdb.Pipeline()
	for i := range 60 {
		at := now.Add(-time.Duration(i) * time.Minute)
		rush := 0
		if i > 20 && i < 34 {
			rush = 14 - max(i-27, 27-i)*2
		}
		ready := max(0, rush*6+rng.IntN(5)-2)
		m := map[string]any{
			"ready": ready, "running": 1 + rng.IntN(4) + rush/3, "delayed": 4 + i/12, "dead": max(0, 9-i/9),
			"oldest": ready * 80, "done:send_tickets": 20 + rng.IntN(9) + rush*5, "done:render_tickets": 18 + rng.IntN(9) + rush*5,
			"done:expire_holds": 1, "retried:send_tickets": rng.IntN(3) + rush,
		}
		if i%9 == 0 {
			m["dead:render_tickets"] = 1
		}
		key := fmt.Sprintf("%sjobs:stats:%d", prefix, at.Unix()/60)
		pipe.HSet(t.Context(), key, m)
		pipe.Expire(t.Context(), key, 24*time.Hour)
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
}
