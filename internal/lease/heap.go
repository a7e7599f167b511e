package lease

// deadline is when a lease ends. It is stale, and skipped, once its lease is gone
// or points at another deadline.
type deadline struct {
	expires, offset int64
	id              uint64
}

func (d deadline) before(e deadline) bool { return d.expires < e.expires }

// returned is a record that was leased and is free again, with the number of
// deliveries it has had.
type returned struct {
	offset int64
	count  int
}

func (r returned) before(s returned) bool { return r.offset < s.offset }

// heap is a binary min-heap of values; the minimum is its first element.
type heap[T ordered[T]] []T

type ordered[T any] interface{ before(T) bool }

func (h *heap[T]) push(v T) {
	*h = append(*h, v)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !v.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = v
}

func (h *heap[T]) pop() T {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
	return top
}

// fix restores the order after the contents were replaced.
func (h *heap[T]) fix() {
	for i := len(*h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *heap[T]) down(i int) {
	s := *h
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s); c++ {
			if s[c].before(s[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}
