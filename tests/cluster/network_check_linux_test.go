package cluster

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/narad-mq/narad/client"
)

// within opens a datagram socket in a node's namespace.
func within(t *testing.T, cluster, i int, addr string) net.PacketConn {
	t.Helper()
	type result struct {
		conn net.PacketConn
		err  error
	}
	got := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its namespace
		f, err := os.Open(fmt.Sprintf("/run/netns/c%dn%d", cluster, i))
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			got <- result{err: err}
			return
		}
		conn, err := net.ListenPacket("udp", addr)
		got <- result{conn, err}
	}()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	return r.conn
}

// passes reports whether a packet from one socket reaches the other.
func passes(t *testing.T, from, to net.PacketConn) bool {
	t.Helper()
	text := fmt.Sprint(time.Now().UnixNano())
	if _, err := from.WriteTo([]byte(text), to.LocalAddr()); err != nil {
		t.Fatalf("a cut is silent, and this is none: %v", err)
	}
	if err := to.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 100); ; {
		n, _, err := to.ReadFrom(b)
		if err != nil {
			return false
		}
		if string(b[:n]) == text {
			return true
		}
	}
}

// A cut drops what goes one way, of the plane it names, until it is mended.
func TestCutIsDirected(t *testing.T) {
	needCuts(t)
	k := int(clusters.Add(1))
	addrA, _ := wire(t, k, 1)
	addrB, _ := wire(t, k, 2)
	a, b := within(t, k, 1, addrA+":"+apiPort), within(t, k, 2, addrB+":"+apiPort)
	other := within(t, k, 2, addrB+":9")
	check := func(when string, aToB, bToA, aToOther bool) {
		t.Helper()
		if got := passes(t, a, b); got != aToB {
			t.Errorf("%s: a to b: %v, want %v", when, got, aToB)
		}
		if got := passes(t, b, a); got != bToA {
			t.Errorf("%s: b to a: %v, want %v", when, got, bToA)
		}
		if got := passes(t, a, other); got != aToOther {
			t.Errorf("%s: a to another port: %v, want %v", when, got, aToOther)
		}
	}
	check("whole", true, true, true)
	mend := cut(t, addrA, addrB, allPlanes)
	check("a to b cut", false, true, false)
	back := cut(t, addrB, addrA, allPlanes)
	check("both cut", false, false, false)
	mend()
	check("only b to a cut", true, false, true)
	back()
	mend = cut(t, addrA, addrB, rpcPlane)
	check("node calls from a to b cut", false, true, true)
	mend()
	mend = cut(t, addrA, addrB, raftPlane)
	check("raft from a to b cut", true, true, true) // these are datagrams
	mend()
	check("mended", true, true, true)
	calls := cut(t, addrA, addrB, rpcPlane) // two cuts of one link, mended in turn
	mend = cut(t, addrA, addrB, allPlanes)
	mend()
	check("only node calls still cut", false, true, true)
	calls()
	check("both mended", true, true, true)
}

// A node in a namespace of its own serves the test process, and is found where the
// harness says.
func TestNodeInItsNamespace(t *testing.T) {
	c := newCluster(t, 1)
	n := c.initial[0]
	n.Env = []string{"NARAD_CLUSTER_ADDR=" + n.addr + ":" + raftPort}
	if !n.Launch() {
		t.Fatalf("exited with code %d: %s", n.ExitCode(), n.LastWords())
	}
	c.ready(n)
	if c.leader() != n || c.voters() != 1 {
		t.Errorf("leader %s of %d voters", c.leader().ID, c.voters())
	}
	l := c.newLoad("orders", 3, client.CreateTopic{Name: "orders-copy"})
	l.run(n)
	l.through("alone")
	over := c.kill(n)
	if !n.Launch() {
		t.Fatal("no restart")
	}
	c.ready(n)
	over()
	l.through("back")
	resume := c.pause(n)
	l.rest(time.Second)
	resume()
	l.drain()
}
