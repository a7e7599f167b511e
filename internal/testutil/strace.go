package testutil

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// attachTimeout bounds how long strace takes to hold every thread of a node.
const attachTimeout = 10 * time.Second

// tamper is a harmless fault that shows whether strace may inject any.
func tamper() error {
	return exec.Command("strace", "-f", "-o", os.DevNull, "-e", "trace=fsync", "-e", "inject=fsync:retval=0", "true").Run()
}

// NeedStrace skips the test where system calls cannot be tampered with.
func NeedStrace(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("strace injects faults on Linux only")
	}
	if err := tamper(); err != nil {
		t.Skipf("strace cannot inject faults here: %v", err)
	}
}

// NeedRoot skips the test where file systems cannot be mounted.
func NeedRoot(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("mounts file systems: Linux and root only")
	}
}

// Straced is the command to put before a node so that strace tampers with it from its
// first system call; the node stays the process that Node starts, signals and waits
// for. What was traced goes to the file.
func Straced(file string, args ...string) []string {
	return append([]string{"strace", "-D", "-f", "-y", "-o", file}, args...)
}

// Tracer is strace attached to a running node.
type Tracer struct {
	t    testing.TB
	cmd  *exec.Cmd
	file string
	once sync.Once
}

// Trace attaches strace to the running node and returns once it holds all threads:
// from then on the faults of args are on, until Detach or the end of the node.
func (n *Node) Trace(args ...string) *Tracer {
	n.t.Helper()
	tr := &Tracer{t: n.t, file: filepath.Join(n.t.TempDir(), "trace")}
	said := filepath.Join(filepath.Dir(tr.file), "stderr")
	stderr, err := os.Create(said)
	if err != nil {
		n.t.Fatal(err)
	}
	defer stderr.Close()
	tr.cmd = exec.Command("strace", append([]string{"-f", "-y", "-o", tr.file, "-p", strconv.Itoa(n.Pid())}, args...)...)
	tr.cmd.Stderr = stderr
	if err := tr.cmd.Start(); err != nil {
		n.t.Fatalf("strace: %v", err)
	}
	n.t.Cleanup(tr.Detach)
	Eventually(n.t, attachTimeout, func() bool {
		b, err := os.ReadFile(said)
		return err == nil && bytes.Contains(b, []byte("attached"))
	}, "strace to attach")
	return tr
}

// Detach ends the faults; the node runs on.
func (tr *Tracer) Detach() {
	tr.once.Do(func() {
		_ = tr.cmd.Process.Signal(syscall.SIGTERM) // fails if the node has ended, and strace with it
		_ = tr.cmd.Wait()
	})
}

// Injected counts the system calls that were tampered with so far and whose trace
// line holds the text.
func (tr *Tracer) Injected(text string) int { return Injected(tr.t, tr.file, text) }

// Injected counts the tampered calls in a trace file whose line holds the text.
func Injected(t testing.TB, file, text string) (n int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "(INJECTED)") && strings.Contains(line, text) {
			n++
		}
	}
	return n
}
