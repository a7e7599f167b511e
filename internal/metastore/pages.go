package metastore

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// What this file knows of bbolt's format, whose integers have the machine's order.
const (
	pageHeaderSize   = 16 // id u64, flags u16, count u16, overflow u32
	pageElementSize  = 16 // branch: pos, ksize u32, child u64; leaf: flags, pos, ksize, vsize u32
	pageBranch       = 0x01
	pageLeaf         = 0x02
	leafBucket       = 0x01 // the value is a bucket
	bucketHeaderSize = 16   // root page u64, 0 = the bucket's only page follows; sequence u64
	pagesFirst       = 2    // the two meta pages are no one's child
)

// pageWalk checks the shape of a bbolt file: that every page reachable from the root
// is a page, is inside the file, is reached once, and keeps its elements inside itself.
// bbolt takes all of that for granted: it faults on pages that are missing and follows
// a circle until memory runs out. What the elements hold is for others to judge.
type pageWalk struct {
	file  io.ReaderAt
	size  int64  // of a page
	pages uint64 // in use, from the first
	seen  []bool // by page
	todo  []uint64
	head  [pageHeaderSize]byte
	buf   []byte
}

// checkPages walks the file of a transaction.
func checkPages(path string, tx *bbolt.Tx) error {
	f, err := volume.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size < tx.Size() {
		return fmt.Errorf("%w: %d bytes long, and it uses %d", model.ErrCorrupt, info.Size, tx.Size())
	}
	w := pageWalk{file: f, size: int64(tx.DB().Info().PageSize)}
	w.pages = uint64(tx.Size() / w.size)
	w.seen = make([]bool, w.pages)
	w.todo = append(w.todo, uint64(tx.Cursor().Bucket().Root()))
	for len(w.todo) > 0 {
		id := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.visit(id); err != nil {
			return fmt.Errorf("%w: page %d of %d: %w", model.ErrCorrupt, id, w.pages, err)
		}
	}
	return nil
}

// visit reads one page with its overflow and notes its children.
func (w *pageWalk) visit(id uint64) error {
	if id < pagesFirst || id >= w.pages {
		return fmt.Errorf("not in the file")
	}
	h := w.head[:]
	if _, err := w.file.ReadAt(h, int64(id)*w.size); err != nil {
		return err
	}
	run := uint64(binary.NativeEndian.Uint32(h[12:])) + 1
	if got := binary.NativeEndian.Uint64(h); got != id || run > w.pages-id {
		return fmt.Errorf("says that it is page %d and %d long", got, run)
	}
	for p := id; p < id+run; p++ {
		if w.seen[p] {
			return fmt.Errorf("used twice")
		}
		w.seen[p] = true
	}
	n := int64(run) * w.size
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, n)
	}
	b := w.buf[:n]
	if _, err := w.file.ReadAt(b, int64(id)*w.size); err != nil {
		return err
	}
	return w.elements(b)
}

// elements checks that a page's elements lie inside it.
func (w *pageWalk) elements(b []byte) error {
	if len(b) < pageHeaderSize {
		return fmt.Errorf("%d bytes", len(b))
	}
	flags, count := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if flags != pageBranch && flags != pageLeaf || flags == pageBranch && count == 0 {
		return fmt.Errorf("flags %#x with %d elements", flags, count)
	}
	if pageHeaderSize+count*pageElementSize > len(b) {
		return fmt.Errorf("%d elements in %d bytes", count, len(b))
	}
	for i := range count {
		at := pageHeaderSize + i*pageElementSize
		e := b[at : at+pageElementSize]
		if flags == pageBranch {
			if !inside(b, at, e[0:], e[4:]) {
				return fmt.Errorf("element %d lies outside", i)
			}
			w.todo = append(w.todo, binary.NativeEndian.Uint64(e[8:]))
			continue
		}
		if !inside(b, at, e[4:], e[8:], e[12:]) {
			return fmt.Errorf("element %d lies outside", i)
		}
		if binary.NativeEndian.Uint32(e)&leafBucket != 0 {
			if err := w.bucket(value(b, at, e)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	}
	return nil
}

// inside reports whether a position, relative to the element, and the lengths behind
// it stay inside the page.
func inside(b []byte, at int, fields ...[]byte) bool {
	end := int64(at)
	for _, f := range fields {
		end += int64(binary.NativeEndian.Uint32(f))
	}
	return end <= int64(len(b))
}

// value is a leaf element's value, which inside has vouched for.
func value(b []byte, at int, e []byte) []byte {
	start := at + int(binary.NativeEndian.Uint32(e[4:])) + int(binary.NativeEndian.Uint32(e[8:]))
	return b[start : start+int(binary.NativeEndian.Uint32(e[12:]))]
}

// bucket checks the value that stands for a bucket: a root page, or its only page.
func (w *pageWalk) bucket(v []byte) error {
	if len(v) < bucketHeaderSize {
		return fmt.Errorf("bucket of %d bytes", len(v))
	}
	if root := binary.NativeEndian.Uint64(v); root != 0 {
		w.todo = append(w.todo, root)
		return nil
	}
	page := v[bucketHeaderSize:]
	if len(page) < pageHeaderSize || binary.NativeEndian.Uint16(page[8:]) != pageLeaf {
		return fmt.Errorf("bucket without a page")
	}
	return w.elements(page)
}
