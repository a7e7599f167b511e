package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// The run with a dead owner.
const (
	heldParts    = 4         // of the child that is held up
	heldSlab     = 128 << 10 // bytes of a slab
	heldBody     = 16 << 10  // bytes of a message
	heldMessages = 4000      // produced while the owner is dead: 64 MB
	heldHeapMax  = 24 << 20  // what that may add to the heap of one owner, its own work included
)

// held is a parent and two children: one has a partition on a node that has nothing else
// to do with the three.
type held struct {
	*quiet
	dead       *node
	held, free string // names of the children
}

func newHeld(t *testing.T) *held {
	h := &held{quiet: newQuiet(t, fmt.Sprint("NARAD_FANOUT_MAX_BATCH_BYTES=", heldSlab), "GOGC=25")}
	h.dead = h.outside
	for i := 0; h.free == ""; i++ {
		if i == 12 {
			t.Fatal("every topic is on the same three nodes")
		}
		name := fmt.Sprint("child-", i)
		h.c.family(client.CreateTopic{Name: name, Partitions: quietParts})
		if !slices.Contains(h.c.owners(name), h.dead) {
			h.free = name
		}
	}
	h.held = "held" // as many partitions as nodes, so that every slab is for all of them
	h.c.family(client.CreateTopic{Name: h.held, Partitions: heldParts})
	h.attach(h.held, 0)
	h.attach(h.free, 0)
	return h
}

// heap is what live and dead objects take on a node.
func (n *node) heap() float64 {
	v, _ := n.metric("go_memstats_heap_inuse_bytes")
	return v
}

// heaviest is the largest growth of a living node's heap, once it has settled.
func (h *held) heaviest(before map[*node]float64) (most float64) {
	for n, v := range before {
		most = max(most, n.heap()-v)
	}
	return most
}

// A dead owner of one partition of one child holds up that partition's records alone:
// the other records of the slab are in the child, the other child keeps its pace, and no
// more than a slab a cursor is in memory however much comes behind it. When the owner is
// back nothing is missing (O7).
func TestO7DeadChildOwnerHoldsUpItsOwn(t *testing.T) {
	h := newHeld(t)
	c := h.c
	lost := slices.Index(c.owners(h.held), h.dead)
	owners := map[*node]float64{}
	for _, n := range c.owners("p") {
		owners[n] = n.heap()
	}
	over := c.kill(h.dead)
	h.outside = c.living()[0]
	h.produce(heldMessages)
	for _, n := range c.living() {
		n.caughtUp("p", h.free)
	}
	t.Logf("the heaviest owner's heap grew by %.1f MB", h.heaviest(owners)/1e6)
	testutil.Eventually(t, patience, func() bool { return h.heaviest(owners) < heldHeapMax }, "the heap to settle at the slabs in hand")

	parent := h.outside.contentsOf("p")
	var free contents
	for p := range heldParts {
		if p != lost {
			free = append(free, h.outside.partOf(h.held, p)...)
		}
	}
	h.sharesSlab(parent, free, lost)
	list, err := h.outside.client().Children(t.Context(), "p")
	if err != nil || list.Children[0].LagMessages == 0 || !list.Children[0].LagComplete {
		t.Errorf("the child that is held up lists %+v, %v", list.Children, err)
	}
	c.revive(over, h.dead)
	c.settled("p", h.held, h.free)
	judgeCopy(t, h.held, parent, h.outside.contentsOf(h.held), 0, 0)
	judgeCopy(t, h.free, parent, h.outside.contentsOf(h.free), 0, 0)
}

// produce sends messages through all living nodes and waits until the parent has them.
func (h *held) produce(count int) {
	t := h.c.t
	t.Helper()
	nodes := h.c.living()
	clients := make([]*client.Client, len(nodes))
	for i, n := range nodes {
		clients[i] = n.client()
	}
	var sent []string
	for i := 0; len(sent) < count; i++ {
		var ms []client.Message
		for range 50 {
			id := fmt.Sprint("held-", h.next.Add(1))
			ms = append(ms, client.Message{Key: []byte(id), Payload: ledger.Payload(id, heldBody)})
			sent = append(sent, string(ms[len(ms)-1].Payload))
		}
		testutil.Eventually(t, patience, func() bool {
			return clients[i%len(clients)].ProduceBatch(t.Context(), "p", ms) == nil
		}, "a batch to be accepted")
	}
	h.c.dispatched("p", sent)
}

// sharesSlab checks that of every slab that was begun only the dead owner's records are
// missing. free is what the child's living partitions hold.
func (h *held) sharesSlab(parent, free contents, lost int) {
	t := h.c.t
	t.Helper()
	has, begun := free.times(), 0
	for p, owner := range h.c.owners("p") {
		next := int64(0)
		if b, err := os.ReadFile(cursorFile(owner, p, h.held)); err == nil {
			next = positionIn(t, b)
		}
		records, end := parent.part(p), int64(0)
		for _, s := range records {
			if has[s.raw] > 0 {
				end = s.offset + 1
			}
		}
		for _, s := range records {
			if s.offset < end && has[s.raw] == 0 && model.KeyPartition([]byte(s.key), heldParts) != lost {
				t.Errorf("%s lacks offset %d of partition %d, which belongs to a living partition; the slab began at %d and reaches %d", h.held, s.offset, p, next, end)
			}
		}
		t.Logf("partition %d: position %d, copied up to %d of %d", p, next, end, len(records))
		if end > next {
			begun++
		}
	}
	if begun == 0 {
		t.Error("no slab was begun: the run proves nothing")
	}
}

// partOf replays one partition.
func (n *node) partOf(topic string, p int) (out contents) {
	n.c.t.Helper()
	for m, err := range n.client().Replay(n.c.t.Context(), topic, client.ReplayOptions{Pin: client.Partition(p)}) {
		if err != nil {
			n.c.t.Fatalf("replay %s/%d through %s: %v", topic, p, n.ID, err)
		}
		out = append(out, stored{m.Partition, m.Offset, string(m.Key), string(m.Raw), m.Timestamp.Unix()})
	}
	return out
}

// positionIn is the offset a cursor file names.
func positionIn(t *testing.T, b []byte) int64 {
	t.Helper()
	var r struct {
		Next int64 `json:"next_offset"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r.Next
}
