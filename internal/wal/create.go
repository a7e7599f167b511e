package wal

import (
	"crypto/rand"
	"errors"
	"os"
	"sync"

	"github.com/narad-mq/narad/internal/disk"
)

// newSegmentName is the file a new segment is built in before it gets its name.
const newSegmentName = "new-segment.tmp"

// spareNames are the names of retired segments that wait for reuse; there are never
// more than these on disk.
var spareNames = [...]string{"next-segment.prep", "next-segment-2.prep"}

// spare is a retired segment file under one of spareNames.
type spare struct {
	name string
	size int64
}

// spares holds what the keeper retired until the committer takes it.
type spares struct {
	mu    sync.Mutex // guards all below
	free  []string   // names nobody uses
	ready []spare    // files whose rename is durable
}

// reserve hands out a free name; "" if all are in use.
func (s *spares) reserve() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return ""
	}
	name := s.free[0]
	s.free = s.free[1:]
	return name
}

// release gives back a name whose file is gone.
func (s *spares) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, name)
}

// put offers a file for reuse.
func (s *spares) put(sp spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, sp)
}

// take removes a file from the offer; its name stays in use until released.
func (s *spares) take() (spare, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return spare{}, false
	}
	sp := s.ready[0]
	s.ready = s.ready[1:]
	return sp, true
}

// bytes is the length of all spares together.
func (s *spares) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.ready {
		n += sp.size
	}
	return n
}

// clear removes the spares from disk.
func (s *spares) clear(c *catalog) (err error) {
	for {
		sp, ok := s.take()
		if !ok {
			return err
		}
		err = errors.Join(err, c.remove(c.pathOf(sp.name)))
		s.release(sp.name)
	}
}

// create makes the segment that starts at base, from a spare if there is one. It
// is built under another name and synced before it gets its own, so a crash never
// leaves a segment without a valid header; and it has its name durably before a
// frame goes into it. Nothing is latched by a failure, but for a failed sync of the
// directory: what the volume holds is unknown then.
func (l *Log) create(base uint64) (tail, error) {
	sp, reused := l.spares.take()
	if !reused {
		sp.name = newSegmentName
	}
	from, to := l.catalog.pathOf(sp.name), l.catalog.pathOf(segmentName(base))
	h := segmentHeader{base: base}
	rand.Read(h.salt[:])
	size, err := l.stamp(from, h, sp.size)
	if err == nil {
		err = l.opt.FS.Rename(from, to)
	}
	if err != nil {
		err = errors.Join(err, l.catalog.remove(from))
	}
	if reused {
		l.spares.release(sp.name)
	}
	if err != nil {
		return tail{}, err
	}
	if err := disk.SyncDir(l.opt.FS, l.opt.Dir); err != nil {
		return tail{}, l.latch(err)
	}
	f, err := l.opt.FS.Open(to, os.O_RDWR)
	if err != nil {
		return tail{}, err
	}
	s := &segment{base: base, path: to, saltSum: h.saltSum()}
	s.end.Store(headerSize)
	s.size.Store(size)
	return tail{seg: s, file: f, pos: headerSize, ready: size, growing: l.opt.Spare == SpareNone}, nil
}

// stamp writes a new header over the old one of a file of size bytes, 0 if it is
// to be created, and syncs it. A new file gets its first zeros at once.
func (l *Log) stamp(name string, h segmentHeader, size int64) (int64, error) {
	flag := os.O_RDWR
	header := h.encode()
	b := header[:]
	if size == 0 {
		flag |= os.O_CREATE | os.O_TRUNC
		if zeros := min(zeroStep, l.opt.SegmentBytes) - headerSize; l.opt.Spare != SpareNone && zeros > 0 {
			b = append(b, l.zeros[:zeros]...)
		}
	}
	f, err := l.opt.FS.Open(name, flag)
	if err != nil {
		return 0, err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	return max(size, int64(len(b))), errors.Join(err, f.Close())
}

// compact retires every segment that lies wholly below the synced checkpoint,
// oldest first, each durably gone before the next, so that what a crash leaves has
// no holes. Keeper's own.
func (l *Log) compact() error {
	for l.Failed() == nil {
		s, err := l.catalog.retire(l.check.synced)
		if s == nil || err != nil {
			return err
		}
		if err := l.discard(s); err != nil {
			return err
		}
		l.catalog.leaving = nil
	}
	return nil
}

// discard makes a spare of a retired segment, or removes it.
func (l *Log) discard(s *segment) error {
	name := ""
	if l.opt.Spare == SpareRecycle {
		name = l.spares.reserve()
	}
	var err error
	if name == "" {
		err = l.catalog.remove(s.path)
	} else if err = l.opt.FS.Rename(s.path, l.catalog.pathOf(name)); err != nil {
		l.spares.release(name)
	}
	if err != nil {
		return err
	}
	if err := disk.SyncDir(l.opt.FS, l.opt.Dir); err != nil {
		return l.latch(err)
	}
	if name != "" {
		l.spares.put(spare{name, s.size.Load()})
	}
	return nil
}
