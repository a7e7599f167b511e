package fanout

import "github.com/narad-mq/narad/internal/model"

// buckets is a slab in the order of child partitions. It is reused from slab to slab.
type buckets struct {
	place  []int32        // partition of each record
	ends   []int          // by partition: end of its records in sorted
	sorted []model.Record // by partition, each in slab order
}

// sort distributes recs over count partitions, place telling each record's: a counting
// sort, stable, so that each bucket keeps slab order and with it the order of a key.
func (b *buckets) sort(recs []model.Record, count int, place func(*model.Record) int) {
	b.place, b.ends = b.place[:0], append(b.ends[:0], make([]int, count)...)
	for i := range recs {
		p := place(&recs[i])
		b.place = append(b.place, int32(p))
		b.ends[p]++
	}
	sum := 0
	for p, n := range b.ends { // counts become starts ...
		b.ends[p] = sum
		sum += n
	}
	if cap(b.sorted) < len(recs) {
		b.sorted = make([]model.Record, len(recs))
	}
	b.sorted = b.sorted[:len(recs)]
	for i, p := range b.place { // ... and starts become ends
		b.sorted[b.ends[p]] = recs[i]
		b.ends[p]++
	}
}

// of is the records of one partition.
func (b *buckets) of(p int) []model.Record {
	start := 0
	if p > 0 {
		start = b.ends[p-1]
	}
	return b.sorted[start:b.ends[p]:b.ends[p]]
}

// clear drops what the buckets refer to.
func (b *buckets) clear() { clear(b.sorted[:cap(b.sorted)]) }

// placement is the rule for one pass over a slab (founding document, "Cursor loop").
type placement struct {
	count      int  // partitions of the child
	keepsIndex bool // keyless records keep the parent partition's index
	parent     int  // that index
	roundRobin func() uint32
}

// of is the child partition of a record.
func (p *placement) of(r *model.Record) int {
	switch {
	case len(r.Key) > 0:
		return model.KeyPartition(r.Key, p.count)
	case p.keepsIndex:
		return p.parent
	}
	return int(p.roundRobin() % uint32(p.count))
}
