package main

import (
	"os"
	"syscall"
)

// apart starts a child in a process group of its own, so that Ctrl-C reaches this process
// alone, which stops the child.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// terminate ends a child: there is no signal to ask with.
func terminate(p *os.Process) error { return p.Kill() }
