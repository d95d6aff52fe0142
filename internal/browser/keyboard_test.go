package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
)

// tab goes on with the tabulator key until what has the focus reads, or is named, so.
func tab(t *testing.T, ctx context.Context, to string) {
	t.Helper()
	var seen []string
	for range 40 {
		do(t, ctx, chromedp.KeyEvent(kb.Tab))
		at := focused(t, ctx)
		if at == to {
			return
		}
		seen = append(seen, at)
	}
	t.Fatalf("the tabulator key does not lead to %q but to %q", to, seen)
}

// focused is what a person reads on what has the focus.
func focused(t *testing.T, ctx context.Context) string {
	t.Helper()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`((e) => (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent).trim())(document.activeElement)`))
	must(t, err)
	return text
}

// A person without a mouse finds the dead render, corrects its label and replays it; and Enter, which says yes to that,
// says no to what cannot be undone.
func TestKeyboardAlone(t *testing.T) {
	w, drawn := renders(t, dashboard.Options{Actor: func(*http.Request) string { return "marek" }})
	ctx := open(t, 1200)
	do(t, ctx, chromedp.Navigate(w.url+"dead"), chromedp.WaitVisible(`//h1[.="Dead letters"]`))
	tab(t, ctx, "To the contents")
	shown, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.querySelector(".skip").getBoundingClientRect().left >= 0`))
	must(t, err)
	if !shown {
		t.Error("the link past the navigation is not seen when it has the focus")
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	tab(t, ctx, "Kind")
	if first := focused(t, ctx); first != "Kind" {
		t.Errorf("first in the contents is %q", first)
	}
	for _, to := range []string{"Filter", "Replay all …", "Replay …", "Discard …", "select all"} {
		tab(t, ctx, to)
	}
	tab(t, ctx, "render_tickets")
	do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("#traceback")))
	tab(t, ctx, "label")
	do(t, ctx, chromedp.KeyEvent(kb.End+strings.Repeat(kb.Backspace, len("14-C"))+"14C"))
	tab(t, ctx, "Correct and replay …")
	do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//ins[.="14C"]`))
	if at := focused(t, ctx); at != "Correct and replay" {
		t.Errorf("asked, %q has the focus", at)
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(".said")))
	select {
	case got := <-drawn:
		if got != (renderArgs{4471, "14C"}) {
			t.Errorf("drawn: %v", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was drawn")
	}

	must(t, w.client.Enqueue(t.Context(), renderTickets.Job(renderArgs{4472, "15-C"})))
	await(t, "another is dead", func() (bool, error) {
		stats, err := w.client.Stats(t.Context())
		return stats.Dead == 1, err
	})
	for l, err := range w.client.DeadLetters().List(t.Context(), jobs.Filter{}) {
		must(t, err)
		do(t, ctx, chromedp.Navigate(fmt.Sprintf("%sconfirm?do=discard&entry=%s", w.url, l.Entry)), chromedp.WaitVisible(button("Discard 1 dead letter")))
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//table//a[.="render_tickets"]`))
}
