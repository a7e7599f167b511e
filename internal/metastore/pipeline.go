package metastore

import (
	"net"

	"github.com/hashicorp/raft"
)

// pipeline is one of Raft's pipelines, known to the transport. Raft stops reading answers
// when one of them carries a newer term, and may be sending into the same pipeline then:
// the sender waits for room that nobody makes, and Raft's shutdown waits for the sender.
// Closing the pipeline frees it.
type pipeline struct {
	raft.AppendPipeline
	t *transport
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.t.mu.Lock()
	delete(p.t.pipelines, p)
	p.t.mu.Unlock()
	return p.AppendPipeline.Close()
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, addr)
	if err != nil {
		return nil, err
	}
	p := &pipeline{inner, t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hungUp {
		_ = inner.Close() // nothing was sent
		return nil, net.ErrClosed
	}
	if t.pipelines == nil {
		t.pipelines = map[*pipeline]struct{}{}
	}
	t.pipelines[p] = struct{}{}
	return p, nil
}

// hangUp closes every pipeline, for good.
func (t *transport) hangUp() {
	t.mu.Lock()
	open := t.pipelines
	t.pipelines, t.hungUp = nil, true
	t.mu.Unlock()
	for p := range open {
		_ = p.AppendPipeline.Close() // a second close is none
	}
}
