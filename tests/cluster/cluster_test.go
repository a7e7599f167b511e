package cluster

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// Every node has an address of its own, so all use the same ports.
const (
	apiPort  = "7942"
	raftPort = "7943"
	secret   = "a secret of these tests only"
)

const (
	// patience is what one step of a test gets on a busy machine.
	patience = 60 * time.Second
	// probeTimeout bounds one look at a node that may be paused or cut off.
	probeTimeout = 2 * time.Second
)

// long says that the runs are to be the long ones.
func long() bool { return os.Getenv("NARAD_CLUSTER_LONG") != "" }

// rounds is how often something is done: few times, or many in the long runs.
func rounds(few, many int) int {
	if long() {
		return many
	}
	return few
}

// clusters counts the clusters of this process: each has addresses of its own.
var clusters atomic.Int32

// cluster is a set of nodes that know each other.
type cluster struct {
	t       *testing.T
	number  int
	initial []*node
	nodes   []*node  // initial ones first
	env     []string // of every node, NAME=value
	opts    []client.Option
	faults  []func(fault) func(time.Time)
	rng     *rand.Rand
}

// fault is something done to a node, or to all ("").
type fault struct {
	kind, node string
	kills      bool
	start      time.Time
}

// node is one member: its process, and whether tests may rely on it.
type node struct {
	*testutil.Node
	c    *cluster
	own  []string // environment of this node alone, NAME=value
	addr string   // without port
	url  string
	http *http.Client
	// up is odd while the node runs, is ready, and nothing was done to it; it changes
	// with every such change, so that a call can tell whether one came between.
	up       atomic.Int64
	accepted atomic.Int64 // messages that it answered with 202
}

func (n *node) setUp(up bool) {
	if (n.up.Load()%2 == 1) != up {
		n.up.Add(1)
	}
}

// newCluster prepares size initial members; none runs yet. env is added to the
// environment of every node.
func newCluster(t *testing.T, size int, env ...string) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("runs several nodes for many seconds")
	}
	if runtime.GOOS != "linux" {
		t.Skip("gives every node an address of its own: Linux only")
	}
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("NARAD_CLUSTER_SEED"); v != "" {
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", s)
	t.Parallel() // most of the time goes by in waiting
	c := &cluster{t: t, number: int(clusters.Add(1)), rng: rand.New(rand.NewPCG(s, 5)), env: env}
	for range size {
		c.initial = append(c.initial, c.add())
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if n.Logged("panic:") || n.Logged("goroutine ") {
				t.Errorf("the log of %s holds a panic", n.ID)
			}
		}
	})
	return c
}

// add prepares one more node.
func (c *cluster) add() *node {
	c.t.Helper()
	i := len(c.nodes) + 1
	n := &node{c: c}
	var wrap []string
	if inside() {
		n.addr, wrap = wire(c.t, c.number, i)
	} else {
		n.addr = fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%128, c.number, i)
	}
	n.Node = testutil.NewNode(c.t, filepath.Join(c.t.TempDir(), "data"))
	n.ID, n.Addr, n.Wrap = fmt.Sprint("n", i), n.addr+":"+apiPort, wrap
	n.url = "http://" + n.Addr
	n.http = &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	c.nodes = append(c.nodes, n)
	return n
}

// environment is a node's own; peers are the initial members, on every node alike.
func (c *cluster) environment(n *node) []string {
	var peers, ids []string
	for _, m := range c.initial {
		peers = append(peers, fmt.Sprintf("%s@%s:%s/%s", m.ID, m.addr, raftPort, apiPort))
		ids = append(ids, m.ID)
	}
	return append([]string{
		"NARAD_CLUSTER_ADDR=" + n.addr + ":" + raftPort,
		"NARAD_CLUSTER_ADVERTISE_ADDR=" + n.addr + ":" + raftPort,
		"NARAD_CLUSTER_PEERS=" + strings.Join(peers, ","),
		"NARAD_CLUSTER_INITIAL_MEMBERS=" + strings.Join(ids, ","),
		"NARAD_CLUSTER_SECRET=" + secret,
		"NARAD_SECURITY_ENABLED=false",
		"NARAD_SECURITY_ALLOW_INSECURE_CLUSTER=true",
	}, append(slices.Clone(c.env), n.own...)...)
}

// form starts a cluster of size initial members and waits until all are ready.
func form(t *testing.T, size int, env ...string) *cluster {
	t.Helper()
	c := newCluster(t, size, env...)
	c.launch(c.initial...)
	c.ready(c.initial...)
	return c
}

// join adds a node that is no initial member and waits until it is a voter.
func (c *cluster) join() *node {
	c.t.Helper()
	voters := c.voters()
	n := c.add()
	c.launch(n)
	c.ready(n)
	testutil.Eventually(c.t, patience, func() bool { return c.voters() == voters+1 }, n.ID+" to become a voter")
	return n
}

// launch starts processes, one after the other, and returns once they listen.
func (c *cluster) launch(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		n.Env = c.environment(n)
		if !n.Launch() {
			c.t.Fatalf("%s exited with code %d: %s", n.ID, n.ExitCode(), n.LastWords())
		}
	}
}

