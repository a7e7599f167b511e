package ingress

// lru is a map of at most max entries that forgets the one used longest ago.
// Looking up and touching an entry allocates nothing. Not safe for concurrent use.
type lru[K comparable, V any] struct {
	entries map[K]*lruEntry[K, V]
	root    lruEntry[K, V] // of the ring: root.next was used last, root.prev longest ago
	max     int
}

type lruEntry[K comparable, V any] struct {
	key        K
	value      V
	prev, next *lruEntry[K, V]
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	l := &lru[K, V]{entries: map[K]*lruEntry[K, V]{}, max: limit}
	l.root.prev, l.root.next = &l.root, &l.root
	return l
}

// get returns the entry's value to read or change in place, nil when unknown,
// and makes it the one used last.
func (l *lru[K, V]) get(key K) *V {
	e := l.entries[key]
	if e == nil {
		return nil
	}
	e.unlink()
	e.link(&l.root)
	return &e.value
}

// add remembers a key that get does not know, forgetting another if it must.
func (l *lru[K, V]) add(key K, value V) *V {
	if len(l.entries) >= l.max {
		old := l.root.prev
		old.unlink()
		delete(l.entries, old.key)
	}
	e := &lruEntry[K, V]{key: key, value: value}
	e.link(&l.root)
	l.entries[key] = e
	return &e.value
}

func (e *lruEntry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (e *lruEntry[K, V]) link(root *lruEntry[K, V]) {
	e.prev, e.next = root, root.next
	root.next.prev = e
	root.next = e
}
