package testutil

import (
	"os/exec"
	"syscall"
)

func processGroup() *syscall.SysProcAttr { return nil }

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
