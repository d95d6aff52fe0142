//go:build unix && !linux

package servers

import (
	"os"
	"os/exec"
	"syscall"
)

// tie puts cmd into a process group of its own, so that an interrupt from the terminal reaches this process alone. There
// is no signal on a parent's death here.
func tie(cmd *exec.Cmd, _ os.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}