// ready waits until nodes are, and relies on them from then on.
func (c *cluster) ready(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		testutil.Eventually(c.t, patience, n.isReady, n.ID+" to become ready")
		n.setUp(true)
	}
}

// start is launch and ready.
func (c *cluster) start(nodes ...*node) {
	c.t.Helper()
	c.launch(nodes...)
	c.ready(nodes...)
}

// noted tells every ledger of a fault; the returned function of its end.
func (c *cluster) noted(f fault) (over func()) {
	f.start = time.Now()
	var ends []func(time.Time)
	for _, note := range c.faults {
		ends = append(ends, note(f))
	}
	return func() {
		for _, end := range ends {
			end(time.Now())
		}
	}
}

// kill ends nodes with SIGKILL, all at once; over is to be called once they are back.
func (c *cluster) kill(nodes ...*node) (over func()) {
	var overs []func()
	for _, n := range nodes {
		n.setUp(false)
		_ = n.Signal(syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.Kill() // waits for the process
		overs = append(overs, c.noted(fault{kind: "kill", node: n.ID, kills: true}))
	}
	return all(overs)
}

// revive starts killed or stopped nodes and notes the end of what was done to them.
func (c *cluster) revive(over func(), nodes ...*node) {
	c.t.Helper()
	c.start(nodes...)
	over()
}

// stop ends a node in good order. Nothing acked may come back because of it.
func (c *cluster) stop(n *node) (over func()) {
	c.t.Helper()
	n.setUp(false)
	over = c.noted(fault{kind: "stop", node: n.ID})
	if code := n.Stop(); code != 0 {
		c.t.Errorf("%s: graceful stop: exit code %d: %s", n.ID, code, n.LastWords())
	}
	return over
}

// pause stops a node's process where it is; the returned function lets it go on and
// waits until it is ready again.
func (c *cluster) pause(n *node) (resume func()) {
	c.t.Helper()
	n.setUp(false)
	over := c.noted(fault{kind: "pause", node: n.ID})
	if err := n.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if err := n.Signal(syscall.SIGCONT); err != nil {
			c.t.Fatal(err)
		}
		c.ready(n)
		over()
	}
}

// needCuts skips where links cannot be cut.
func needCuts(t *testing.T) {
	t.Helper()
	if !inside() {
		t.Skip("cuts links between network namespaces: Linux and root only")
	}
}

// cut drops what one node sends to another, and notes a fault of both.
func (c *cluster) cut(from, to *node, p plane) (mend func()) {
	c.t.Helper()
	end := cut(c.t, from.addr, to.addr, p)
	over := c.noted(fault{kind: fmt.Sprintf("cut %s to %s", from.ID, to.ID)})
	return func() {
		c.t.Helper()
		end()
		over()
	}
}

// isolate cuts a node off from all others, both ways; mend waits until it is ready.
func (c *cluster) isolate(n *node) (mend func()) {
	c.t.Helper()
	n.setUp(false)
	var mends []func()
	for _, m := range c.nodes {
		if m != n {
			mends = append(mends, c.cut(n, m, allPlanes), c.cut(m, n, allPlanes))
		}
	}
	return func() {
		c.t.Helper()
		all(mends)()
		c.ready(n)
	}
}

func all(fs []func()) func() {
	return func() {
		for _, f := range fs {
			f()
		}
	}
}

// living are the nodes tests may rely on.
func (c *cluster) living() (out []*node) {
	for _, n := range c.nodes {
		if n.up.Load()%2 == 1 {
			out = append(out, n)
		}
	}
	return out
}

// leader waits until one of the nodes that are up leads.
func (c *cluster) leader() (leader *node) {
	c.t.Helper()
	testutil.Eventually(c.t, patience, func() bool {
		for _, n := range c.living() {
			if v, ok := n.metric(`narad_raft_state{state="leader"}`); ok && v == 1 {
				leader = n
				return true
			}
		}
		return false
	}, "a leader")
	return leader
}

// followers are the living nodes but the leader.
func (c *cluster) followers() (out []*node) {
	c.t.Helper()
	leader := c.leader()
	for _, n := range c.living() {
		if n != leader {
			out = append(out, n)
		}
	}
	return out
}

// voters is how many the leader counts.
func (c *cluster) voters() int {
	c.t.Helper()
	v, _ := c.leader().metric("narad_raft_voters")
	return int(v)
}

// client makes a client of one node that never tries twice; closed with the test.
func (n *node) client() *client.Client {
	n.c.t.Helper()
	opts := []client.Option{client.WithTimeout(10 * time.Second), client.WithRetries(1), client.WithBreaker(1<<30, time.Second)}
	c, err := client.New(n.url, append(opts, n.c.opts...)...)
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.c.t.Cleanup(c.Close)
	return c
}

func (n *node) isReady() bool {
	resp, err := n.http.Get(n.url + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// metric reads one series; ok is false where the node does not answer or export it.
func (n *node) metric(series string) (v float64, ok bool) {
	resp, err := n.http.Get(n.url + "/metrics")
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		if rest, found := strings.CutPrefix(sc.Text(), series+" "); found {
			v, err = strconv.ParseFloat(rest, 64)
			return v, err == nil
		}
	}
	return 0, false
}
