//go:build !unix

package servers

import (
	"os"
	"os/exec"
)

// There are no such signals here: Pause, Resume and a clean Stop fail or kill.
var (
	stopSignal os.Signal = os.Interrupt
	contSignal os.Signal = os.Interrupt
	quitSignal os.Signal = os.Kill
)

func tie(*exec.Cmd, os.Signal) {}

type account struct{}

func unprivileged() (*account, error) { return nil, nil }
func (a *account) apply(*exec.Cmd)    {}
func (a *account) own(string) error   { return nil }
func (a *account) tempDir() string    { return os.TempDir() }

func removeAfterDeath(string) {}
