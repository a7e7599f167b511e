package wal

import (
	"fmt"
	"io"

	"github.com/narad-mq/narad/internal/model"
)

// Reader reads durable records in seq order from the files. It keeps no segment
// from being retired. It is not safe for concurrent use; a log may have many.
type Reader struct {
	log *Log
	seq uint64 // next to be returned

	src  source // the segment being read; src.seg is nil before the first read
	at   uint64 // the frame of this seq starts at pos
	pos  int64
	view window
}

// source reads one segment, each time only if it is still part of the log.
type source struct {
	log *Log
	seg *segment
}

// ReadAt implements io.ReaderAt.
func (s *source) ReadAt(b []byte, off int64) (int, error) {
	f, ok := s.log.catalog.pin(s.seg)
	if !ok {
		return 0, ErrCompacted
	}
	n, err := f.ReadAt(b, off)
	if s.log.catalog.unpin(s.seg) {
		wake(s.log.signals.keeper)
	}
	return n, err
}

// NewReader returns a reader that starts at seq from. It opens nothing yet.
func (l *Log) NewReader(from uint64) *Reader {
	return &Reader{log: l, seq: from, src: source{log: l}}
}

// Seq is the seq the next call of Next returns.
func (r *Reader) Seq() uint64 { return r.seq }

// Seek makes seq the next one to be returned, in either direction. It does no I/O;
// the next read gets there over frame headers, from the nearest indexed one.
func (r *Reader) Seek(seq uint64) { r.seq = seq }

// Skip passes over the next record.
func (r *Reader) Skip() { r.seq++ }

// Next returns the next durable record. The body is good until the next call.
// At the durable end it answers io.EOF, and may be called again when Log.Next has
// moved. ErrCompacted: the record was done and its segment is gone; go on with
// Seek(Log.Checkpoint()). An error that matches model.ErrCorrupt names file and
// position. After any error the reader stands where it stood.
func (r *Reader) Next() (seq uint64, body []byte, err error) {
	if r.seq >= r.log.next.Load() {
		return 0, nil, io.EOF
	}
	if err := r.locate(); err != nil {
		return 0, nil, err
	}
	f, b, err := r.frame(true)
	if err != nil {
		return 0, nil, err
	}
	seq = r.seq
	r.seq++
	r.at++
	r.pos += int64(f.size())
	return seq, b[frameHeaderSize:f.size()], nil
}

// locate attaches to the segment of r.seq and moves at and pos to its frame.
func (r *Reader) locate() error {
	if s := r.src.seg; s != nil && !s.holds(r.seq) {
		if err := r.detach(); err != nil {
			return err
		}
	}
	if r.src.seg == nil {
		if err := r.attach(); err != nil {
			return err
		}
	}
	if r.at == r.seq {
		return nil
	}
	if m := r.src.seg.near(r.seq); m.seq > r.at || r.at > r.seq {
		r.at, r.pos = m.seq, m.pos
	}
	for r.at < r.seq {
		f, _, err := r.frame(false)
		if err != nil {
			return err
		}
		r.at++
		r.pos += int64(f.size())
	}
	return nil
}

func (r *Reader) attach() error {
	s := r.log.catalog.find(r.seq)
	if s == nil || s.unread {
		return fmt.Errorf("%w: seq %d", ErrCompacted, r.seq)
	}
	ok, err := r.log.catalog.attach(s)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: seq %d", ErrCompacted, r.seq)
	}
	r.src.seg, r.at, r.pos = s, s.base, headerSize
	return nil
}

func (r *Reader) detach() error {
	s := r.src.seg
	r.src.seg = nil
	r.view.reset()
	if s == nil {
		return nil
	}
	return r.log.catalog.detach(s)
}

// frame reads the frame at r.pos, whose seq is r.at: all of it and verified, or
// only its header.
func (r *Reader) frame(whole bool) (frame, []byte, error) {
	s := r.src.seg
	end := s.end.Load()
	b, err := r.view.at(&r.src, r.pos, frameHeaderSize, end)
	if err != nil {
		return frame{}, nil, err
	}
	f, bad := parseFrameHeader(b)
	if bad == nil && f.seq != r.at {
		bad = fmt.Errorf("seq %d where %d is due", f.seq, r.at)
	}
	if bad == nil && whole {
		if b, err = r.view.at(&r.src, r.pos, f.size(), end); err != nil {
			return frame{}, nil, err
		}
		bad = f.verify(b, s.saltSum)
	}
	if bad != nil {
		r.view.reset() // a transient misread must not stick
		return frame{}, nil, corrupt(s.path, r.pos, bad)
	}
	return f, b, nil
}

// Close gives the segment up. The reader may not be used afterwards.
func (r *Reader) Close() error { return r.detach() }

// corrupt is the error for damage that must not be repaired by guessing.
func corrupt(file string, pos int64, reason error) error {
	return fmt.Errorf("%w frame: %s at position %d: %w", model.ErrCorrupt, file, pos, reason)
}
