package broker

import (
	"container/heap"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/partition"
)

// purgeEvery is the grain of lease expiry: passes are at least this far apart, so a
// record is back within V + 1 s of its last lease (spec/consume section 5.3).
const purgeEvery = time.Second

// purger ends due leases, node-wide. It sleeps until the earliest expiry it was told
// of and holds no timer while no lease is out. Leases settled meanwhile only make it
// look in vain, once per partition and lease length.
type purger struct {
	clk  clock.Clock
	now  func() int64
	poke chan struct{} // one slot: the earliest deadline moved forward
	stop chan struct{}
	done chan struct{}

	mu  sync.Mutex // guards due and on
	due dueHeap
	on  map[*partition.Partition]int64 // the deadline that counts
}

type dueEntry struct {
	at   int64
	part *partition.Partition
}

type dueHeap []dueEntry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueEntry)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = dueEntry{}
	*h = old[:len(old)-1]
	return last
}

func newPurger(clk clock.Clock, now func() int64) *purger {
	return &purger{
		clk: clk, now: now,
		poke: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		on: make(map[*partition.Partition]int64),
	}
}

// schedule has p expired at the time at, unless that happens earlier anyway.
func (g *purger) schedule(p *partition.Partition, at int64) {
	g.mu.Lock()
	if was, ok := g.on[p]; ok && was <= at {
		g.mu.Unlock()
		return
	}
	g.on[p] = at
	heap.Push(&g.due, dueEntry{at: at, part: p})
	first := g.due[0].at == at
	g.mu.Unlock()
	if first {
		select {
		case g.poke <- struct{}{}:
		default:
		}
	}
}

// next is the earliest deadline; ok is false when none is set.
func (g *purger) next() (at int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.due) == 0 {
		return 0, false
	}
	return g.due[0].at, true
}

// take pops one partition that is due at now.
func (g *purger) take(now int64) *partition.Partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.due) > 0 && g.due[0].at <= now {
		e := heap.Pop(&g.due).(dueEntry)
		if g.on[e.part] == e.at { // else an earlier entry replaced it
			delete(g.on, e.part)
			return e.part
		}
	}
	return nil
}

func (g *purger) run() {
	defer close(g.done)
	last := g.now() - int64(purgeEvery) // when the last pass ran
	for {
		at, ok := g.next()
		if !ok {
			select {
			case <-g.poke:
				continue
			case <-g.stop:
				return
			}
		}
		if wait := max(at, last+int64(purgeEvery)) - g.now(); wait > 0 {
			if !g.sleep(time.Duration(wait)) {
				return
			}
			continue
		}
		last = g.now()
		for p := g.take(last); p != nil; p = g.take(last) {
			if at, ok := p.Expire(); ok {
				g.schedule(p, max(at, last+1))
			}
		}
	}
}

// sleep waits for d or an earlier deadline; false = stop.
func (g *purger) sleep(d time.Duration) bool {
	timer := g.clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-g.poke:
	case <-g.stop:
		return false
	}
	return true
}

func (g *purger) close() {
	close(g.stop)
	<-g.done
}
