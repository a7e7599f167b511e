package position

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/model"
)

const testInc = model.Incarnation("00112233aabbccdd")

var goldenPosition = model.Position{Committed: 41, Ahead: []model.Run{{Start: 44, End: 46}, {Start: 48, End: 49}}}

// TestGoldenSlot is the vector of spec/storage-and-produce section 12.2.
func TestGoldenSlot(t *testing.T) {
	var b [slotSize]byte
	slot{seq: 7, incarnation: testInc, pos: goldenPosition}.encode(&b)
	head := "4e434131" + "0001" + "0000" + "0000000000000007" + "0000000000000029" +
		"00112233aabbccdd" + "00000002" + "00000004" + "02020201"
	if got := hex.EncodeToString(b[:44]); got != head {
		t.Errorf("head\n%s, want\n%s", got, head)
	}
	if got := hex.EncodeToString(b[slotSum:]); got != "47730a8e" {
		t.Errorf("CRC %s", got)
	}
	for i, c := range b[44:slotSum] {
		if c != 0 {
			t.Fatalf("byte %d behind the body is %#x", i, c)
		}
	}
	s, written, err := decodeSlot(b[:])
	if err != nil || !written || s.seq != 7 || s.incarnation != testInc || s.cut || !equal(s.pos, goldenPosition) {
		t.Errorf("decoded %+v %v %v", s, written, err)
	}
}

func equal(a, b model.Position) bool {
	return a.Committed == b.Committed && slices.Equal(a.Ahead, b.Ahead)
}

// encoded is a slot with one field damaged and the CRC made right again.
func encoded(s slot, damage func(b []byte)) []byte {
	var b [slotSize]byte
	s.encode(&b)
	damage(b[:])
	binary.BigEndian.PutUint32(b[slotSum:], slotCRC(b[:]))
	return b[:]
}

