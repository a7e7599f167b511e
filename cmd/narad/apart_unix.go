//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// apart starts a child in a process group of its own, so that Ctrl-C reaches this process
// alone, which stops the child.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// terminate asks a child to stop gracefully, also one that was paused to see what the
// others do.
func terminate(p *os.Process) error {
	err := p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT) // it has ended where this fails
	return err
}
