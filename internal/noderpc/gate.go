package noderpc

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
)

// Gate bounds how many requests of a kind run at once on a node
// (spec/cluster-and-network section 6).
type Gate uint8

// The gates. Long polls, and operations that call peers themselves, pass none: they would
// hold a slot while they wait, and two nodes could wait for each other.
const (
	GateNone      Gate = iota
	GateCommit         // records a peer commits
	GateMessaging      // what leases are given and settled by
	GateTransfer       // segments; the slot is held until the reply is written, which bounds memory
	gateCount
)

// Bounds of what a node holds for its peers.
const (
	gateMin       = 64 // slots of the commit and messaging gates, or
	gatePerCPU    = 4  // so many per processor
	transferSlots = 8
	waitingMax    = 256 << 20 // bytes of requests that wait for a gate
)

// Ends of waiting for a gate.
var (
	errBusy   = errors.New("node busy")
	errGaveUp = errors.New("requester gave up")
)

// gates are those of one node.
type gates struct {
	slots   [gateCount]chan struct{} // GateNone has none
	waiting atomic.Int64             // bytes of requests that wait
}

func newGates() *gates {
	n := max(gateMin, gatePerCPU*runtime.GOMAXPROCS(0))
	g := &gates{}
	g.slots[GateCommit] = make(chan struct{}, n)
	g.slots[GateMessaging] = make(chan struct{}, n)
	g.slots[GateTransfer] = make(chan struct{}, transferSlots)
	return g
}

// enter waits for a slot for a request of size bytes: not at all when the node holds as
// many waiting bytes as it may (errBusy), and only while ctx lives (errGaveUp). Who
// entered leaves.
func (g *gates) enter(ctx context.Context, gate Gate, size int) error {
	slots := g.slots[gate]
	if slots == nil {
		return nil
	}
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	if g.waiting.Add(int64(size)) > waitingMax {
		g.waiting.Add(-int64(size))
		return errBusy
	}
	defer g.waiting.Add(-int64(size))
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errGaveUp
	}
}

func (g *gates) leave(gate Gate) {
	if slots := g.slots[gate]; slots != nil {
		<-slots
	}
}
