//go:build unix

package servers

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTempDirIsOneThatTheServerMayEnter(t *testing.T) {
	public, err := os.MkdirTemp("/tmp", "jobs-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(public)) })
	private := filepath.Join(public, "private")
	must(t, os.Chmod(public, 0o755))
	must(t, os.MkdirAll(filepath.Join(private, "tmp"), 0o755))
	must(t, os.Chmod(private, 0o700))
	other := &account{uid: 12345, gid: 12345}
	for _, c := range []struct {
		name, dir, want string
		account         *account
	}{
		{"one's own", filepath.Join(private, "tmp"), filepath.Join(private, "tmp"), nil},
		{"public", public, public, other},
		{"private", private, "/tmp", other},
		{"in a private one", filepath.Join(private, "tmp"), "/tmp", other},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("TMPDIR", c.dir)
			if got := c.account.tempDir(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
