package metastore

import (
	"errors"
	"net"
	"testing"

	"github.com/hashicorp/raft"
)

// closing is a pipeline that counts its closes.
type closing struct {
	raft.AppendPipeline
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// What is open when Raft stops is closed, once, and nothing is opened after it.
func TestHangUpClosesEveryPipeline(t *testing.T) {
	c := newCluster(t, 3, nil)
	s := c.nodes[c.follower()].store
	w := s.transport
	open, left := &closing{}, &closing{}
	p := &pipeline{left, w}
	w.mu.Lock()
	w.pipelines = map[*pipeline]struct{}{{open, w}: {}, p: {}}
	w.mu.Unlock()
	must(t, p.Close())
	w.hangUp()
	if open.closed != 1 || left.closed != 1 {
		t.Errorf("closed %d and %d times, want once each", open.closed, left.closed)
	}
	peer := s.Servers()[0]
	if _, err := w.AppendEntriesPipeline(raft.ServerID(peer.ID), raft.ServerAddress(peer.Addr)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("opened after it: %v", err)
	}
}
