package servers

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := environment([]string{"PATH=/bin", "PGHOST=elsewhere", "LC_ALL=de_DE.UTF-8", "LC_TIME=de_DE.UTF-8", "HOME=/root"})
	if want := []string{"PATH=/bin", "HOME=/root", "LC_ALL=C"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var out tail
	for range 100 {
		n, err := out.Write([]byte(strings.Repeat("x", 1000)))
		if n != 1000 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	_, err := out.Write([]byte("the reason"))
	must(t, err)
	if s := out.String(); len(s) != 8<<10 || !strings.HasSuffix(s, "xthe reason") {
		t.Errorf("kept %d bytes, ending in %q", len(s), s[len(s)-20:])
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	if out, err := run(exec.Command(sh, "-c", "echo out; echo err >&2")); out != "out\nerr\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := run(exec.Command(sh, "-c", "echo reason; exit 3")); err == nil || !strings.Contains(err.Error(), "exit status 3:\nreason") {
		t.Errorf("got %v", err)
	}
	if _, err := run(exec.Command("/no/such/program")); err == nil {
		t.Error("a program that does not exist was run")
	}
}
