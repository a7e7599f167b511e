package testutil

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// Bounds of driving a node.
const (
	nodeStartTimeout = 30 * time.Second
	nodeStopTimeout  = 30 * time.Second
	nodeLogLinesMax  = 20_000 // kept of a node's log; the oldest go first
)

// BinaryVar names the variable with the path of a narad command that is built already.
const BinaryVar = "NARAD_TEST_BINARY"

var buildOnce = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv(BinaryVar); bin != "" {
		return bin, nil
	}
	dir, err := os.MkdirTemp("", "narad-test-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "narad")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/narad-mq/narad/cmd/narad").CombinedOutput()
	if err != nil {
		return "", errors.Join(err, errors.New(string(out)))
	}
	return bin, nil
})

// Build builds the narad command once per test process and returns its path.
func Build() (string, error) { return buildOnce() }

// Binary is Build for a test.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := Build()
	if err != nil {
		t.Fatalf("build cmd/narad: %v", err)
	}
	return bin
}

// Node is the real binary, running or not, on a data directory of its own. A test
// that fails prints the end of its log.
type Node struct {
	t    testing.TB
	Dir  string   // data directory
	ID   string   // node id; NewNode sets n1
	Addr string   // to listen on; NewNode sets a free port of the loopback
	Env  []string // added to the environment, NAME=value
	Wrap []string // command put before the binary, such as strace and its flags

	URL  string // base URL while running
	cmd  *exec.Cmd
	done chan struct{} // closed once the process was waited for

	mu    sync.Mutex // guards lines
	lines []string
}

// NewNode prepares a node; Start runs it. Whatever still runs at the end of the test
// is killed.
func NewNode(t testing.TB, dir string) *Node {
	n := &Node{t: t, Dir: dir, ID: "n1", Addr: "127.0.0.1:0"}
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			n.dumpLog()
		}
	})
	return n
}

func (n *Node) dumpLog() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines[max(0, len(n.lines)-50):] {
		n.t.Log("node:", l)
	}
}

// Launch starts the process and returns once it says where it listens, or false if it
// exits before.
func (n *Node) Launch() bool {
	n.t.Helper()
	argv := append(append([]string{}, n.Wrap...), Binary(n.t), "serve", "--addr", n.Addr, "--node-id", n.ID, "--data-dir", n.Dir)
	n.cmd = exec.Command(argv[0], argv[1:]...)
	n.cmd.Env = append(append(os.Environ(), "NARAD_SECURITY_ENABLED=false", "NARAD_CLUSTER_ADDR=127.0.0.1:0"), n.Env...)
	n.cmd.SysProcAttr = processGroup()
	pipe, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd.Stderr = n.cmd.Stdout
	if err := n.cmd.Start(); err != nil {
		n.t.Fatalf("start node: %v", err)
	}
	n.done = make(chan struct{})
	listening := make(chan string, 1)
	go n.watch(n.cmd, pipe, listening)
	select {
	case addr := <-listening:
		n.URL = "http://" + addr
		return true
	case <-n.done:
		return false
	case <-time.After(nodeStartTimeout):
		n.Kill()
		n.t.Fatalf("node did not listen within %v", nodeStartTimeout)
	}
	return false
}

// watch keeps the log and waits for the process.
func (n *Node) watch(cmd *exec.Cmd, pipe io.Reader, listening chan<- string) {
	defer close(n.done)
	sc := bufio.NewScanner(pipe)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var line struct{ Msg, Addr string }
		if json.Unmarshal(sc.Bytes(), &line) == nil && line.Msg == "http listening" {
			listening <- line.Addr
		}
		n.mu.Lock()
		n.lines = append(n.lines, sc.Text())
		if len(n.lines) > nodeLogLinesMax {
			n.lines = n.lines[nodeLogLinesMax/2:]
		}
		n.mu.Unlock()
	}
	_ = cmd.Wait() // the exit code is read from ProcessState
}

// Start runs the node and waits until it is ready.
func (n *Node) Start() {
	n.t.Helper()
	if !n.Launch() {
		n.t.Fatalf("node exited with code %d before it listened", n.ExitCode())
	}
	Eventually(n.t, nodeStartTimeout, n.Ready, "node to become ready")
}

// Ready asks /readyz.
func (n *Node) Ready() bool {
	resp, err := http.Get(n.URL + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Client makes a client for the node; closed with the test.
func (n *Node) Client(opts ...client.Option) *client.Client {
	n.t.Helper()
	c, err := client.New(n.URL, opts...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(c.Close)
	return c
}

// Kill ends the node with SIGKILL, whatever it is doing, and waits for it. It is
// harmless when nothing runs.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	_ = killGroup(n.cmd)
	<-n.done
	n.cmd = nil
}

// Stop ends the node with SIGTERM and returns its exit code.
func (n *Node) Stop() int {
	n.t.Helper()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatalf("stop node: %v", err)
	}
	return n.Wait(nodeStopTimeout)
}

// Signal sends a signal to the node's process.
func (n *Node) Signal(sig os.Signal) error { return n.cmd.Process.Signal(sig) }

// Pid is the process id of what Launch started: the node, or what wraps it.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

// Wait waits until the node ended by itself and returns its exit code.
func (n *Node) Wait(d time.Duration) int {
	n.t.Helper()
	select {
	case <-n.done:
	case <-time.After(d):
		n.Kill()
		n.t.Fatalf("node did not exit within %v", d)
	}
	return n.ExitCode()
}

// Ended reports whether the process that Launch started has ended.
func (n *Node) Ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// ExitCode is the code of the process that ended; -1 if a signal ended it.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }

// Logged reports whether the log holds a line with all these texts.
func (n *Node) Logged(texts ...string) bool { return len(n.LogLines(texts...)) > 0 }

// LogLines are the log's lines that hold all these texts, over all runs of the node.
func (n *Node) LogLines(texts ...string) (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(l, text) }) {
			lines = append(lines, l)
		}
	}
	return lines
}

// Metric reads one series from /metrics, written as it is there, such as
// narad_errors_total{component="storage",kind="fsync_poisoned"}; ok is false while the
// node does not export it.
func (n *Node) Metric(series string) (v float64, ok bool) {
	n.t.Helper()
	resp, err := http.Get(n.URL + "/metrics")
	if err != nil {
		n.t.Fatalf("metrics: %v", err)
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		rest, found := strings.CutPrefix(sc.Text(), series+" ")
		if !found {
			continue
		}
		if v, err = strconv.ParseFloat(rest, 64); err != nil {
			n.t.Fatalf("metric %s: %v", series, err)
		}
		return v, true
	}
	return 0, false
}

// LastWords is the last line of the node's log.
func (n *Node) LastWords() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) == 0 {
		return ""
	}
	return n.lines[len(n.lines)-1]
}
