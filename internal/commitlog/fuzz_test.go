package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

func goldenFrame() []byte {
	b := make([]byte, frameHeaderSize)
	b = appendRecord(b, &Record{Key: []byte("k1"), Payload: []byte(`{"n":1}`), CommittedAt: 1700000000000})
	n := int64(len(b) - frameHeaderSize)
	putFrameHeader(b, frameHeader{count: 1, uncompressed: n, compressed: n})
	return b
}

// FuzzFrame: any bytes, with the CRC made to fit so that decoding is reached, give
// records or an error, bounded by the input.
func FuzzFrame(f *testing.F) {
	f.Add(goldenFrame())
	zipped, err := NewCodec("zstd", "fastest")
	if err != nil {
		f.Fatal(err)
	}
	raw := appendRecords(nil, records(0, 20, 100))
	z, codec := zipped.encode(make([]byte, frameHeaderSize), raw)
	putFrameHeader(z, frameHeader{codec: codec, count: 20, uncompressed: int64(len(raw)), compressed: int64(len(z) - frameHeaderSize)})
	f.Add(z)
	f.Add(bytes.Repeat([]byte{0}, 64))
	l := &Log{opt: Options{Codec: zipped}.withDefaults()}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHeaderSize {
			return
		}
		h, reason := parseFrameHeader(b)
		if reason != "" || h.size() > int64(len(b)) || h.uncompressed > 1<<24 {
			return
		}
		frame := bytes.Clone(b[:h.size()])
		putFrameHeader(frame, h)
		w := newWindow(bytes.NewReader(frame), int64(len(frame)), readAheadBytes, make([]byte, windowBytes))
		got, ok, err := w.frameAt(0, 0)
		if err != nil || !ok || got.base != h.base {
			t.Fatalf("a frame with a fitting CRC was refused: %v %v", ok, err)
		}
		recs, err := l.decode(w, []framed{{got, 0}})
		if err != nil {
			if !errors.Is(err, model.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if len(recs) != int(h.count) {
			t.Fatalf("%d records of %d", len(recs), h.count)
		}
	})
}

// FuzzEnvelope: what decodes encodes to a record that decodes to the same.
func FuzzEnvelope(f *testing.F) {
	f.Add(goldenFrame()[frameHeaderSize+recordLenSize:])
	f.Add([]byte{2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := decodeEnvelope(5, b)
		if s.Offset != 5 {
			t.Fatal("offset lost")
		}
		if s.damaged {
			return
		}
		r := Record{Key: s.Key, Payload: s.Payload, CommittedAt: s.CommittedAt}
		out := appendRecord(nil, &r)
		if n := binary.BigEndian.Uint32(out); int64(n) != envelopeSize(&r) || int(n) != len(out)-recordLenSize {
			t.Fatalf("length %d of %d bytes", n, len(out))
		}
		again := decodeEnvelope(5, out[recordLenSize:])
		if again.damaged || !bytes.Equal(again.Key, s.Key) || !bytes.Equal(again.Payload, s.Payload) || again.CommittedAt != s.CommittedAt {
			t.Fatalf("%+v became %+v", s, again)
		}
	})
}

// FuzzRecover: whatever the active segment and the hwm file hold, the log opens,
// serves no byte that is not in a valid frame, takes new records, and opens again
// to the same state.
func FuzzRecover(f *testing.F) {
	one := goldenFrame()
	f.Add(one, []byte{})
	f.Add(append(bytes.Clone(one), make([]byte, 100)...), []byte("NHW1"))
	torn := append(bytes.Clone(one), one[:30]...)
	f.Add(torn, []byte{})
	second := bytes.Clone(one)
	binary.BigEndian.PutUint64(second[7:], 3)
	putFrameHeader(second, frameHeader{count: 1, base: 3, uncompressed: 23, compressed: 23})
	f.Add(append(append(bytes.Clone(one), "garbage"...), second...), []byte{})
	fact := disk.EncodeFact(hwmMagic(), 9)
	f.Add(bytes.Clone(one), fact[:])
	f.Fuzz(func(t *testing.T, segment, hwm []byte) {
		fsys := newVolume(1)
		if err := disk.MkdirDurable(fsys, testDir); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{segmentName(0): segment, hwmName: hwm} {
			if err := disk.WriteFileAtomic(fsys, path.Join(testDir, name), content); err != nil {
				t.Fatal(err)
			}
		}
		l := openTest(t, fsys)
		for o := range min(l.HighWatermark(), 100) {
			if _, err := l.Read(o); err != nil && !errors.Is(err, model.ErrUnreadable) {
				t.Fatalf("read %d: %v", o, err)
			}
		}
		if l.NextOffset() >= offsetMax-10 {
			closeLog(t, l)
			return
		}
		next := l.NextOffset()
		recs := []Record{{Payload: []byte("new")}, {Payload: []byte("newer")}}
		if first, err := l.Commit(recs); err != nil || first != next {
			t.Fatalf("commit at %d: %v, want %d", first, err, next)
		}
		for range 2 {
			if l.HighWatermark() != next+2 {
				t.Fatalf("H=%d, want %d", l.HighWatermark(), next+2)
			}
			if s, err := l.Read(next + 1); err != nil || string(s.Payload) != "newer" {
				t.Fatalf("read back: %q %v", s.Payload, err)
			}
			closeLog(t, l)
			l = openTest(t, fsys)
		}
		closeLog(t, l)
	})
}
