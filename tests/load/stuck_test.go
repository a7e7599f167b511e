package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// The figures of TestStuckClientsAreBounded.
const (
	stuckEach    = 50        // clients of each kind
	stuckSent    = 512 << 10 // bytes of body that a stalled writer has sent
	stuckRecord  = 1 << 20   // bytes of the record that a stalled reader does not read
	stuckHealthy = 200       // messages a healthy client gets through meanwhile

	// stuckMemory is what all of them together may cost: a message's buffer for each
	// client that sends a body or reads an answer, as much again for the collector, and
	// room for the process.
	stuckMemory = 3*stuckEach*(1<<20)*2 + 64<<20
)

// stuckKinds are what stuck clients have sent when they stop sending and reading.
func stuckKinds() map[string][]byte {
	const head = "Host: x\r\nX-Narad-Client: x\r\nContent-Type: application/json\r\n"
	body := bytes.Repeat([]byte("9"), stuckSent)
	post := func(path string, length int) []byte {
		return append(fmt.Appendf(nil, "POST /v1/topics/stuck/%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n", path, head, length), body...)
	}
	return map[string][]byte{
		"half a request line": []byte("POST /v1/topics/stu"),
		"half the headers":    []byte("POST /v1/topics/stuck/produce HTTP/1.1\r\n" + head),
		"half a message":      post("produce", 2*stuckSent),
		"half a batch":        post("produce/batch", 16<<20),
	}
}

// F31 F36 with O8 O12: clients that stop in the middle of a request, or do not read the
// answer, cost bounded memory, do not disturb others, store nothing, and are cut off.
func TestStuckClientsAreBounded(t *testing.T) {
	needLinux(t)
	node := testutil.NewNode(t, t.TempDir())
	node.Env = []string{"NARAD_HTTP_READ_TIMEOUT=3s", "NARAD_HTTP_MAX_CONSUME_WAIT=2s", "NARAD_HTTP_WRITE_TIMEOUT=4s"}
	node.Start()
	c := node.Client()
	if _, err := c.CreateTopic(t.Context(), client.CreateTopic{Name: "stuck"}); err != nil {
		t.Fatal(err)
	}
	record := client.Message{Payload: bytes.Repeat([]byte("7"), stuckRecord), Pin: client.Partition(0)}
	if err := c.Produce(t.Context(), "stuck", record); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() bool {
		_, ok, err := c.Read(t.Context(), "stuck", 0, 0)
		return ok && err == nil
	}, "the big record to be there")
	p := processOf(t, node)
	before := p.rss()

	var conns []net.Conn
	stick := func(n int, sent []byte) {
		for _, conn := range dial(t, node, n) {
			if _, err := conn.Write(sent); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
	}
	for _, sent := range stuckKinds() {
		stick(stuckEach, sent)
	}
	// Readers of nothing: each asks for the record again and again and takes no answer.
	replay := []byte("GET /v1/topics/stuck/consume?partition=0&offset=0 HTTP/1.1\r\nHost: x\r\n\r\n")
	stick(stuckEach, bytes.Repeat(replay, 20))

	for i := range stuckHealthy {
		if err := c.Produce(t.Context(), "stuck", client.Message{Payload: fmt.Appendf(nil, "%d", i), Pin: client.Partition(1)}); err != nil {
			t.Fatalf("healthy produce %d: %v", i, err)
		}
	}
	got := 0
	for deadline := time.Now().Add(patience); got < stuckHealthy && time.Now().Before(deadline); {
		ds, err := c.Receive(t.Context(), "stuck", client.ReceiveOptions{Pin: client.Partition(1), Max: 50, Wait: time.Second})
		if err != nil {
			t.Fatalf("healthy consume: %v", err)
		}
		got += len(ds)
	}
	if got != stuckHealthy {
		t.Errorf("a healthy client got %d messages, want %d", got, stuckHealthy)
	}
	grown := p.rss() - before
	t.Logf("%d stuck clients: %s of memory, %d descriptors", len(conns), mib(grown), p.files())
	if grown > stuckMemory {
		t.Errorf("stuck clients take %s, want at most %s", mib(grown), mib(stuckMemory))
	}

	testutil.Eventually(t, patience, func() bool { return inFlight(node) == 0 }, "the stuck requests to be cut off")
	for i, conn := range conns {
		if err := cutOff(conn); err != nil {
			t.Errorf("stuck client %d: %v", i, err)
		}
	}
	d, err := c.DescribeTopic(t.Context(), "stuck")
	if err != nil || d.PartitionStats[0].HighWatermark+d.PartitionStats[1].HighWatermark+d.PartitionStats[2].HighWatermark != stuckHealthy+1 {
		t.Errorf("half a request was stored: %+v, %v", d.PartitionStats, err)
	}
	if node.Logged("panic") {
		t.Error("the log holds a panic")
	}
}

// cutOff reads a connection to its end, which the server must have put there.
func cutOff(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("still open: %w", err)
	}
	return nil // a reset is an end as well
}
