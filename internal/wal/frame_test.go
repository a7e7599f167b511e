package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
)

// vectorBody is the record of spec/storage-and-produce section 14.2.
func vectorBody() blob {
	field := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	b := field([]byte{2}, "t1")
	b = field(b, "00112233aabbccdd")
	b = field(b, "k1")
	b = binary.BigEndian.AppendUint32(b, 2)
	b = binary.BigEndian.AppendUint64(b, 1700000000000)
	return field(b, `{"n":1}`)
}

func vectorHeader(base uint64) segmentHeader {
	return segmentHeader{salt: [8]byte{0, 1, 2, 3, 4, 5, 6, 7}, base: base}
}

// frameBytes is a sealed frame with the vector's salt.
func frameBytes(body []byte, seq uint64, g group) []byte {
	b := make([]byte, frameHeaderSize, frameHeaderSize+len(body))
	setBodyLength(b, len(body))
	b = append(b, body...)
	sealFrame(b, vectorHeader(1).saltSum(), seq, g)
	return b
}

// TestGoldenVector pins header and frame to the bytes of section 14.2.
func TestGoldenVector(t *testing.T) {
	h := vectorHeader(1).encode()
	if got, want := hex.EncodeToString(h[:]), "4e57534547303031"+"0001020304050607"+"0000000000000001"+"00000000"+"8b811607"; got != want {
		t.Errorf("segment header\n%s, want\n%s", got, want)
	}
	body := vectorBody()
	if len(body) != 56 {
		t.Fatalf("vector body of %d bytes, want 56", len(body))
	}
	f := frameBytes(body, 1, group{})
	if got, want := hex.EncodeToString(f[:frameHeaderSize]), "4e574631"+"0000000000000001"+"00000038"+"df5a1087"; got != want {
		t.Errorf("frame header\n%s, want\n%s", got, want)
	}
	if !bytes.Equal(f[frameHeaderSize:], body) {
		t.Error("the body is not stored as it is")
	}
}

func TestGroupRoundTrip(t *testing.T) {
	for _, g := range []group{{}, {number: 1}, {number: groupMask}, {number: 300, more: true}, {more: true}} {
		b := frameBytes(make([]byte, 10), 77, g)
		f, err := parseFrameHeader(b)
		if err != nil || f.seq != 77 || f.body != 10 || f.group != g {
			t.Errorf("group %+v: decoded %+v, %v", g, f, err)
		}
		if err := f.verify(b, vectorHeader(1).saltSum()); err != nil {
			t.Errorf("group %+v: %v", g, err)
		}
	}
	if got := (group{number: groupMask}).following(); got != 0 {
		t.Errorf("group after 511: %d, want 0", got)
	}
	if got := (group{number: 5, more: true}).following(); got != 5 {
		t.Errorf("group after an unfinished 5: %d, want 5", got)
	}
}

// TestLengthBounds checks that a length is refused before anything is allocated
// for it (F22).
func TestLengthBounds(t *testing.T) {
	for _, c := range []struct {
		word uint32
		want error
	}{{0, errFrameLength}, {1, nil}, {BodyMax, nil}, {BodyMax + 1, errFrameLength}, {lengthMask, errFrameLength}, {1 << 31, errFrameLength}, {1<<31 | 5, nil}} {
		b := frameBytes(make([]byte, 10), 1, group{})
		binary.BigEndian.PutUint32(b[12:], c.word)
		if _, err := parseFrameHeader(b); !errors.Is(err, c.want) {
			t.Errorf("length word %#x: %v, want %v", c.word, err, c.want)
		}
	}
}

// TestEveryFlippedBit flips each bit of a frame and of a header: none may pass (F20).
func TestEveryFlippedBit(t *testing.T) {
	sum := vectorHeader(1).saltSum()
	for bit := range (frameHeaderSize + 56) * 8 {
		b := frameBytes(vectorBody(), 1, group{})
		b[bit/8] ^= 1 << (bit % 8)
		if f, err := parseFrameHeader(b); err == nil && f.verify(b, sum) == nil {
			t.Errorf("frame with bit %d flipped passes", bit)
		}
	}
	for bit := range headerSize * 8 {
		b := vectorHeader(1).encode()
		b[bit/8] ^= 1 << (bit % 8)
		if _, ok := decodeHeader(b[:]); ok {
			t.Errorf("segment header with bit %d flipped passes", bit)
		}
	}
}

func TestSegmentNames(t *testing.T) {
	if got := segmentName(7); got != "00000000000000000007.wal" {
		t.Errorf("name of base 7: %s", got)
	}
	for name, want := range map[string]bool{
		"00000000000000000007.wal": true, "18446744073709551615.wal": true, "18446744073709551616.wal": false,
		"7.wal": false, "0000000000000000007a.wal": false, "+0000000000000000007.wal": false, "00000000000000000007.log": false, ".wal": false,
	} {
		if _, ok := parseSegmentName(name); ok != want {
			t.Errorf("%q taken for a segment: %v, want %v", name, ok, want)
		}
	}
}

// FuzzScan runs recovery's scanner over arbitrary bytes after a valid header: it
// must not panic, must stay within the file, and must accept only frames in order.
func FuzzScan(f *testing.F) {
	h := vectorHeader(1).encode()
	one := frameBytes(vectorBody(), 1, group{})
	two := frameBytes(rec(2, 30), 2, group{number: 1, more: true})
	three := frameBytes(rec(3, 30), 3, group{number: 1})
	f.Add([]byte{}, true)
	f.Add(one, true)
	f.Add(bytes.Join([][]byte{one, two, three}, nil), true)
	f.Add(bytes.Join([][]byte{one, two[:30], make([]byte, 20), three}, nil), true)
	f.Add(bytes.Join([][]byte{h[:], one}, nil), false)
	f.Add(append(make([]byte, 40), one...), false)
	f.Fuzz(func(t *testing.T, b []byte, started bool) {
		if started {
			b = append(h[:len(h):len(h)], b...)
		}
		s := scan{src: bytes.NewReader(b), seg: &segment{base: 1, path: "x"}, size: int64(len(b))}
		at, err := s.newest(discard)
		if cap(s.view.buf) > windowMax {
			t.Fatalf("window of %d bytes, at most %d", cap(s.view.buf), windowMax)
		}
		if err != nil {
			return
		}
		if at.end > max(int64(len(b)), headerSize) || at.group > at.end {
			t.Fatalf("end %d, group %d in %d bytes", at.end, at.group, len(b))
		}
		again := scan{src: bytes.NewReader(b), seg: &segment{base: 1, path: "x"}, size: int64(len(b))}
		if at.next > 1 {
			if _, _, _, err := again.header(); err != nil {
				t.Fatal(err)
			}
			if ran, _, err := again.run(at.next); err != nil || ran.lastSegment != at {
				t.Fatalf("second scan %+v, %v; first %+v", ran, err, at)
			}
		}
	})
}
