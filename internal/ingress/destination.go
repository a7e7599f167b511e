package ingress

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/model"
)

// item is one held record.
type item struct {
	seq uint64
	rec *record
}

// topicState is what the dispatcher keeps per topic name that has records.
type topicState struct {
	name         string
	version      uint64                 // Directory version view was read at
	view         *model.TopicView       // nil = absent from the local replica
	destinations []*destination         // by stored partition; nil = no record seen
	far          map[int32]*destination // stored partitions past farPartition
	rerouted     prometheus.Counter     // nil until a record of the topic was rerouted
}

// farPartition bounds the slice of destinations: a stored partition number is
// bytes from disk and must not size an allocation.
const farPartition = model.PartitionsMax

// destination is one (topic, partition): the records queued for it and how its
// owner has been doing. It is also the lane of the records that name it, those
// left in the WAL included.
type destination struct {
	health
	parking
	heapPlace
	topic     *topicState
	partition int32
	lane      uint32

	queue      []item
	queuedAt   time.Time        // when the oldest queued record was queued
	placedView *model.TopicView // the view all queued records were checked against
	owner      *owner           // last known; nil = never resolved
	flight     *flight          // the one commit in flight
	crowded    bool             // it waits for its owner to have room for one more

	routeAt  time.Time // when route was chosen
	route    *destination
	warnedAt time.Time // last line about rerouting or refusals
	lastErr  error     // of the last failed attempt
}

// parking is what a lane has to do with records left in the WAL.
type parking struct {
	skipped   int    // records of this lane left in the WAL
	parkedPos int    // index in laneTable.parked while skipped > 0
	pass      uint32 // scan pass this lane takes part in; 0 = none
	wanted    bool   // a rerouted record was left in the WAL because this was full
}

// heapPlace is a destination's place in a dueHeap.
type heapPlace struct {
	heap    *dueHeap // the heap it is in; nil = none
	heapPos int
	heapDue time.Time
}

// flight is one commit: the batch and where it went. Between launch and landing
// recs belongs to the committing goroutine, everything else to the dispatcher.
type flight struct {
	dest     *destination
	to       Owner
	owner    *owner
	items    []item
	recs     []model.Record
	launched time.Time
	budget   time.Duration
	hung     bool
	timedOut bool
	cancel   func()
}

// dueHeap is a min-heap of destinations by heapDue.
type dueHeap struct {
	d []*destination
}

func (h *dueHeap) top() *destination {
	if len(h.d) == 0 {
		return nil
	}
	return h.d[0]
}

// set puts d into the heap, or moves it, so that it is due at the given time.
func (h *dueHeap) set(d *destination, due time.Time) {
	if d.heap != nil && d.heap != h {
		d.heap.drop(d)
	}
	d.heapDue = due
	if d.heap == nil {
		d.heap, d.heapPos = h, len(h.d)
		h.d = append(h.d, d)
	}
	h.up(d.heapPos)
	h.down(d.heapPos)
}

// drop takes d out of the heap.
func (h *dueHeap) drop(d *destination) {
	i, last := d.heapPos, len(h.d)-1
	h.swap(i, last)
	h.d[last] = nil
	h.d = h.d[:last]
	d.heap = nil
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *dueHeap) less(i, j int) bool { return h.d[i].heapDue.Before(h.d[j].heapDue) }

func (h *dueHeap) swap(i, j int) {
	h.d[i], h.d[j] = h.d[j], h.d[i]
	h.d[i].heapPos, h.d[j].heapPos = i, j
}

func (h *dueHeap) up(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h *dueHeap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.d); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
