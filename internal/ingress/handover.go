package ingress

import (
	"sync"

	"github.com/narad-mq/narad/internal/wal"
)

// handoverGroupsKept is how long an empty list of groups may be to be kept.
const handoverGroupsKept = 1024

// handover carries fresh records from the WAL's sync goroutine to the
// dispatcher in memory. It is bounded: when it is full, what arrives is dropped
// and read from the file later; nothing blocks and nothing is lost.
//
// What it holds is one unbroken run of seqs that ends at next. A group that does
// not start at next is dropped, so one dropped group drops all later ones until
// the dispatcher has caught up from the file and attaches again.
type handover struct {
	wake chan struct{} // one token: something became durable

	mu      sync.Mutex // guards everything below; held for a few stores
	groups  []group
	head    int // of groups: the first not taken
	records int
	bytes   int64
	next    uint64 // where the next group has to start
	end     uint64 // first seq that is not durable, as far as told
	closed  bool
}

// group is a run of fresh records with consecutive seqs.
type group struct {
	first   uint64
	entries []wal.Entry
}

func newHandover() *handover { return &handover{wake: make(chan struct{}, 1)} }

// start says where the WAL's durable part ends before anything fresh arrives;
// everything below next is in the file.
func (h *handover) start(next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next, h.end = next, next
}

// push is the WAL's OnDurable: it never blocks.
func (h *handover) push(first uint64, entries []wal.Entry) {
	var bytes int64
	for _, e := range entries {
		bytes += int64(e.Size()) + recordOverhead
	}
	h.mu.Lock()
	h.end = first + uint64(len(entries))
	fits := h.records+len(entries) <= handoverRecordsMax && h.bytes+bytes <= handoverBytesMax
	if first == h.next && fits && !h.closed {
		h.groups = append(h.groups, group{first, entries})
		h.records += len(entries)
		h.bytes += bytes
		h.next = h.end
	}
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// take returns the group that holds seq frontier. Without one, file says up to
// where the records from frontier on have to be read from the file; file ==
// frontier means there is nothing to read at all.
func (h *handover) take(frontier uint64) (g group, file uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.head < len(h.groups) {
		g := h.groups[h.head]
		if g.first > frontier {
			return group{}, g.first
		}
		h.pop(g)
		if g.first+uint64(len(g.entries)) > frontier {
			return g, frontier
		}
	}
	// Empty: whatever starts at frontier is welcome again.
	h.next = frontier
	return group{}, max(h.end, frontier)
}

// pop forgets the head group. Caller holds mu.
func (h *handover) pop(g group) {
	h.groups[h.head] = group{}
	h.head++
	h.records -= len(g.entries)
	for _, e := range g.entries {
		h.bytes -= int64(e.Size()) + recordOverhead
	}
	switch {
	case h.head == len(h.groups):
		h.groups, h.head = h.groups[:0], 0
		if cap(h.groups) > handoverGroupsKept {
			h.groups = nil
		}
	case h.head > len(h.groups)/2:
		n := copy(h.groups, h.groups[h.head:])
		clear(h.groups[n:])
		h.groups, h.head = h.groups[:n], 0
	}
}

// close drops what is held and everything that arrives later.
func (h *handover) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.groups, h.head, h.records, h.bytes = true, nil, 0, 0, 0
}
