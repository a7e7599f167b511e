package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Buffer sizes. A window holds any frame of several records whole.
const (
	windowBytes    = framePayloadMax + 128<<10
	readAheadBytes = 64 << 10 // read at once by a cold read
	bufferKeepMax  = 4 << 20  // a larger write buffer is not pooled
)

// buffers are the process's scratch buffers: none is pinned per log.
type buffers struct {
	windows sync.Pool // *[]byte of windowBytes
	writes  sync.Pool // *[]byte of any capacity up to bufferKeepMax
}

func (b *buffers) window() *[]byte {
	if p, ok := b.windows.Get().(*[]byte); ok {
		return p
	}
	s := make([]byte, windowBytes)
	return &s
}

func (b *buffers) write() *[]byte {
	if p, ok := b.writes.Get().(*[]byte); ok {
		return p
	}
	return new([]byte)
}

func (b *buffers) putWrite(p *[]byte) {
	if cap(*p) <= bufferKeepMax {
		*p = (*p)[:0]
		b.writes.Put(p)
	}
}

// window reads a segment through one borrowed buffer. Bytes at or past limit do
// not exist for it, so no length found in the file reaches past the file.
type window struct {
	f     io.ReaderAt
	limit int64
	ahead int // bytes to read at once when the buffer must be filled
	buf   []byte
	pos   int64 // file position of buf[0]
	n     int   // valid bytes of buf
}

func newWindow(f io.ReaderAt, limit int64, ahead int, buf []byte) *window {
	return &window{f: f, limit: limit, ahead: ahead, buf: buf}
}

// at returns the n bytes at pos, or fewer at the limit or the end of the file. The
// result is valid until the next call; n must not exceed the buffer.
func (w *window) at(pos int64, n int) ([]byte, error) {
	if left := w.limit - pos; int64(n) > left {
		n = int(max(left, 0))
	}
	if pos < w.pos || pos+int64(n) > w.pos+int64(w.n) {
		if err := w.fill(pos, n); err != nil {
			return nil, err
		}
	}
	from := int(pos - w.pos)
	return w.buf[from:min(from+n, w.n)], nil
}

// holds reports whether the n bytes at pos are in the buffer and below the limit.
func (w *window) holds(pos, n int64) bool {
	return pos >= w.pos && pos+n <= min(w.pos+int64(w.n), w.limit)
}

func (w *window) fill(pos int64, n int) error {
	want := min(int64(max(n, w.ahead)), int64(len(w.buf)), w.limit-pos)
	got, err := w.f.ReadAt(w.buf[:want], pos)
	w.pos, w.n = pos, got
	if err != nil && !errors.Is(err, io.EOF) {
		w.n = 0
		return err
	}
	return nil
}

// frameAt reports whether a valid frame stands at pos, its base at least expect.
// An error is one of I/O, never of content.
func (w *window) frameAt(pos, expect int64) (h frameHeader, ok bool, err error) {
	b, err := w.at(pos, frameHeaderSize)
	if err != nil {
		return h, false, err
	}
	h, reason := parseFrameHeader(b)
	if reason != "" || h.base < expect || pos+h.size() > w.limit {
		return h, false, nil
	}
	crc := crc32c(0, b[frameCRCFrom:frameCRCTo])
	for p, end := pos+frameHeaderSize, pos+h.size(); p < end; {
		if b, err = w.at(p, int(min(end-p, int64(len(w.buf))))); err != nil {
			return h, false, err
		}
		if len(b) == 0 {
			return h, false, nil // the file is shorter than it was listed
		}
		crc = crc32c(crc, b)
		p += int64(len(b))
	}
	return h, crc == h.crc, nil
}

// payload returns the stored payload of a frame that frameAt accepted at pos: in
// the window, valid until its next call, or in memory of its own when it is larger.
func (w *window) payload(pos int64, h frameHeader) ([]byte, error) {
	if h.compressed <= int64(len(w.buf)) {
		return w.at(pos+frameHeaderSize, int(h.compressed))
	}
	frame := make([]byte, h.size())
	if n, err := w.f.ReadAt(frame, pos); n < len(frame) {
		return nil, fmt.Errorf("read frame of %d bytes at %d: %w", len(frame), pos, err)
	}
	if !frameValid(h, frame) {
		return nil, fmt.Errorf("frame at %d changed while it was read", pos)
	}
	return frame[frameHeaderSize:], nil
}

// resync finds the next valid frame behind the bad bytes at pos: first where the
// header at pos says the next one starts, then byte by byte.
func (w *window) resync(pos, expect int64) (at int64, h frameHeader, ok bool, err error) {
	b, err := w.at(pos, frameHeaderSize)
	if err != nil {
		return 0, h, false, err
	}
	if bad, reason := parseFrameHeader(b); reason == "" {
		if at = pos + bad.size(); at < w.limit {
			if h, ok, err = w.reachable(pos, at, expect); ok || err != nil {
				return at, h, ok, err
			}
		}
	}
	for at = pos + 1; at+frameHeaderSize <= w.limit; {
		b, err := w.at(at, int(min(w.limit-at, int64(w.ahead))))
		if err != nil {
			return 0, h, false, err
		}
		i := bytes.Index(b, []byte{frameMagic0, frameMagic1})
		if i < 0 {
			if len(b) < 2 {
				break
			}
			at += int64(len(b) - 1) // the last byte may be half a magic
			continue
		}
		at += int64(i)
		if h, ok, err = w.reachable(pos, at, expect); ok || err != nil {
			return at, h, ok, err
		}
		at++
	}
	return 0, h, false, nil
}

// reachable reports whether a valid frame at position at may follow the offset
// expected at the damaged position pos.
func (w *window) reachable(pos, at, expect int64) (frameHeader, bool, error) {
	h, ok, err := w.frameAt(at, expect)
	return h, ok && h.base-expect <= jumpMax(at-pos), err
}
