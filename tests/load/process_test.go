package load

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

const (
	patience = 60 * time.Second
	// clockTick is the unit of processor time in /proc; Linux has shown user space no
	// other since 2.6.
	clockTick = 10 * time.Millisecond
)

// needLinux skips where there is no /proc to read figures from.
func needLinux(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real binary for many seconds")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads a process's figures from /proc: Linux only")
	}
}

// needFiles skips where neither side may hold so many descriptors. Go raised the soft
// limit to the hard one already.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	if r.Max < n {
		t.Skipf("needs %d descriptors, may have %d", n, r.Max)
	}
}

// process reads the figures of a node.
type process struct {
	t   *testing.T
	pid int
}

func processOf(t *testing.T, n *testutil.Node) process { return process{t, n.Pid()} }

// cpu is the processor time used so far.
func (p process) cpu() time.Duration {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third on
	var ticks int64
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// cpuOver is the processor time used in a window.
func (p process) cpuOver(window time.Duration) time.Duration {
	p.t.Helper()
	before := p.cpu()
	<-time.After(window) // what is measured is that nothing happens in it
	return p.cpu() - before
}

// rss is the memory resident now, in bytes.
func (p process) rss() int64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return n << 10
		}
	}
	p.t.Fatal("no VmRSS")
	return 0
}

// files is the number of open descriptors.
func (p process) files() int {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
