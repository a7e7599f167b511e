package wal

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/narad-mq/narad/internal/model"
)

const (
	// stagedMax bounds what is staged and not yet synced, in bytes; past it appends
	// wait before they stage (spec/storage-and-produce section 14.3).
	stagedMax = 64 << 20
	// bufferKept is the largest staging buffer kept for reuse, in bytes.
	bufferKept = 4 << 20
)

// batch is one group commit: the frames of all who staged while the group before it
// was being synced.
type batch struct {
	// buf holds the frames end to end. Staging leaves room for each header and puts
	// only the body's length into it; the committer, who alone knows seq, segment
	// and group, seals it.
	buf     []byte
	entries []Entry // handed on to OnDurable, hence never reused

	done chan struct{} // closed once, when the outcome is known
	err  error         // set before done is closed
}

// stage collects the next batch. Its lock is held for encoding only, never across
// I/O or a wait.
type stage struct {
	mu      sync.Mutex // guards all below
	open    *batch     // being filled
	writing *batch     // taken by the committer; nil between groups
	free    []byte     // the other buffer, while no batch uses it
	staged  int        // bytes of open and writing
	closed  bool
}

func (s *stage) init() { s.open = &batch{done: make(chan struct{})} }

// add stages es, total bytes with their headers, as soon as there is room, and
// returns the batch whose outcome is theirs.
func (s *stage) add(ctx context.Context, es []Entry, total int, failed func() *failure) (*batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, full, err := s.try(es, total, failed)
		if full == nil {
			return b, err
		}
		select {
		case <-full:
		case <-ctx.Done():
		}
	}
}

// try stages es if there is room; otherwise full is closed when a sync has ended.
func (s *stage) try(es []Entry, total int, failed func() *failure) (b *batch, full <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := failed(); f != nil {
		return nil, nil, f.err
	}
	if s.closed {
		return nil, nil, model.ErrShuttingDown
	}
	if s.staged+total > stagedMax {
		if s.writing != nil {
			return nil, s.writing.done, nil
		}
		return nil, s.open.done, nil
	}
	if err := s.open.encode(es, total); err != nil {
		return nil, nil, err
	}
	s.staged += total
	return s.open, nil, nil
}

// encode appends the frames of es to the batch, all or, on an error or a panic of
// an entry, none.
func (b *batch) encode(es []Entry, total int) error {
	bytes, whole := len(b.buf), false
	defer func() {
		if !whole {
			b.buf = b.buf[:bytes]
		}
	}()
	b.buf = slices.Grow(b.buf, total)
	for _, e := range es {
		want := e.Size()
		at := len(b.buf)
		var header [frameHeaderSize]byte
		setBodyLength(header[:], want)
		b.buf = e.AppendTo(append(b.buf, header[:]...))
		if got := len(b.buf) - at - frameHeaderSize; got != want {
			return fmt.Errorf("%w: WAL record announced %d bytes and wrote %d", model.ErrInvalid, want, got)
		}
	}
	if got := len(b.buf) - bytes; got != total {
		return fmt.Errorf("%w: WAL records announced %d bytes and wrote %d", model.ErrInvalid, total, got)
	}
	b.entries = append(b.entries, es...)
	whole = true
	return nil
}

// take hands the open batch to the committer and opens the next one; nil if nothing
// is staged. last reports that nothing will be staged any more.
func (s *stage) take() (b *batch, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open.buf) == 0 {
		return nil, s.closed
	}
	b = s.open
	s.writing = b
	s.open = &batch{buf: s.free[:0], done: make(chan struct{}), entries: make([]Entry, 0, len(b.entries))}
	s.free = nil
	return b, false
}

// finish ends a batch that was taken: its appends return err.
func (s *stage) finish(b *batch, err error) {
	s.mu.Lock()
	s.writing = nil
	s.staged -= len(b.buf)
	if cap(b.buf) <= bufferKept {
		s.free = b.buf[:0]
	}
	s.mu.Unlock()
	b.buf, b.entries, b.err = nil, nil, err
	close(b.done)
}

// close refuses further appends. What is staged is still written.
func (s *stage) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
