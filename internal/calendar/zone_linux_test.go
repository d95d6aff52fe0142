package calendar_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/calendar"
)

// TestT16_NoTimeZoneDataInTheContainer starts this test again with an empty directory for a root.
func TestT16_NoTimeZoneDataInTheContainer(t *testing.T) {
	const root = "CALENDAR_TEST_ROOT"
	if dir := os.Getenv(root); dir != "" {
		if err := syscall.Chroot(dir); err != nil {
			t.Fatal(err)
		}
		inEmptyRoot(t)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs to be root, to change the root directory of a process")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.Command(program, "-test.run=^TestT16_NoTimeZoneDataInTheContainer$", "-test.v")
	again.Env = append(os.Environ(), root+"="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("in an empty root: %v\n%s", err, out)
	}
}

func inEmptyRoot(t *testing.T) {
	if _, err := os.Stat("/usr"); !os.IsNotExist(err) {
		t.Fatalf("the root is not empty: %v", err)
	}
	s, err := calendar.Parse("CRON_TZ=Europe/Berlin 0 3 * * *")
	if err != nil {
		t.Fatal(err)
	}
	wantNext(t, s, time.Unix(0, 0).In(zone(t, "Europe/Berlin")), "1970-01-01T03:00:00+01:00")
	wantNext(t, s, at(t, "2028-12-31T12:00:00Z", zone(t, "Europe/Berlin")), "2029-01-01T03:00:00+01:00")
	if s, err := calendar.Parse("CRON_TZ=Mars/Phobos 0 3 * * *"); err == nil {
		t.Errorf("Mars/Phobos is taken for %v", s)
	}
}
