package browser

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/dashboard"
	"github.com/stagedoor/jobs/internal/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// open starts a browser without a window, of a width in pixels, that ends with the test.
func open(t *testing.T, width int64, options ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	program, err := chromium()
	if err != nil {
		if v := os.Getenv("JOBS_REQUIRE_SERVERS"); v != "" && v != "0" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	options = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, // refused to root otherwise
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(60*time.Second),
	), options...)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	do(t, ctx, chromedp.EmulateViewport(width, 900))
	_, err = chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	must(t, err)
	return ctx
}

func chromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return exec.LookPath("chromium")
}

// do carries out what a person does, one step after the other; each waits for what it needs.
func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, step := range steps {
		if err := chromedp.Do(ctx, step); err != nil {
			last, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			page, _ := chromedp.Run(last, chromedp.Text(chromedp.CSS("body"))) // to say more
			t.Fatalf("step %d: %v; the page says\n%s", i+1, err, page)
		}
	}
}

// says is the text of what a selector finds.
func says(t *testing.T, ctx context.Context, selector string) string {
	t.Helper()
	text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(selector)))
	must(t, err)
	return text
}

// button is what a person reads on a button or link.
func button(text string) string {
	return `//main//*[self::button or self::a][normalize-space(.)="` + text + `"]`
}

// world is a queue with a worker and its page.
type world struct {
	rdb    *redis.Client
	client *jobs.Client
	url    string
}

const prefix = "shop:"

// newWorld starts a Redis, a worker whose handlers register adds (nil: there is none), and the page at url.
func newWorld(t *testing.T, o dashboard.Options, register func(*jobs.Runner)) *world {
	t.Helper()
	w := &world{rdb: servers.NewRedis(t).Client(t)}
	w.client = jobs.NewClient(w.rdb, jobs.Options{Prefix: prefix})
	if register != nil {
		w.work(t, register)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", dashboard.Handler(w.client, o)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	w.url = "http://localhost:" + port + "/admin/jobs/"
	return w
}

// work runs a worker until the test's end.
func (w *world) work(t *testing.T, register func(*jobs.Runner)) {
	t.Helper()
	runner := jobs.NewRunner(w.client, jobs.Config{Worker: "worker-01", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	register(runner)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await asks until it is so, or the test's patience ends.
func await(t *testing.T, what string, so func() (bool, error)) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := so()
		if ok {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not so after 30 s: %s (%v)", what, err)
		case <-tick.C:
		}
	}
}
