package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// sectorSize is the unit a Sim's disk writes as a whole, in bytes.
const sectorSize = 512

// pastMax is how many overwritten images of an unsynced sector are remembered, as
// candidates for what reached the disk.
const pastMax = 4

// sector is immutable once it is in a map: every write makes a new one, so that
// maps share them freely. An absent sector reads as zeros and takes no room.
type sector = *[sectorSize]byte

// content is the data of a file: what reads see and what the disk holds for sure.
type content struct {
	cur   map[int64]sector // by sector number
	size  int64
	dirty map[int64]*dirtySector

	stable     map[int64]sector // as of the last Sync
	stableSize int64
	low, high  int64 // extremes of size since the last Sync
}

// dirtySector differs from the disk, or may.
type dirtySector struct {
	past []sector // images since the last Sync, oldest first, without the current
	lost bool     // a failed Sync dropped it: no Sync writes it any more
}

func newContent() *content {
	return &content{cur: map[int64]sector{}, dirty: map[int64]*dirtySector{}, stable: map[int64]sector{}}
}

// readAt copies what is there from off on; the caller handles the end of the file.
func (c *content) readAt(p []byte, off int64) {
	for len(p) > 0 {
		at := off % sectorSize
		n := min(int64(len(p)), sectorSize-at)
		if sec := c.cur[off/sectorSize]; sec != nil {
			copy(p[:n], sec[at:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+n
	}
}

func (c *content) bytes() []byte {
	b := make([]byte, c.size)
	c.readAt(b, 0)
	return b
}

// writeAt stores what fits into room bytes of new sectors, and reports how much
// that was and how many sectors it allocated.
func (c *content) writeAt(p []byte, off, room int64) (n int, allocated int64) {
	for len(p) > 0 {
		num, at := off/sectorSize, off%sectorSize
		old := c.cur[num]
		if old == nil {
			if room < sectorSize {
				break
			}
			room -= sectorSize
			allocated++
		}
		next := new([sectorSize]byte)
		if old != nil {
			*next = *old
		}
		k := copy(next[at:], p)
		c.touch(num, old)
		c.cur[num] = next
		p, off, n = p[k:], off+int64(k), n+k
		c.resize(max(c.size, off))
	}
	return n, allocated
}

// touch marks a sector as differing from the disk; old is its image so far.
func (c *content) touch(num int64, old sector) {
	d := c.dirty[num]
	if d == nil {
		c.dirty[num] = &dirtySector{}
		return
	}
	if d.lost {
		d.lost, d.past = false, nil
		return
	}
	if d.past = append(d.past, old); len(d.past) > pastMax {
		d.past = d.past[1:]
	}
}

func (c *content) resize(size int64) {
	c.size = size
	c.low, c.high = min(c.low, size), max(c.high, size)
}

// truncate sets the size and reports how many sectors became free.
func (c *content) truncate(size int64) (freed int64) {
	if size < c.size {
		for num, old := range c.cur {
			switch keep := size - num*sectorSize; {
			case keep <= 0:
				c.touch(num, old)
				delete(c.cur, num)
				freed++
			case keep < sectorSize:
				c.touch(num, old)
				c.cur[num] = cut(old, keep)
			}
		}
	}
	c.resize(size)
	return freed
}

// cut is the sector with all bytes from n on zero.
func cut(sec sector, n int64) sector {
	if sec == nil || n >= sectorSize {
		return sec
	}
	out := new([sectorSize]byte)
	copy(out[:max(n, 0)], sec[:])
	return out
}

// sync makes everything durable that no failed sync has dropped.
func (c *content) sync() {
	for num, d := range c.dirty {
		if !d.lost {
			put(c.stable, num, c.cur[num])
			delete(c.dirty, num)
		}
	}
	c.stableSize, c.low, c.high = c.size, c.size, c.size
}

func put(m map[int64]sector, num int64, sec sector) {
	if sec == nil {
		delete(m, num)
	} else {
		m[num] = sec
	}
}

// failSync does to the unsynced sectors what a failed fsync does: some reached the
// disk, the rest never will, and of those some are gone from the cache too. It
// reports how many sectors became free.
func (c *content) failSync(rng *rand.Rand) (freed int64) {
	before := len(c.cur)
	for _, num := range slices.Sorted(maps.Keys(c.dirty)) {
		d := c.dirty[num]
		if d.lost {
			continue
		}
		switch rng.IntN(4) {
		case 0: // written after all
			put(c.stable, num, c.cur[num])
			delete(c.dirty, num)
		case 1: // dropped, and the next read comes from the disk
			put(c.cur, num, c.durable(num))
			d.lost, d.past = true, nil
		default:
			d.lost, d.past = true, nil
		}
	}
	return int64(before - len(c.cur))
}

// durable is what the disk holds of a sector, as far as the durable size goes.
func (c *content) durable(num int64) sector {
	if c.stableSize <= num*sectorSize {
		return nil
	}
	return cut(c.stable[num], c.stableSize-num*sectorSize)
}

// replace makes b the content, as if synced.
func (c *content) replace(b []byte) {
	*c = *newContent()
	c.writeAt(b, 0, simUnlimited)
	c.sync()
}

// crash is the content after a power loss. Sizes and sectors are drawn as fate says.
func (c *content) crash(f fate, rng *rand.Rand) *content {
	out := newContent()
	out.resize(c.crashSize(f, rng))
	nums := maps.Clone(c.stable)
	for num := range c.dirty {
		nums[num] = nil
	}
	for _, num := range slices.Sorted(maps.Keys(nums)) {
		sec := c.crashSector(num, f, rng)
		if left := out.size - num*sectorSize; left > 0 {
			put(out.stable, num, cut(sec, left))
		}
	}
	out.cur = maps.Clone(out.stable)
	out.stableSize, out.low, out.high = out.size, out.size, out.size
	return out
}

func (c *content) crashSize(f fate, rng *rand.Rand) int64 {
	switch f {
	case keepAll:
		return c.size
	case keepNone:
		return c.stableSize
	}
	switch rng.IntN(3) {
	case 0:
		return c.size
	case 1:
		return c.stableSize
	}
	if c.size == c.low && c.stableSize == c.high { // only cut: it happened or not
		return c.size
	}
	return c.low + rng.Int64N(c.high-c.low+1)
}

func (c *content) crashSector(num int64, f fate, rng *rand.Rand) sector {
	old, d := c.durable(num), c.dirty[num]
	if d == nil || d.lost || f == keepNone {
		return old
	}
	if f == keepAll {
		return c.newest(num, old)
	}
	switch pick := rng.IntN(4 + len(d.past)); pick {
	case 0:
		return old
	case 1: // allocated, never written: zero where nothing durable was
		return overlay(old, nil, c.low-num*sectorSize, c.size-num*sectorSize)
	case 2, 3:
		return c.newest(num, old)
	default:
		return d.past[pick-4]
	}
}

// newest is the current image of a sector, and the durable one past the current
// end: if the cut that set that end is undone, its bytes are back.
func (c *content) newest(num int64, old sector) sector {
	return overlay(old, c.cur[num], 0, c.size-num*sectorSize)
}

// overlay is under with its bytes [from, to) taken from over.
func overlay(under, over sector, from, to int64) sector {
	from, to = max(from, 0), min(to, sectorSize)
	if from >= to {
		return under
	}
	out := new([sectorSize]byte)
	if under != nil {
		*out = *under
	}
	if over == nil {
		clear(out[from:to])
	} else {
		copy(out[from:to], over[from:to])
	}
	return out
}
