package commitlog

import "sort"

// indexEveryBytes is how far apart index entries may be (spec/storage-and-produce
// section 9.2).
const indexEveryBytes = 64 << 10

// place is a frame boundary: the frame at pos starts at offset base or later.
type place struct {
	base int64
	pos  int64
}

// damage is a range of bytes that holds no valid frame, and the offsets [from,
// next) that are lost with it.
type damage struct {
	from, next   int64
	pos, nextPos int64
}

// index finds frames of one segment. Entries and damage only ever grow, ascending,
// up to the place scanned: what lies before it was walked and checked once.
type index struct {
	base    int64 // of the segment
	entries []place
	damage  []damage
	scanned place
}

func newIndex(base int64) *index { return &index{base: base, scanned: place{base: base}} }

// add records a checked frame [base, end) at pos of size bytes.
func (x *index) add(base, pos, end, size int64) {
	if n := len(x.entries); n == 0 || pos-x.entries[n-1].pos >= indexEveryBytes {
		x.entries = append(x.entries, place{base, pos})
	}
	x.scanned = place{end, pos + size}
}

// cut forgets everything from position at.pos on.
func (x *index) cut(at place) {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].pos >= at.pos })
	x.entries = x.entries[:i]
	j := sort.Search(len(x.damage), func(j int) bool { return x.damage[j].nextPos > at.pos })
	x.damage = x.damage[:j]
	if at.pos < x.scanned.pos {
		x.scanned = at
	}
}

// start is the nearest known place at or before offset.
func (x *index) start(offset int64) place {
	if x.scanned.base <= offset {
		return x.scanned
	}
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].base > offset })
	if i == 0 {
		return x.begin()
	}
	return x.entries[i-1]
}

// begin is the start of the segment.
func (x *index) begin() place { return place{base: x.base} }

// lost reports the known damage that offset fell into.
func (x *index) lost(offset int64) (damage, bool) {
	i := sort.Search(len(x.damage), func(i int) bool { return x.damage[i].next > offset })
	if i < len(x.damage) && x.damage[i].from <= offset {
		return x.damage[i], true
	}
	return damage{}, false
}

// merge takes over what a walk from start found, unless that walk began behind
// what is known. Walks of the same segment may overlap; what they agree on is
// taken once.
func (x *index) merge(start place, found *index) {
	if start.pos > x.scanned.pos || found.scanned.pos <= x.scanned.pos {
		return
	}
	for _, e := range found.entries {
		if n := len(x.entries); e.pos >= x.scanned.pos && (n == 0 || e.pos-x.entries[n-1].pos >= indexEveryBytes) {
			x.entries = append(x.entries, e)
		}
	}
	for _, d := range found.damage {
		if d.pos >= x.scanned.pos {
			x.damage = append(x.damage, d)
		}
	}
	x.scanned = found.scanned
}

// walk goes over the frames of a segment in order. What it passes is recorded in
// found, which starts out at the walk's own start.
type walk struct {
	w     *window
	found *index
}

func newWalk(w *window, start place) *walk {
	return &walk{w: w, found: &index{base: start.base, scanned: start}}
}

// step passes the next valid frame and the damage before it. ok is false at the
// end: nothing valid stands at or behind found.scanned.
func (k *walk) step() (h frameHeader, at int64, ok bool, err error) {
	at, expect := k.found.scanned.pos, k.found.scanned.base
	if at >= k.w.limit {
		return h, at, false, nil
	}
	h, ok, err = k.w.frameAt(at, expect)
	if err == nil && !ok {
		bad := at
		at, h, ok, err = k.w.resync(bad, expect)
		if ok {
			k.found.damage = append(k.found.damage, damage{from: expect, next: h.base, pos: bad, nextPos: at})
		}
	}
	if ok && err == nil {
		k.found.add(h.base, at, h.end(), h.size())
	}
	return h, at, ok && err == nil, err
}
