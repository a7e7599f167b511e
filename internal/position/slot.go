package position

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/narad-mq/narad/internal/model"
)

// Shape of consumer.ahead; see the package comment. Sizes and places are bytes.
const (
	slotSize   = 4096
	aheadSize  = 2 * slotSize
	slotMagic  = "NCA1"
	slotFormat = 1
	slotHeader = 40                   // where the body is
	slotSum    = slotSize - 4         // where the CRC is
	bodyMax    = slotSum - slotHeader // of runs
	runMin     = 2                    // of the shortest run
	runMax     = 2 * binary.MaxVarintLen64
	flagCut    = uint16(1)       // only the lowest offsets are there
	offsetMax  = int64(1) << 62  // offsets on disk are below it
	seqMax     = uint64(1) << 63 // and so is a slot's seq
)

// slot is one decoded record of consumer.ahead.
type slot struct {
	seq         uint64
	incarnation model.Incarnation
	pos         model.Position
	cut         bool // the set did not fit; pos.Ahead has its lowest offsets
}

// encode lays the slot out in dst, all of it.
func (s slot) encode(dst *[slotSize]byte) {
	clear(dst[:])
	copy(dst[:4], slotMagic)
	be := binary.BigEndian
	be.PutUint16(dst[4:], slotFormat)
	be.PutUint64(dst[8:], s.seq)
	be.PutUint64(dst[16:], uint64(s.pos.Committed))
	id := s.incarnation.Bytes()
	copy(dst[24:32], id[:])

	body, runs := dst[slotHeader:slotHeader:slotSum], 0
	end := s.pos.Committed + 1
	var pair [runMax]byte
	for _, r := range s.pos.Ahead {
		p := binary.AppendUvarint(pair[:0], uint64(r.Start-end))
		p = binary.AppendUvarint(p, uint64(r.End-r.Start))
		if len(body)+len(p) > bodyMax {
			s.cut = true
			break
		}
		body = append(body, p...)
		end = r.End
		runs++
	}
	if s.cut {
		be.PutUint16(dst[6:], flagCut)
	}
	be.PutUint32(dst[32:], uint32(runs))
	be.PutUint32(dst[36:], uint32(len(body)))
	be.PutUint32(dst[slotSum:], slotCRC(dst[:]))
}

// decodeSlot reads one slot. written is false when there are only zeros, which
// is how an unused one looks; any other invalid content is an error that matches
// model.ErrCorrupt. It allocates at most one run per two bytes of body.
func decodeSlot(b []byte) (s slot, written bool, err error) {
	if bytes.Count(b, []byte{0}) == len(b) {
		return slot{}, false, nil
	}
	if len(b) != slotSize {
		return slot{}, true, corrupt("slot of %d bytes, want %d", len(b), slotSize)
	}
	be := binary.BigEndian
	if string(b[:4]) != slotMagic {
		return slot{}, true, corrupt("slot magic %q, want %q", b[:4], slotMagic)
	}
	if got, want := be.Uint32(b[slotSum:]), slotCRC(b); got != want {
		return slot{}, true, corrupt("slot CRC %08x, content has %08x", got, want)
	}
	if f := be.Uint16(b[4:]); f != slotFormat {
		return slot{}, true, corrupt("slot format %d, want %d", f, slotFormat)
	}
	flags := be.Uint16(b[6:])
	if flags&^flagCut != 0 {
		return slot{}, true, corrupt("slot flags %#x, known are %#x", flags, flagCut)
	}
	s = slot{
		seq:         be.Uint64(b[8:]),
		incarnation: model.IncarnationFromBytes([8]byte(b[24:32])),
		pos:         model.Position{Committed: int64(be.Uint64(b[16:]))},
		cut:         flags&flagCut != 0,
	}
	if s.seq >= seqMax || s.pos.Committed < -1 || s.pos.Committed >= offsetMax {
		return slot{}, true, corrupt("slot seq %d, committed %d: out of range", s.seq, s.pos.Committed)
	}
	runs, body := be.Uint32(b[32:]), be.Uint32(b[36:])
	if body > bodyMax || runs > body/runMin {
		return slot{}, true, corrupt("slot with %d runs in %d bytes, at most %d bytes", runs, body, bodyMax)
	}
	s.pos.Ahead, err = decodeRuns(b[slotHeader:slotHeader+body], int(runs), s.pos.Committed+1)
	if err != nil {
		return slot{}, true, err
	}
	return s, true, nil
}

func decodeRuns(b []byte, runs int, end int64) ([]model.Run, error) {
	if runs == 0 && len(b) == 0 {
		return nil, nil
	}
	out := make([]model.Run, 0, runs)
	for i := range runs {
		gap, n := binary.Uvarint(b)
		length, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 {
			return nil, corrupt("run %d of %d does not decode", i, runs)
		}
		room := uint64(offsetMax - end)
		if gap == 0 || length == 0 || gap > room || length > room-gap {
			return nil, corrupt("run %d of %d: gap %d, length %d after offset %d", i, runs, gap, length, end)
		}
		r := model.Run{Start: end + int64(gap)}
		r.End = r.Start + int64(length)
		out = append(out, r)
		end = r.End
		b = b[n+m:]
	}
	if len(b) > 0 {
		return nil, corrupt("%d bytes behind the last of %d runs", len(b), runs)
	}
	return out, nil
}

func slotCRC(b []byte) uint32 {
	return crc32.Checksum(b[:slotSum], crc32.MakeTable(crc32.Castagnoli))
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{model.ErrCorrupt}, args...)...)
}
