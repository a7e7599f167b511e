package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/narad-mq/narad/internal/testutil"
)

// insideVar is set in the process that runs in namespaces of its own.
const insideVar = "NARAD_CLUSTER_TEST_INSIDE"

// inside reports whether this process has namespaces of its own, so that links can be
// cut.
func inside() bool { return os.Getenv(insideVar) != "" }

// isolate runs the tests in a process with namespaces of its own and returns its exit
// code. It is done only if it could; otherwise, and in that process, the caller runs the
// tests itself.
func isolate() (code int, done bool) {
	if inside() {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "namespaces:", err)
			return 1, true
		}
		return 0, false
	}
	if os.Geteuid() != 0 {
		return 0, false
	}
	bin, err := testutil.Build() // outside, where modules can be had
	if err != nil {
		fmt.Fprintln(os.Stderr, "build cmd/narad:", err)
		return 1, true
	}
	if os.Getenv(testutil.BinaryVar) == "" {
		defer os.RemoveAll(filepath.Dir(bin))
	}
	runtime.LockOSThread() // the child is to die with this thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVar+"=1", testutil.BinaryVar+"="+bin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, false // not permitted here
	}
	quits := make(chan os.Signal, 1)
	signal.Notify(quits, syscall.SIGQUIT, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(quits)
	go func() {
		for s := range quits {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "namespaces:", err)
		return 1, true
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, true
	}
	return 1, true // a signal ended it
}

// furnish makes the fresh namespaces usable: nothing of it is seen outside.
func furnish() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0}, // ip netns keeps its names in /run/netns
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		return err
	}
	return ip("link", "set", "lo", "up")
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// wire makes the namespace of the i-th node of the k-th cluster, i from 1, and its link.
// It returns the node's address and the command that runs a process in there.
func wire(t testing.TB, k, i int) (addr string, wrap []string) {
	t.Helper()
	name, gate := fmt.Sprintf("c%dn%d", k, i), fmt.Sprintf("10.%d.%d.1", k, i)
	addr = fmt.Sprintf("10.%d.%d.2", k, i)
	for _, args := range [][]string{
		{"netns", "add", name},
		{"link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name},
		{"addr", "add", gate + "/24", "dev", name},
		{"link", "set", name, "up"},
		{"-n", name, "addr", "add", addr + "/24", "dev", "eth0"},
		{"-n", name, "link", "set", "eth0", "up"},
		{"-n", name, "link", "set", "lo", "up"},
		{"-n", name, "route", "add", "default", "via", gate},
	} {
		if err := ip(args...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := ip("netns", "del", name); err != nil {
			t.Error(err)
		}
	})
	return addr, []string{"nsenter", "--net=/run/netns/" + name}
}

// plane is a part of the traffic between nodes.
type plane []string

var (
	allPlanes = plane(nil)
	raftPlane = plane{"ipproto", "tcp", "dport", raftPort}
	rpcPlane  = plane{"ipproto", "udp", "dport", apiPort}
)

// cuts counts the cuts of this process; prioritiesMax is how many can be told apart
// before the kernel's own rules come.
var cuts atomic.Int64

const prioritiesMax = 32_000

// cut drops what goes from one address to another; mend ends it.
func cut(t testing.TB, from, to string, p plane) (mend func()) {
	t.Helper()
	// The rule is known by its priority: told by its addresses alone, another cut of the
	// same link could go in its place.
	priority := fmt.Sprint(1 + cuts.Add(1)%prioritiesMax)
	rule := append([]string{"rule", "add", "priority", priority, "from", from, "to", to}, p...)
	if err := ip(append(rule, "blackhole")...); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := ip("rule", "del", "priority", priority); err != nil {
			t.Error(err)
		}
	}
}
