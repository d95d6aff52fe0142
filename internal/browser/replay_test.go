package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
)

type renderArgs struct {
	OrderID int    `job:"order_id,required"`
	Label   string `job:"label,required"`
}

var renderTickets = jobs.NewKind[renderArgs]("render_tickets", jobs.Policy{})

// renders is a shop whose renderer refuses the label 14-C, and hands on what it has drawn.
func renders(t *testing.T, o dashboard.Options) (*world, <-chan renderArgs) {
	drawn := make(chan renderArgs, 10)
	w := newWorld(t, o, func(r *jobs.Runner) {
		jobs.Handle(r, renderTickets, func(_ context.Context, a renderArgs) error {
			if strings.Contains(a.Label, "-") {
				panic(fmt.Sprintf("SeatLabelInvalid: '%s' is not a row letter and a seat number", a.Label))
			}
			drawn <- a
			return nil
		})
	})
	must(t, w.client.Enqueue(t.Context(), renderTickets.Job(renderArgs{4471, "14-C"})))
	await(t, "the render is dead", func() (bool, error) {
		stats, err := w.client.Stats(t.Context())
		return stats.Dead == 1, err
	})
	return w, drawn
}

// correct goes the way of a person in the morning: from the overview to the dead render, its traceback and its label,
// through the question to the list, which it has left.
func correct(t *testing.T, ctx context.Context, w *world) {
	t.Helper()
	do(t, ctx,
		chromedp.Navigate(w.url),
		chromedp.Click(`//a[.="Dead"]`),
		chromedp.WaitVisible(`//h1[.="Dead letters"]`),
		chromedp.SendKeys(chromedp.CSS(`input[name=error]`), "SeatLabel\r"),
		chromedp.WaitVisible(button("Replay all that the filter chooses …")),
		chromedp.Click(`//table//a[.="render_tickets"]`),
		chromedp.WaitVisible(chromedp.CSS(`#traceback`)),
	)
	if got := says(t, ctx, ".error-panel"); !strings.Contains(got, "'14-C' is not a row letter") {
		t.Errorf("the error is shown as %q", got)
	}
	if got := says(t, ctx, ".traceback"); !strings.Contains(got, "replay_test.go:") {
		t.Errorf("the traceback is shown as %q", got)
	}
	label := `//input[@name="set:label"]`
	do(t, ctx,
		chromedp.SendKeys(label, kb.End+strings.Repeat(kb.Backspace, len("14-C"))+"14C"),
		chromedp.Click(button("Correct and replay …")),
		chromedp.WaitVisible(`//del[.="14-C"]`),
		chromedp.WaitVisible(`//ins[.="14C"]`),
		chromedp.Click(button("Correct and replay")),
		chromedp.WaitVisible(chromedp.CSS(`.said`)),
	)
	if got := says(t, ctx, "main"); !strings.Contains(got, "1 dead letter is back on the stream.") || strings.Contains(got, "render_tickets") {
		t.Errorf("the list says %q", got)
	}
}

func TestCorrectAndReplay(t *testing.T) {
	for _, c := range []struct {
		name   string
		script bool
		width  int64
	}{{"with JavaScript", true, 1200}, {"without, on a telephone", false, 360}} {
		t.Run(c.name, func(t *testing.T) {
			w, drawn := renders(t, dashboard.Options{Actor: func(*http.Request) string { return "marek" }})
			ctx := open(t, c.width)
			_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !c.script})
			must(t, err)
			correct(t, ctx, w)
			select {
			case got := <-drawn:
				if got != (renderArgs{4471, "14C"}) {
					t.Errorf("drawn: %v", got)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("nothing was drawn")
			}
			do(t, ctx, chromedp.Click(`//nav/a[.="Audit"]`), chromedp.WaitVisible(`//h1[.="Audit"]`))
			if got := says(t, ctx, "tbody tr"); !strings.Contains(got, "marek") || !strings.Contains(got, "replay") || !strings.Contains(got, "label") {
				t.Errorf("the audit says %q", got)
			}
		})
	}
}

// A letter that dies while somebody looks at the list comes in by itself; when the server is gone the page says so.
func TestPageIsLive(t *testing.T) {
	w, _ := renders(t, dashboard.Options{Authenticated: true})
	ctx := open(t, 1200)
	do(t, ctx, chromedp.Navigate(w.url+"dead"), chromedp.WaitVisible(`//span[@id="live" and .="live"]`))
	must(t, w.client.Enqueue(t.Context(), renderTickets.Job(renderArgs{4472, "15-C"})))
	do(t, ctx, chromedp.WaitVisible(`//td[contains(., "15-C")]`))
	// Nothing is taken from under a person's hands.
	do(t, ctx, chromedp.Click(`//tr[contains(., "15-C")]//input`))
	must(t, w.client.Enqueue(t.Context(), renderTickets.Job(renderArgs{4473, "16-C"})))
	do(t, ctx, chromedp.WaitVisible(`//span[@id="live" and starts-with(., "held")]`))
	if got := says(t, ctx, "main"); strings.Contains(got, "16-C") || !strings.Contains(got, "1 selected:") {
		t.Errorf("the list under a selection says %q", got)
	}
	do(t, ctx, chromedp.Click(`//tr[contains(., "15-C")]//input`), chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`),
		chromedp.WaitVisible(`//td[contains(., "16-C")]`))
	must(t, w.rdb.Set(t.Context(), prefix+"jobs:dead", "of another type", 0).Err())
	do(t, ctx, chromedp.WaitVisible(`//span[@id="live" and contains(@class, "bad")]`))
	if got := says(t, ctx, "main"); !strings.Contains(got, "16-C") {
		t.Errorf("what was read is gone: %q", got)
	}
	must(t, w.rdb.Del(t.Context(), prefix+"jobs:dead").Err())
	do(t, ctx, chromedp.WaitVisible(`//p[contains(@class, "empty")]`))
}
