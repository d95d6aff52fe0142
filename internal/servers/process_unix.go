//go:build unix

package servers

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
	quitSignal = syscall.SIGQUIT
)

// account is the user that a program runs as.
type account struct{ uid, gid int }

// unprivileged returns the account for a program that refuses to run as root: nil, this process's own, if that is not
// root's.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("servers: a user other than root: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("servers: user %s: %w", u.Username, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("servers: user %s: %w", u.Username, err)
	}
	return &account{uid, gid}, nil
}

// apply has cmd run as a.
func (a *account) apply(cmd *exec.Cmd) {
	if a != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}}
	}
}

// own gives dir to a.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(dir, a.uid, a.gid); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	return nil
}

// tempDir returns the folder for a's temporary folders: the system's, unless it lies where a may not go.
func (a *account) tempDir() string {
	dir := os.TempDir()
	if a != nil && !open(dir) {
		return "/tmp"
	}
	return dir
}

// open reports whether everybody may enter dir and all that it lies in.
func open(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&1 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// removeAfterDeath sees to it that dir is gone after this process, however it ends.
func removeAfterDeath(dir string) {
	if s := sweeper(); s != nil {
		_, _ = io.WriteString(s, dir+"\n") // without a sweeper the folder is only left behind
	}
}

// sweeper starts a shell that outlives this process: when its input ends, it removes the folders that it was told and
// that are still there, once their servers have had time to end too.
var sweeper = sync.OnceValue(func() io.Writer {
	cmd := exec.Command("sh", "-c", `
		while read -r dir; do set -- "$@" "$dir"; done
		for dir; do if [ -e "$dir" ]; then sleep 1; rm -rf -- "$@"; break; fi; done`)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal is not for it
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return nil
	}
	return in
})
