package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// The figures of TestParkedConsumersCostNothing.
const (
	parked       = 5000
	parkedWindow = 3 * time.Second
	parkedShare  = 0.02     // of one core
	parkedMemory = 64 << 10 // bytes a parked consumer may cost, its connection included
	parkedWait   = 60       // seconds; longer than the test needs
)

// dial opens n connections to the node, some at once.
func dial(t *testing.T, node *testutil.Node, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	const atOnce = 32
	for w := range atOnce {
		wg.Go(func() {
			for i := w; i < n; i += atOnce {
				c, err := net.DialTimeout("tcp", strings.TrimPrefix(node.URL, "http://"), patience)
				if err != nil {
					t.Error(err)
					return
				}
				conns[i] = c
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { hangUp(conns) })
	return conns
}

func hangUp(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// inFlight is how many requests the node serves, the one that asks aside.
func inFlight(node *testutil.Node) int {
	v, _ := node.Metric("narad_http_requests_in_flight")
	return int(v) - 1
}

// answered reads what has arrived on a connection without waiting for more.
func answered(t *testing.T, c net.Conn) []byte {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4<<10)
	n, err := c.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("parked connection: %v", err)
	}
	return b[:n]
}

// F31 with O12: thousands of parked consumers cost no processor time and little memory;
// a message wakes one of them; and when they hang up nothing is left of them.
func TestParkedConsumersCostNothing(t *testing.T) {
	needLinux(t)
	needFiles(t, parked+500)
	node := testutil.NewNode(t, t.TempDir())
	node.Env = []string{
		"NARAD_HTTP_MAX_CONNECTIONS=0", "NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY=0",
		fmt.Sprintf("NARAD_HTTP_MAX_CONSUME_WAIT=%ds", parkedWait), fmt.Sprintf("NARAD_HTTP_SHUTDOWN_GRACE=%ds", parkedWait),
		fmt.Sprintf("NARAD_HTTP_WRITE_TIMEOUT=%ds", 2*parkedWait),
	}
	node.Start()
	c := node.Client()
	if _, err := c.CreateTopic(t.Context(), client.CreateTopic{Name: "parked"}); err != nil {
		t.Fatal(err)
	}
	p := processOf(t, node)
	before := p.rss()

	conns := dial(t, node, parked)
	request := fmt.Appendf(nil, "GET /v1/topics/parked/consume?wait=%ds HTTP/1.1\r\nHost: x\r\n\r\n", parkedWait)
	for _, c := range conns {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, patience, func() bool { return inFlight(node) == parked }, "all consumers to be parked")
	grown := p.rss() - before
	used := p.cpuOver(parkedWindow)
	share := used.Seconds() / parkedWindow.Seconds()
	t.Logf("%d parked consumers: %.2f %% of a core over %v, %s of memory (%d bytes each), %d descriptors",
		parked, 100*share, parkedWindow, mib(grown), grown/parked, p.files())
	if share >= parkedShare {
		t.Errorf("parked consumers use %.2f %% of a core, want less than %.0f %%", 100*share, 100*parkedShare)
	}
	if grown > parked*parkedMemory {
		t.Errorf("parked consumers take %s, want at most %s", mib(grown), mib(parked*parkedMemory))
	}

	wakesOne(t, node, c, conns)

	hangUp(conns)
	testutil.Eventually(t, patience, func() bool { return inFlight(node) == 0 }, "the parked requests to end with their connections")
	if code := node.Stop(); code != 0 {
		t.Errorf("stop: exit code %d", code)
	}
}

// wakesOne produces one message and checks that one of the parked consumers got it and
// the others did not stir.
func wakesOne(t *testing.T, node *testutil.Node, c *client.Client, conns []net.Conn) {
	t.Helper()
	p := processOf(t, node)
	before := p.cpu()
	if err := c.Produce(t.Context(), "parked", client.Message{Payload: []byte(`"one"`)}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() bool { return inFlight(node) < parked }, "a parked consumer to be woken")
	// A second one that was woken in vain would show here at the latest.
	<-time.After(300 * time.Millisecond)
	if n := inFlight(node); n != parked-1 {
		t.Errorf("%d consumers are parked after one message, want %d", n, parked-1)
	}
	woken := 0
	for _, conn := range conns {
		b := answered(t, conn)
		if len(b) == 0 {
			continue
		}
		woken++
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"one"`)) {
			t.Errorf("woken consumer: %d %s, %v", resp.StatusCode, body, err)
		}
	}
	if woken != 1 {
		t.Errorf("%d consumers were answered, want 1", woken)
	}
	t.Logf("waking one of %d took %v of processor time, the scrapes that watched it included", len(conns), p.cpu()-before)
}
