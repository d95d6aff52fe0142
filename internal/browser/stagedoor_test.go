package browser

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/stagedoor/jobs/internal/servers"
)

// The shop as a user starts it: its first render dies on the seat 14-C. The organizer's label is corrected where it lies,
// and the letter is replayed on the page.
func TestStagedoor(t *testing.T) {
	db, rdb := servers.NewPostgres(t), servers.NewRedis(t)
	url := startStagedoor(t, rdb.URL(), db)
	ctx := open(t, 1200)
	do(t, ctx,
		chromedp.Navigate(url),
		chromedp.WaitVisible(`//p[contains(@class, "banner")]`), // nobody logs in here
		chromedp.Click(`//a[.="Dead"]`),
		chromedp.Click(`//table//a[.="render_tickets"]`), // comes in by itself once the one retry has failed
		chromedp.WaitVisible(`//pre[contains(., "File stagedoor/pdf.go, line ")]`),
	)
	conn, err := pgx.Connect(t.Context(), db)
	must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `UPDATE seats SET label = '14C' WHERE label = '14-C'`)
	must(t, err)
	do(t, ctx,
		chromedp.Click(button("Replay …")),
		chromedp.Click(button("Replay 1 dead letter")),
		chromedp.WaitVisible(`//p[contains(@class, "empty")]`),
	)
	await(t, "the PDF is stored", func() (ok bool, err error) {
		err = conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM tickets)`).Scan(&ok)
		return ok, err
	})
}

// startStagedoor starts the example and returns where its page is.
func startStagedoor(t *testing.T, redis, db string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "stagedoor")
	build := exec.Command("go", "build", "-o", program, "./examples/stagedoor")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "-page", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "REDIS_URL="+redis, "DATABASE_URL="+db)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // Wait tells
		if err := cmd.Wait(); err != nil {
			t.Errorf("stagedoor: %v", err)
		}
	})
	said := regexp.MustCompile(`msg="the page for people" url=(\S+)`)
	var log strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if m := said.FindStringSubmatch(lines.Text()); m != nil {
			go func() {
				for lines.Scan() { // or it would block on a full pipe
				}
			}()
			return m[1]
		}
	}
	t.Fatalf("no page:\n%s", log.String())
	return ""
}
