package metastore

import (
	"net"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// TestCloseDoesNotWaitForTheSilent: a node whose peers take connections and say nothing,
// like stopped processes, closes at once: it does not wait for their answers, for which
// Raft allows 10 s each.
func TestCloseDoesNotWaitForTheSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	dialled := make(chan struct{}, 1)
	c := emptyCluster(t, 1, func(_ int, o *Options) {
		o.Dial = nil // the real one
	})
	s := c.start(0, func(o *Options) {
		o.Advertise = "127.0.0.1:1" // its own address in the configuration; nobody dials it
		o.Initial = []Server{
			{ID: o.NodeID, Addr: o.Advertise, Voter: true},
			{ID: "silent-1", Addr: silent.Addr().String(), Voter: true},
			{ID: "silent-2", Addr: silent.Addr().String(), Voter: true},
		}
	})
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			select {
			case dialled <- struct{}{}:
			default:
			}
		}
	}()
	select {
	case <-dialled:
	case <-time.After(10 * time.Second):
		t.Fatal("it asked nobody for a vote")
	}
	testutil.Eventually(t, 5*time.Second, func() bool {
		s.stream.dialled.mu.Lock()
		defer s.stream.dialled.mu.Unlock()
		return len(s.stream.dialled.open) > 0
	}, "it waits for answers")
	start := time.Now()
	must(t, s.Close())
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("closing took %s", took)
	}
	if _, err := s.stream.Dial("127.0.0.1:1", time.Second); err == nil {
		t.Error("dialled after it")
	}
}
