package metastore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/clock"
)

// heartbeatFailing is how long a failed heartbeat to a peer counts, unless a later
// one succeeds: longer than the transport takes to give up dialling
// (spec/cluster-and-network section 9).
const heartbeatFailing = 12 * time.Second

// transport is Raft's network transport, watched: it notes the highest commit index
// a leader told this node, and the outcome of this node's heartbeats as a leader.
type transport struct {
	*raft.NetworkTransport
	clock     clock.Clock
	committed atomic.Uint64 // highest LeaderCommitIndex received
	inbox     chan raft.RPC
	quit      chan struct{}
	closeOnce sync.Once
	closeErr  error
	wg        sync.WaitGroup

	mu       sync.Mutex              // guards all below
	failures map[raft.ServerID]error // of the last heartbeat, by peer
	failedAt map[raft.ServerID]time.Time
	answered map[raft.ServerID]answer // of the last heartbeat that succeeded

	pipelines map[*pipeline]struct{} // open
	hungUp    bool                   // no more
}

// answer is a heartbeat that succeeded: when it was sent, and to which address.
type answer struct {
	sent time.Time
	addr raft.ServerAddress
}

func newTransport(t *raft.NetworkTransport, c clock.Clock) *transport {
	w := &transport{
		NetworkTransport: t, clock: c, inbox: make(chan raft.RPC), quit: make(chan struct{}),
		failures: map[raft.ServerID]error{}, failedAt: map[raft.ServerID]time.Time{},
		answered: map[raft.ServerID]answer{},
	}
	w.wg.Go(w.pass)
	return w
}

// pass hands every RPC on to Raft after noting what it says. Heartbeats take another
// way and carry no commit index.
func (t *transport) pass() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			t.note(rpc.Command)
			select {
			case t.inbox <- rpc:
			case <-t.quit:
				return
			}
		case <-t.quit:
			return
		}
	}
}

// note raises committed before Raft sees the index, so that this node never counts
// as current while Raft knows of more. Only pass calls it.
func (t *transport) note(command any) {
	if append, ok := command.(*raft.AppendEntriesRequest); ok && append.LeaderCommitIndex > t.committed.Load() {
		t.committed.Store(append.LeaderCommitIndex)
	}
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.inbox }

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := t.clock.Now()
	err := t.NetworkTransport.AppendEntries(id, addr, req, resp)
	if heartbeat := req.PrevLogEntry == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0; heartbeat {
		t.heard(id, answer{sent, addr}, err)
	}
	return err
}

func (t *transport) heard(id raft.ServerID, a answer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.answered[id] = a
		delete(t.failures, id)
		delete(t.failedAt, id)
		return
	}
	t.failures[id] = err
	t.failedAt[id] = t.clock.Now()
}

// failing is the error of the last heartbeat to a peer while it counts.
func (t *transport) failing(id raft.ServerID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.failedAt[id]; ok && t.clock.Now().Sub(at) < heartbeatFailing {
		return t.failures[id]
	}
	return nil
}

// answeredSince is whether a peer has answered a heartbeat that was sent to this address
// at that time or later.
func (t *transport) answeredSince(id raft.ServerID, addr raft.ServerAddress, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.answered[id]
	return ok && last.addr == addr && !last.sent.Before(since)
}

// forget drops the outcome of heartbeats, for a new term as leader or a peer that
// left.
func (t *transport) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.failures)
	clear(t.failedAt)
	clear(t.answered)
}

// Close implements raft.WithClose.
func (t *transport) Close() error {
	t.closeOnce.Do(func() {
		close(t.quit)
		t.closeErr = t.NetworkTransport.Close()
		t.CloseStreams()
		t.wg.Wait()
	})
	return t.closeErr
}
