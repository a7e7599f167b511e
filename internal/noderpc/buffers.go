package noderpc

import "sync"

// bufferSizes are the capacities of recycled buffers. Larger ones are left to the
// collector: a pool of them would keep what one burst took.
var bufferSizes = [...]int{4 << 10, 64 << 10, 1 << 20}

// buffers recycles the buffers of requests and replies.
type buffers struct {
	pools [len(bufferSizes)]sync.Pool
}

// get returns an empty buffer that n bytes fit in, or none at all when it would be larger
// than the pool keeps.
func (b *buffers) get(n int) *[]byte {
	for i, size := range bufferSizes {
		if n > size {
			continue
		}
		if buf, ok := b.pools[i].Get().(*[]byte); ok {
			return buf
		}
		buf := make([]byte, 0, size)
		return &buf
	}
	return new([]byte)
}

// put takes a buffer of get back. Nobody may hold a part of it any more.
func (b *buffers) put(buf *[]byte) {
	for i, size := range bufferSizes {
		if cap(*buf) == size {
			*buf = (*buf)[:0]
			b.pools[i].Put(buf)
			return
		}
	}
}
