package partition

import (
	"sync"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/lease"
)

// Buffers are the reusable per-call buffers of all partitions of a process.
type Buffers struct {
	batches, scratches sync.Pool
}

// NewBuffers returns an empty set.
func NewBuffers() *Buffers {
	return &Buffers{
		batches:   sync.Pool{New: func() any { return &batch{wake: make(chan struct{}, 1)} }},
		scratches: sync.Pool{New: func() any { return new(scratch) }},
	}
}

func (b *Buffers) batch() *batch { return b.batches.Get().(*batch) }

func (b *Buffers) putBatch(x *batch) {
	x.ctx, x.recs, x.err = nil, nil, nil
	b.batches.Put(x)
}

// scratch is what one Take or Fetch works with.
type scratch struct {
	leases []lease.Lease
	stored []commitlog.Stored
}

func (b *Buffers) scratch() *scratch { return b.scratches.Get().(*scratch) }

func (b *Buffers) putScratch(x *scratch) {
	clear(x.stored[:cap(x.stored)]) // records are not kept alive by an idle buffer
	x.stored = x.stored[:0]
	b.scratches.Put(x)
}
