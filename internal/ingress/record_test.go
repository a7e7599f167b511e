package ingress

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/model"
)

func vectorRecord() *record {
	return &record{topic: "t1", partition: 2, Record: model.Record{
		Key: []byte("k1"), Payload: []byte(`{"n":1}`), AcceptedAt: 1700000000000, Incarnation: idA,
	}}
}

const vectorHex = "02" + "00000002" + "7431" + "00000010" + "30303131323233336161626263636464" +
	"00000002" + "6b31" + "00000002" + "0000018bcfe56800" + "00000007" + "7b226e223a317d"

// The vector of spec/storage-and-produce section 14.2: the body byte by byte, and
// through the frame's checksum.
func TestRecordVector(t *testing.T) {
	body := vectorRecord().AppendTo(nil)
	if got := hex.EncodeToString(body); got != vectorHex {
		t.Fatalf("body\n%s, want\n%s", got, vectorHex)
	}
	if len(body) != 56 || vectorRecord().Size() != 56 {
		t.Fatalf("body of %d bytes, Size %d, want 56", len(body), vectorRecord().Size())
	}
	covered := binary.BigEndian.AppendUint64([]byte{0, 1, 2, 3, 4, 5, 6, 7}, 1) // salt, seq
	covered = binary.BigEndian.AppendUint32(covered, uint32(len(body)))
	sum := crc32.Checksum(append(covered, body...), crc32.MakeTable(crc32.Castagnoli))
	if sum != 0xdf5a1087 {
		t.Fatalf("frame checksum %08x, want df5a1087", sum)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &record{
			topic:     rapid.StringN(1, 50, 200).Draw(t, "topic"),
			partition: rapid.Int32Range(0, partitionMax).Draw(t, "partition"),
			Record: model.Record{
				Key:         rapid.SliceOf(rapid.Byte()).Draw(t, "key"),
				Payload:     rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
				AcceptedAt:  rapid.Int64().Draw(t, "at"),
				Incarnation: rapid.SampledFrom([]model.Incarnation{"", idA, idB}).Draw(t, "id"),
			},
		}
		body := r.AppendTo(nil)
		if len(body) != r.Size() {
			t.Fatalf("%d bytes, Size says %d", len(body), r.Size())
		}
		f, err := decodeFields(body)
		if err != nil {
			t.Fatal(err)
		}
		got := f.record(string(f.topic), model.Incarnation(f.incarnation))
		if got.topic != r.topic || got.partition != r.partition || got.AcceptedAt != r.AcceptedAt ||
			got.Incarnation != r.Incarnation || !bytes.Equal(got.Key, r.Key) || !bytes.Equal(got.Payload, r.Payload) {
			t.Fatalf("got %+v, want %+v", got, r)
		}
		if len(r.Key) == 0 && got.Key != nil {
			t.Fatal("an empty key came back as a key")
		}
		clear(body)
		if !bytes.Equal(got.Payload, r.Payload) {
			t.Fatal("the record aliases the body")
		}
	})
}

func TestRecordDamage(t *testing.T) {
	good := vectorRecord().AppendTo(nil)
	put := func(at int, b ...byte) func([]byte) []byte {
		return func(body []byte) []byte { copy(body[at:], b); return body }
	}
	for _, c := range []struct {
		name string
		f    func([]byte) []byte
	}{
		{"empty", func([]byte) []byte { return nil }},
		{"format 0", put(0, 0)},
		{"format 3", put(0, 3)},
		{"format 1 read as 2", put(0, 1)},
		{"topic length huge", put(1, 0xff, 0xff, 0xff, 0xff)},
		{"topic length past the body", put(1, 0, 0, 1, 0)},
		{"topic empty", func([]byte) []byte { r := vectorRecord(); r.topic = ""; return r.AppendTo(nil) }},
		{"topic of 256 bytes", func([]byte) []byte {
			r := vectorRecord()
			r.topic = string(make([]byte, 256))
			return r.AppendTo(nil)
		}},
		{"id in capitals", put(11, 'A')},
		{"id of 15 characters", func([]byte) []byte { r := vectorRecord(); r.Incarnation = idA[1:]; return r.AppendTo(nil) }},
		{"negative partition", put(33, 0x80)},
		{"one byte short", func(b []byte) []byte { return b[:len(b)-1] }},
		{"one byte more", func(b []byte) []byte { return append(b, 0) }},
		{"payload length zero", put(45, 0, 0, 0, 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decodeFields(c.f(bytes.Clone(good)))
			if !errors.Is(err, model.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
		})
	}
	for n := range good {
		if _, err := decodeFields(good[:n]); !errors.Is(err, model.ErrCorrupt) {
			t.Fatalf("the first %d bytes: error %v, want ErrCorrupt", n, err)
		}
	}
}

// FuzzRecord: any bytes either fail as corrupt, or are exactly what encoding the
// result gives.
func FuzzRecord(f *testing.F) {
	f.Add(vectorRecord().AppendTo(nil))
	byName := vectorRecord()
	byName.Incarnation = ""
	f.Add(byName.AppendTo(nil))
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeFields(body)
		if err != nil {
			if !errors.Is(err, model.ErrCorrupt) {
				t.Fatalf("error %v does not match ErrCorrupt", err)
			}
			return
		}
		r := got.record(string(got.topic), model.Incarnation(got.incarnation))
		if again := r.AppendTo(nil); !bytes.Equal(again, body) {
			t.Fatalf("%x decodes to what encodes as %x", body, again)
		}
	})
}
