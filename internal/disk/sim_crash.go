package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// fate is how a crash treats what was not synced.
type fate uint8

const (
	mixed    fate = iota // each piece on its own
	keepAll              // all of it had reached the disk
	keepNone             // nothing had
)

// drawFate leaves most things mixed, but makes the extremes likely, which would
// otherwise hardly occur in files of many sectors.
func drawFate(rng *rand.Rand) fate {
	switch rng.IntN(8) {
	case 0, 1:
		return keepAll
	case 2, 3:
		return keepNone
	}
	return mixed
}

// Crash cuts the power and returns the volume as it is found afterwards. Handles of
// s, and s itself, answer ErrCrashed from now on; s can be crashed again with other
// seeds to get other outcomes of the same moment. Rules and call counts do not carry
// over; capacity and clock do.
func (s *Sim) Crash(seed int64) *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashed = true

	rng := newRand(seed, 0)
	volume := mixed
	switch rng.IntN(8) {
	case 0:
		volume = keepAll
	case 1:
		volume = keepNone
	}
	c := &crasher{
		old: s,
		fates: func(rng *rand.Rand) fate {
			if volume != mixed {
				return volume
			}
			return drawFate(rng)
		},
		seed: seed,
		kept: map[*node]int{},
		done: map[*node]*node{},
	}
	c.drawChanges()
	out := &Sim{rng: newRand(seed, 1), now: s.now, inoNext: s.inoNext, capacity: s.capacity}
	out.root = c.rebuild(s.root)
	out.root.links = 1
	for _, n := range c.done {
		if n.content != nil {
			out.sectors += int64(len(n.cur))
		}
	}
	return out
}

// crasher builds the volume after a power loss from the one before.
type crasher struct {
	old   *Sim
	fates func(*rand.Rand) fate
	seed  int64
	kept  map[*node]int   // pending changes of a directory that survive, from the oldest
	done  map[*node]*node // rebuilt nodes, by the old one
}

// drawChanges picks the surviving prefix of every directory's pending changes and
// then shortens prefixes until no move contradicts Sim's promises.
func (c *crasher) drawChanges() {
	c.visit(c.old.root)
	dirs := slices.SortedFunc(maps.Keys(c.kept), func(a, b *node) int { return int(a.ino) - int(b.ino) })
	for _, d := range dirs {
		rng := newRand(c.seed, d.ino)
		switch c.fates(rng) {
		case keepAll:
			c.kept[d] = len(d.pending)
		case keepNone:
			c.kept[d] = 0
		default:
			c.kept[d] = rng.IntN(len(d.pending) + 1)
		}
	}
	for again := true; again; {
		again = false
		for _, d := range dirs {
			again = c.shorten(d) || again
		}
	}
}

// visit collects every directory that may survive.
func (c *crasher) visit(n *node) {
	if _, seen := c.kept[n]; seen || !n.isDir() {
		return
	}
	c.kept[n] = len(n.pending)
	for _, child := range n.stable {
		c.visit(child)
	}
	for _, ch := range n.pending {
		for _, e := range ch.sets {
			if e.node != nil {
				c.visit(e.node)
			}
		}
	}
}

// shorten drops from d's prefix the first side of a move whose other side does not
// survive: always for a directory, and for a file the source's side, so that it is
// not in neither place.
func (c *crasher) shorten(d *node) bool {
	for i, ch := range d.pending[:c.kept[d]] {
		m := ch.move
		if m == nil || !m.isDir && d == m.to {
			continue
		}
		other := m.other(d)
		if j := other.pendingMove(m); j >= c.kept[other] && j >= 0 {
			c.kept[d] = i
			return true
		}
	}
	return false
}

func (c *crasher) rebuild(n *node) *node {
	if out := c.done[n]; out != nil {
		return out
	}
	out := &node{ino: n.ino, mod: n.mod}
	c.done[n] = out
	if !n.isDir() {
		rng := newRand(c.seed, n.ino)
		out.content = n.content.crash(c.fates(rng), rng)
		return out
	}
	out.entries = n.surviving(c.kept[n])
	for name, child := range out.entries {
		child = c.rebuild(child)
		child.links++
		out.entries[name] = child
	}
	out.stable = maps.Clone(out.entries)
	return out
}
