package commitlog

import (
	"slices"

	"github.com/narad-mq/narad/internal/disk"
)

// cached returns the block that covers offset, as the most recently used one.
// Blocks the process-wide budget dropped are forgotten in passing.
func (l *Log) cached(offset int64) *block {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.view
	for i, b := range v.blocks {
		if !b.covers(offset) {
			continue
		}
		copy(v.blocks[1:i+1], v.blocks[:i])
		v.blocks[0] = b
		if !b.hot.Load() {
			b.hot.Store(true)
		}
		return b
	}
	return nil
}

// remember caches decoded records as a block.
func (l *Log) remember(recs []Stored) {
	b := &block{base: recs[0].Offset, recs: recs}
	for i := range recs {
		b.size += cachedSize(recs[i].Key, recs[i].Payload)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admit(b)
}

// admit puts a block in front and drops what no longer fits. Caller holds mu.
func (l *Log) admit(b *block) {
	v := &l.view
	if l.closed.Load() || b.size > logCacheBytesMax {
		return
	}
	kept, size := v.blocks[:0], b.size
	for _, old := range v.blocks {
		n := old.bytes()
		if n > 0 && len(kept) < logBlocksMax-1 && size+n <= logCacheBytesMax {
			kept, size = append(kept, old), size+n
			continue
		}
		l.opt.Cache.drop(old)
	}
	clear(v.blocks[len(kept):])
	v.blocks = slices.Insert(kept, 0, b)
	l.opt.Cache.admit(b)
}

// cacheWritten is write-through: records just committed enter the cache, in the
// newest block when they are few, so that a reader at the tail touches no disk.
// Caller holds mu.
func (l *Log) cacheWritten(recs []Record, first int64) {
	var total int64
	for i := range recs {
		total += cachedSize(recs[i].Key, recs[i].Payload)
	}
	if total > writeThroughMax {
		return
	}
	for len(recs) > 0 {
		n, _ := splitFrame(recs)
		var size int64
		for i := range recs[:n] {
			size += cachedSize(recs[i].Key, recs[i].Payload)
		}
		if !l.extendBlock(recs[:n], first, size) {
			l.admit(&block{base: first, recs: appendStored(nil, recs[:n], first), size: size})
		}
		first += int64(n)
		recs = recs[n:]
	}
}

// extendBlock adds records to the cached block they continue. Caller holds mu.
func (l *Log) extendBlock(recs []Record, first, size int64) bool {
	for _, b := range l.view.blocks {
		if l.opt.Cache.extend(b, recs, first, size) {
			return true
		}
	}
	return false
}

// cachedSize is what a record counts for.
func cachedSize(key, payload []byte) int64 {
	return int64(len(key)+len(payload)) + storedOverhead
}

// appendStored appends committed records as readers see them.
func appendStored(dst []Stored, recs []Record, first int64) []Stored {
	dst = slices.Grow(dst, len(recs))
	for i := range recs {
		s := Stored{Offset: first + int64(i), Payload: recs[i].Payload, CommittedAt: recs[i].CommittedAt}
		if len(recs[i].Key) > 0 {
			s.Key = recs[i].Key
		}
		dst = append(dst, s)
	}
	return dst
}

// learn keeps what a cold read found out about its segment: index, damage, and the
// frame boundary behind it.
func (l *Log) learn(p plan, found *index) {
	l.mu.Lock()
	v := &l.view
	if s := v.find(p.base); s != nil && s.base == p.base && !l.closed.Load() {
		if s.idx != nil {
			s.idx.merge(p.start, found)
		}
		v.addNav(found.scanned)
	}
	l.mu.Unlock()
}

// addNav remembers a frame boundary, forgetting the oldest of too many.
func (v *view) addNav(p place) {
	if slices.Contains(v.nav, p) {
		return
	}
	if len(v.nav) == navPlacesMax {
		copy(v.nav, v.nav[1:])
		v.nav = v.nav[:navPlacesMax-1]
	}
	v.nav = append(v.nav, p)
}

// touch makes a sealed segment the most recently read one; the segment that thereby
// leaves the recent ones loses index and descriptor. It returns files to close.
// Caller holds mu.
func (l *Log) touch(base int64) (files []disk.File) {
	v := &l.view
	if i := slices.Index(v.recent, base); i >= 0 {
		v.recent = slices.Delete(v.recent, i, i+1)
	}
	v.recent = slices.Insert(v.recent, 0, base)
	for len(v.recent) > recentSegments {
		gone := v.recent[len(v.recent)-1]
		v.recent = v.recent[:len(v.recent)-1]
		if s := v.find(gone); s != nil && s.base == gone {
			files = append(files, l.letGo(s)...)
			s.idx = nil
		}
	}
	return files
}