func TestSlotRefusals(t *testing.T) {
	be := binary.BigEndian
	huge := binary.AppendUvarint(nil, 1<<63)
	cases := map[string]func(b []byte){
		"magic":               func(b []byte) { b[0] = 'X' },
		"format 0":            func(b []byte) { be.PutUint16(b[4:], 0) },
		"format 2":            func(b []byte) { be.PutUint16(b[4:], 2) },
		"unknown flag":        func(b []byte) { be.PutUint16(b[6:], 2) },
		"seq too large":       func(b []byte) { be.PutUint64(b[8:], seqMax) },
		"committed below -1":  func(b []byte) { be.PutUint64(b[16:], ^uint64(1)) },
		"committed too large": func(b []byte) { be.PutUint64(b[16:], uint64(offsetMax)) },
		"more runs than body": func(b []byte) { be.PutUint32(b[32:], 3) },
		"runs beyond any":     func(b []byte) { be.PutUint32(b[32:], 1<<31) },
		"fewer runs":          func(b []byte) { be.PutUint32(b[32:], 1) },
		"body too long":       func(b []byte) { be.PutUint32(b[36:], bodyMax+1) },
		"body huge":           func(b []byte) { be.PutUint32(b[36:], 1<<32-1) },
		"no runs, some body":  func(b []byte) { be.PutUint32(b[32:], 0) },
		"gap 0":               func(b []byte) { b[40] = 0 },
		"length 0":            func(b []byte) { b[41] = 0 },
		"varint unfinished":   func(b []byte) { b[43] = 0x80 },
		"gap overflows":       func(b []byte) { copy(b[40:], huge); be.PutUint32(b[36:], 40) },
		"length overflows":    func(b []byte) { copy(b[41:], huge); be.PutUint32(b[36:], 40) },
	}
	for name, damage := range cases {
		b := encoded(slot{seq: 7, incarnation: testInc, pos: goldenPosition}, damage)
		if s, written, err := decodeSlot(b); !errors.Is(err, model.ErrCorrupt) || !written {
			t.Errorf("%s: %+v %v %v", name, s, written, err)
		}
	}
	var b [slotSize]byte
	slot{seq: 1, pos: goldenPosition}.encode(&b)
	for _, n := range []int{1, 40, slotSize - 1} {
		if _, _, err := decodeSlot(b[:n]); !errors.Is(err, model.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for i := range b {
		b[i] ^= 0x10
		if _, _, err := decodeSlot(b[:]); !errors.Is(err, model.ErrCorrupt) {
			t.Fatalf("bit flipped in byte %d: %v", i, err)
		}
		b[i] ^= 0x10
	}
	for _, n := range []int{0, 9, slotSize} {
		if _, written, err := decodeSlot(make([]byte, n)); written || err != nil {
			t.Errorf("%d zeros: written %v, %v", n, written, err)
		}
	}
}

// TestSlotLimits: the default caps always fit; a larger set keeps its lowest offsets.
func TestSlotLimits(t *testing.T) {
	runs := func(n int, gap, length int64) (out []model.Run) {
		at := int64(0)
		for range n {
			at += gap
			out = append(out, model.Run{Start: at, End: at + length})
			at += length
		}
		return out
	}
	for _, c := range []struct {
		name       string
		n          int
		gap, leng  int64
		kept       int
		cut        bool
		wantLength int
	}{
		{"default caps", 1025, 1, 2, 1025, false, 2050},
		{"exactly full", bodyMax / 2, 1, 1, bodyMax / 2, false, bodyMax},
		{"one run too many", bodyMax/2 + 1, 1, 1, bodyMax / 2, true, bodyMax},
		{"wide runs", 5000, 300, 300, bodyMax / 4, true, bodyMax},
	} {
		pos := model.Position{Committed: -1, Ahead: runs(c.n, c.gap, c.leng)}
		var b [slotSize]byte
		slot{seq: 1, pos: pos}.encode(&b)
		s, _, err := decodeSlot(b[:])
		if err != nil || s.cut != c.cut || !slices.Equal(s.pos.Ahead, pos.Ahead[:c.kept]) {
			t.Errorf("%s: %d runs kept, cut %v, %v", c.name, len(s.pos.Ahead), s.cut, err)
		}
		if n := binary.BigEndian.Uint32(b[36:]); int(n) != c.wantLength {
			t.Errorf("%s: body of %d bytes, want %d", c.name, n, c.wantLength)
		}
	}
}

func drawPosition(t *rapid.T) model.Position {
	pos := model.Position{Committed: rapid.Int64Range(-1, offsetMax/2).Draw(t, "committed")}
	at := pos.Committed + 1
	for range rapid.IntRange(0, 40).Draw(t, "runs") {
		at += rapid.Int64Range(1, 1<<40).Draw(t, "gap")
		end := at + rapid.Int64Range(1, 1<<40).Draw(t, "length")
		pos.Ahead = append(pos.Ahead, model.Run{Start: at, End: end})
		at = end
	}
	return pos
}

func TestSlotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := slot{seq: rapid.Uint64Range(0, seqMax-1).Draw(t, "seq"), incarnation: testInc, pos: drawPosition(t)}
		var b [slotSize]byte
		in.encode(&b)
		out, written, err := decodeSlot(b[:])
		if err != nil || !written || out.seq != in.seq || out.incarnation != testInc || !equal(out.pos, in.pos) {
			t.Fatalf("%+v came back as %+v, %v", in, out, err)
		}
	})
}

// FuzzSlot: any bytes, with the CRC right or not, decode to a valid position or to
// model.ErrCorrupt, and what decodes survives another round.
func FuzzSlot(f *testing.F) {
	var b [slotSize]byte
	slot{seq: 7, incarnation: testInc, pos: goldenPosition}.encode(&b)
	f.Add(b[:slotHeader+4], true)
	f.Add(b[:], false)
	f.Add([]byte{}, true)
	f.Add(b[:100], false)
	f.Fuzz(func(t *testing.T, in []byte, sum bool) {
		if sum { // let the mutator behind the CRC
			full := make([]byte, slotSize)
			copy(full[:slotSum], in)
			binary.BigEndian.PutUint32(full[slotSum:], slotCRC(full))
			in = full
		}
		s, written, err := decodeSlot(in)
		if err != nil {
			if !errors.Is(err, model.ErrCorrupt) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if !written {
			return
		}
		at := s.pos.Committed + 1
		for _, r := range s.pos.Ahead {
			if r.Start <= at || r.End <= r.Start || r.End > offsetMax {
				t.Fatalf("run %+v after %d", r, at)
			}
			at = r.End
		}
		var again [slotSize]byte
		s.encode(&again)
		if s2, _, err := decodeSlot(again[:]); err != nil || !equal(s2.pos, s.pos) || s2.seq != s.seq {
			t.Fatalf("second round: %+v, %v", s2, err)
		}
	})
}
