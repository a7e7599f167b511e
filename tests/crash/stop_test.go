package crash

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// C6 with O1 O2 O3 O5: the node is stopped in good order under load, again and again.
// It exits with 0, and not one acked message comes back.
func TestC6GracefulStopForgetsNoAck(t *testing.T) {
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.run(6)
	for range 4 {
		l.flow(500)
		if code := l.node.Stop(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		if l.node.LastWords() == "" || !l.node.Logged("narad serve stopped") {
			t.Errorf("the last line is %q", l.node.LastWords())
		}
		l.boot()
	}
	l.halt()
	l.drain()
	if late := l.ledger.Counts().Late; late != 0 {
		t.Errorf("O3: %d acked messages came back", late)
	}
	if v, ok := l.node.Metric("narad_ingress_dispatch_backlog_records"); ok && v != 0 {
		testutil.Eventually(t, patience, func() bool { return l.metric("narad_ingress_dispatch_backlog_records") == 0 }, "the backlog to empty")
	}
}

// stall sends half a produce request and leaves it, which keeps a graceful stop waiting
// for its grace. It returns once the node waits for the rest.
func (l *load) stall() net.Conn {
	l.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(l.node.URL, "http://"))
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = fmt.Fprintf(c, "POST /v1/topics/%s/produce HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", l.topic)
	if err == nil {
		err = c.SetReadDeadline(time.Now().Add(patience))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		l.t.Fatalf("stalled request: %q, %v", line, err)
	}
	return c
}

// F11 with O1 O3: a second SIGTERM ends the node at once, with the code of the signal.
// That is a crash like any other.
func TestF11SecondSignalEndsAtOnce(t *testing.T) {
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.run(4)
	l.flow(200)
	stalled := l.stall()
	defer stalled.Close()
	if err := l.node.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() bool { return !l.node.Ready() }, "the stop to begin")
	began := time.Now()
	if err := l.node.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := l.node.Wait(patience); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the second signal took %v", took)
	}
	l.ledger.Killed(time.Now())
	l.boot()
	l.flow(100)
	l.halt()
	l.drain()
}

// F11 with O1 O2 O3 O5: the node is killed at one of the last syncs of a graceful stop,
// of a position, a high watermark, the checkpoint or the metadata.
func TestF11KilledDuringGracefulStop(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	died := 0
	for n := 1; n <= 6; n++ {
		l.run(3)
		l.flow(100)
		l.halt()
		l.node.Trace(killAt("fdatasync", n)...)
		_ = l.node.Signal(syscall.SIGTERM) // the kill may have come first
		if l.node.Wait(patience) != 0 {
			died++
		}
		l.ledger.Killed(time.Now())
		l.boot()
	}
	l.drain()
	t.Logf("killed %d times in a stop", died)
	if died < 2 {
		t.Error("the run proves little")
	}
}
