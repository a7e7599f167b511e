//go:build unix

package testutil

import (
	"os/exec"
	"syscall"
)

// processGroup puts the node in a group of its own, so that a wrapper such as strace
// ends together with it.
func processGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
