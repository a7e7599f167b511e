package broker

import (
	"errors"
	"io/fs"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
	"github.com/narad-mq/narad/internal/position"
)

// inventoryEvery is the shortest time between two inventory passes.
const inventoryEvery = 5 * time.Second

// inventory reads from disk what the gauges need and memory does not have: the stored
// frontier of partitions whose queue nobody touched, and the commit time of the oldest
// unacked record. It runs only after a scrape asked for it, so a node that nobody
// scrapes does no work, and a scrape never waits for a disk.
type inventory struct {
	b    *Broker
	ask  chan struct{} // one slot
	stop chan struct{}
	done chan struct{}
}

func newInventory(b *Broker) *inventory {
	return &inventory{b: b, ask: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

func (i *inventory) poke() {
	select {
	case i.ask <- struct{}{}:
	default:
	}
}

func (i *inventory) run() {
	defer close(i.done)
	for {
		select {
		case <-i.ask:
		case <-i.stop:
			return
		}
		i.pass()
		timer := i.b.opts.Clock.NewTimer(inventoryEvery)
		select {
		case <-timer.C():
		case <-i.stop:
			timer.Stop()
			return
		}
	}
}

func (i *inventory) close() {
	close(i.stop)
	<-i.done
}

func (i *inventory) pass() {
	for _, e := range i.b.names.Range {
		t := e.(*topic)
		v := t.view.Load()
		if v == nil {
			continue
		}
		for p, s := range t.all() {
			select {
			case <-i.stop:
				return
			default:
			}
			if v.OwnerOf(p) == i.b.opts.Node {
				i.look(t, p, s)
			}
		}
	}
}

// look refreshes what is known of one partition. Its result is dropped when the
// partition was opened or closed meanwhile; the next pass looks again.
func (i *inventory) look(t *topic, p int, s *slot) {
	known, pt := s.rest.Load(), s.part.Load()
	var next *resting
	if pt != nil {
		next = i.open(t, p, pt, known)
	} else if known == nil || !known.empty && known.frontier == frontierUnknown {
		next = i.closed(t, p, known)
	}
	if next != nil && s.part.Load() == pt {
		s.rest.CompareAndSwap(known, next)
	}
}

// open reads the commit time of an open partition's oldest unacked record, unless it is
// known already.
func (i *inventory) open(t *topic, p int, pt *partition.Partition, known *resting) *resting {
	g := pt.Gauges()
	if !g.Loaded {
		f, err := i.storedFrontier(t, p)
		if err != nil {
			return nil
		}
		g.Frontier = f
	}
	if known != nil && known.frontier == g.Frontier && (known.oldestAt > 0 || g.Frontier >= g.HighWatermark) {
		return nil
	}
	next := &resting{stats: g.Stats, frontier: g.Frontier}
	if g.Frontier < g.HighWatermark {
		// A record that is gone or unreadable has no age; the next one has its own pass.
		if m, ok, err := pt.Read(max(g.Frontier, g.OldestOffset)); err == nil && ok {
			next.oldestAt = m.CommittedAt
		}
	}
	return next
}

// closed looks at a closed partition's files for the first time. One whose watermark is
// not vouched for has no gauges, nor has one without files.
func (i *inventory) closed(t *topic, p int, known *resting) *resting {
	if known == nil {
		st, clean, err := i.b.describeClosed(t.name, t.id, p)
		if err != nil || !clean {
			return nil
		}
		known = newResting(st)
	}
	if known.empty {
		return known
	}
	next := &resting{stats: known.stats}
	var err error
	if next.frontier, err = i.storedFrontier(t, p); err != nil {
		return nil
	}
	return next
}

// storedFrontier is the oldest unresolved offset by the consumer files.
func (i *inventory) storedFrontier(t *topic, p int) (int64, error) {
	dir, err := commitlog.PartitionDir(i.b.opts.DataDir, t.name, p)
	if err != nil {
		return 0, err
	}
	pos, err := position.Load(i.b.opts.FS, dir, t.id)
	if errors.Is(err, fs.ErrNotExist) {
		pos, err = model.NoPosition(), nil
	}
	return pos.Committed + 1, err
}
