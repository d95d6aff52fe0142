package servers

import (
	"os"
	"os/exec"
	"syscall"
)

// tie puts cmd into a process group of its own, so that an interrupt from the terminal reaches this process alone, and
// has the kernel send it a signal when this process dies.
func tie(cmd *exec.Cmd, onDeath os.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = onDeath.(syscall.Signal)
}
