package commitlog

import (
	"sync"
	"sync/atomic"
)

// Cache bounds (spec/storage-and-produce section 9.3).
const (
	CacheBytesDefault = 256 << 20 // decoded records kept per process
	logBlocksMax      = 16        // cached blocks per log
	logCacheBytesMax  = 16 << 20  // cached bytes per log
	blockBytesMax     = 256 << 10 // a block of several frames stops growing here
	blockRecordsMax   = 1024
	writeThroughMax   = 8 << 20 // a larger commit is not cached as it is written
	storedOverhead    = 72      // bytes of a Stored itself
	navPlacesMax      = 64
	unreadCommitsMax  = 64 // commits cached on after the last read
)

// Cache is what all logs of a process share: the budget for decoded records and
// the scratch buffers. It is safe for concurrent use.
type Cache struct {
	limit   int64
	buffers buffers

	mu     sync.Mutex // guards the rest and, with a block's own mu, which blocks live
	used   int64
	oldest *block // next to be evicted
	newest *block
}

// NewCache returns a cache that keeps at most limit bytes of decoded records;
// 0 means CacheBytesDefault.
func NewCache(limit int64) *Cache {
	if limit == 0 {
		limit = CacheBytesDefault
	}
	return &Cache{limit: limit}
}

// Used is the bytes of decoded records cached now.
func (c *Cache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// block is a run of consecutive records of one log. It grows at its end only, and
// only under the cache's lock.
type block struct {
	base         int64
	hot          atomic.Bool // read since the cache last passed it over
	older, newer *block      // guarded by Cache.mu, as is live
	live         bool        // counted in the cache

	mu   sync.Mutex // guards recs and size; taken last
	recs []Stored   // nil once the block was dropped
	size int64
}

// copyTo gives records to a run that wants one of them next; false when the block
// no longer holds it.
func (b *block) copyTo(r *run) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := r.next - b.base; i < 0 || i >= int64(len(b.recs)) {
		return false
	}
	r.copy(b.recs)
	return true
}

// covers reports whether the block still holds offset.
func (b *block) covers(offset int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return offset >= b.base && offset < b.base+int64(len(b.recs))
}

// bytes is what the block counts for.
func (b *block) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

// admit counts a new block and evicts past the limit.
func (c *Cache) admit(b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.live = true
	c.push(b)
	c.used += b.bytes()
	c.evict(b)
}

// extend appends recs to a block; false when it is full, dropped or not adjacent.
func (c *Cache) extend(b *block, recs []Record, first, size int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.mu.Lock()
	fits := b.live && b.size+size <= blockBytesMax && len(b.recs)+len(recs) <= blockRecordsMax &&
		b.base+int64(len(b.recs)) == first
	if fits {
		b.recs = appendStored(b.recs, recs, first)
		b.size += size
	}
	b.mu.Unlock()
	if fits {
		c.used += size
		c.evict(b)
	}
	return fits
}

// evict drops blocks until the limit holds: the oldest that was not read since it
// was last passed over, and never keeps grown, just changed, at another's cost
// when it alone is over the limit. Caller holds mu.
func (c *Cache) evict(grown *block) {
	for c.used > c.limit && c.oldest != nil {
		victim := c.oldest
		c.unlink(victim)
		if victim.hot.Swap(false) && victim != grown {
			c.push(victim)
			continue
		}
		c.kill(victim)
	}
}

// drop removes a block from the cache, if it is still there.
func (c *Cache) drop(b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.live {
		c.unlink(b)
		c.kill(b)
	}
}

// kill forgets an unlinked block's records. Caller holds mu.
func (c *Cache) kill(b *block) {
	b.mu.Lock()
	c.used -= b.size
	b.recs, b.size, b.live = nil, 0, false
	b.mu.Unlock()
}

func (c *Cache) push(b *block) {
	b.older, b.newer = c.newest, nil
	if c.newest != nil {
		c.newest.newer = b
	} else {
		c.oldest = b
	}
	c.newest = b
}

func (c *Cache) unlink(b *block) {
	if b.older != nil {
		b.older.newer = b.newer
	} else {
		c.oldest = b.newer
	}
	if b.newer != nil {
		b.newer.older = b.older
	} else {
		c.newest = b.older
	}
	b.older, b.newer = nil, nil
}
