package wal

import (
	"errors"
	"io"
)

const (
	// windowSize is what a window reads ahead, in bytes.
	windowSize = 256 << 10
	// windowMax bounds its buffer: the largest frame, whole.
	windowMax = frameHeaderSize + BodyMax
)

// window is a read-ahead view of a file up to a limit, through one reused buffer.
type window struct {
	buf []byte
	off int64 // file position of buf[0]
}

// at returns n bytes of src at pos, fewer if limit comes first. The bytes are good
// until the next call. n is at most windowMax.
func (w *window) at(src io.ReaderAt, pos int64, n int, limit int64) ([]byte, error) {
	if rest := limit - pos; rest < int64(n) {
		n = int(max(rest, 0))
	}
	if lo := pos - w.off; lo >= 0 && lo+int64(n) <= int64(len(w.buf)) {
		return w.buf[lo : lo+int64(n)], nil
	}
	want := int(min(max(int64(n), windowSize), limit-pos))
	if cap(w.buf) < want {
		w.buf = make([]byte, max(want, windowSize))
	}
	w.buf, w.off = w.buf[:want], pos
	got, err := src.ReadAt(w.buf, pos)
	w.buf = w.buf[:got]
	if err != nil && !errors.Is(err, io.EOF) {
		w.reset()
		return nil, err
	}
	return w.buf[:min(n, got)], nil
}

// from returns at least n bytes of src at pos, fewer if limit comes first, and with
// them all that is buffered behind; like at, it reads only what is not there yet.
func (w *window) from(src io.ReaderAt, pos int64, n int, limit int64) ([]byte, error) {
	if b, err := w.at(src, pos, n, limit); err != nil || len(b) < n {
		return b, err
	}
	b := w.buf[pos-w.off:]
	return b[:min(int64(len(b)), limit-pos)], nil
}

// reset forgets what was read; the buffer is kept.
func (w *window) reset() { w.buf, w.off = w.buf[:0], 0 }
