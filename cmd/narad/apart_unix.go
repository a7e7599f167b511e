//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// apart starts a child in a process group of its own, so that Ctrl-C reaches this process
// alone, which stops the child.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// terminate asks a child to stop gracefully.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
