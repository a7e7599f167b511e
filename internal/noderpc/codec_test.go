package noderpc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"runtime"
	"testing"
)

func encodeAll() Encoder {
	var e Encoder
	e.AppendU8(0xfe)
	e.AppendBool(true)
	e.AppendU16(0x0102)
	e.AppendU32(0x03040506)
	e.AppendU64(0x0708090a0b0c0d0e)
	e.AppendI32(-2)
	e.AppendI64(math.MinInt64)
	e.AppendStr("né")
	e.AppendBytes([]byte{9, 8})
	e.AppendOptBytes(nil)
	e.AppendOptBytes([]byte{})
	e.AppendOptBytes([]byte{7})
	return e
}

// TestCodecGolden fixes the bytes of every scalar (spec/cluster-and-network section 5.1).
func TestCodecGolden(t *testing.T) {
	const want = "fe" + "01" + "0102" + "03040506" + "0708090a0b0c0d0e" + "fffffffe" + "8000000000000000" +
		"000000036ec3a9" + "000000020908" + "00" + "0100000000" + "010000000107"
	if got := hex.EncodeToString(encodeAll()); got != want {
		t.Fatalf("encoded\n%s, want\n%s", got, want)
	}
}

func TestCodecRoundTrip(t *testing.T) {
	d := NewDecoder(encodeAll())
	if v := d.U8(); v != 0xfe {
		t.Errorf("U8 = %x", v)
	}
	if !d.Bool() {
		t.Error("Bool = false")
	}
	if v := d.U16(); v != 0x0102 {
		t.Errorf("U16 = %x", v)
	}
	if v := d.U32(); v != 0x03040506 {
		t.Errorf("U32 = %x", v)
	}
	if v := d.U64(); v != 0x0708090a0b0c0d0e {
		t.Errorf("U64 = %x", v)
	}
	if v := d.I32(); v != -2 {
		t.Errorf("I32 = %d", v)
	}
	if v := d.I64(); v != math.MinInt64 {
		t.Errorf("I64 = %d", v)
	}
	if v := d.Str(); v != "né" {
		t.Errorf("Str = %q", v)
	}
	if v := d.Bytes(); !bytes.Equal(v, []byte{9, 8}) {
		t.Errorf("Bytes = %v", v)
	}
	if v := d.OptBytes(); v != nil {
		t.Errorf("absent OptBytes = %v", v)
	}
	if v := d.OptBytes(); v == nil || len(v) != 0 {
		t.Errorf("empty OptBytes = %#v, want present and empty", v)
	}
	if !d.More() {
		t.Error("More = false with a field left")
	}
	if v := d.OptBytes(); !bytes.Equal(v, []byte{7}) {
		t.Errorf("OptBytes = %v", v)
	}
	if d.More() {
		t.Error("More = true at the end")
	}
	if err := d.Done(); err != nil {
		t.Errorf("Done = %v", err)
	}
}

// TestCodecTruncated cuts a message at every byte: no reader panics, and the failure of
// the first field that is short sticks.
func TestCodecTruncated(t *testing.T) {
	whole := encodeAll()
	for cut := range whole {
		d := NewDecoder(whole[:cut])
		readAll(d)
		if err := d.Done(); !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d: Done = %v, want ErrTruncated", cut, err)
		}
		if d.U64() != 0 || d.Str() != "" || d.Bytes() != nil || d.Count(1) != 0 || d.More() {
			t.Fatalf("cut at %d: a reader went on after the failure", cut)
		}
	}
}

func readAll(d *Decoder) {
	d.U8()
	d.Bool()
	d.U16()
	d.U32()
	d.U64()
	d.I32()
	d.I64()
	d.Str()
	d.Bytes()
	d.OptBytes()
	d.OptBytes()
	d.OptBytes()
}

func TestCodecTrailing(t *testing.T) {
	d := NewDecoder([]byte{1, 2})
	d.U8()
	if err := d.Done(); !errors.Is(err, ErrTrailing) {
		t.Fatalf("Done = %v, want ErrTrailing", err)
	}
	if err := d.Err(); err != nil {
		t.Fatalf("Err = %v: a reader of responses ignores trailing bytes", err)
	}
}

// TestCodecCountBound holds a count against the bytes left, at the bound and over it.
func TestCodecCountBound(t *testing.T) {
	body := func(n uint32, left int) []byte {
		var e Encoder
		e.AppendU32(n)
		return append(e, make([]byte, left)...)
	}
	for _, c := range []struct {
		n    uint32
		min  int
		left int
		ok   bool
	}{
		{2, 5, 10, true}, {2, 5, 9, false}, {0, 5, 0, true}, {4, 0, 4, true}, {5, 0, 4, false},
		{math.MaxUint32, 1 << 30, 16, false}, {math.MaxUint32, 1, 16, false},
	} {
		d := NewDecoder(body(c.n, c.left))
		n := d.Count(c.min)
		if ok := d.Err() == nil; ok != c.ok || (ok && n != int(c.n)) {
			t.Errorf("Count(%d) of %d items over %d bytes = %d, %v", c.min, c.n, c.left, n, d.Err())
		}
	}
}

// TestCodecHugeLength: a length of 4 GiB costs no more than the text of its refusal.
func TestCodecHugeLength(t *testing.T) {
	body := []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		d := NewDecoder(body)
		if got := d.Bytes(); got != nil || !errors.Is(d.Err(), ErrTruncated) {
			t.Fatalf("Bytes of 4 GiB out of 3 bytes = %d bytes, %v", len(got), d.Err())
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 100; n > 1024 {
		t.Errorf("%d bytes allocated for a refused length", n)
	}
}

func TestEncoderPartitionBound(t *testing.T) {
	for _, c := range []struct {
		p  int
		ok bool
	}{{-2, false}, {-1, true}, {0, true}, {math.MaxInt32, true}, {math.MaxInt32 + 1, false}} {
		var e Encoder
		err := e.AppendPartition(c.p)
		if (err == nil) != c.ok || (!c.ok && (len(e) != 0 || !errors.Is(err, ErrPartition))) {
			t.Errorf("AppendPartition(%d) = %v, %d bytes", c.p, err, len(e))
		}
		if c.ok {
			if got := NewDecoder(e).I32(); int(got) != c.p {
				t.Errorf("partition %d read back as %d", c.p, got)
			}
		}
	}
}

// FuzzDecoder reads fields picked by the input from the input: nothing panics, nothing
// read is longer than what was there.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, []byte(encodeAll()))
	f.Add([]byte{7, 8, 6, 9}, []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, fields, body []byte) {
		d := NewDecoder(body)
		total := 0
		for _, field := range fields {
			switch field % 10 {
			case 0:
				d.U8()
			case 1:
				d.U16()
			case 2:
				d.U32()
			case 3:
				d.U64()
			case 4:
				d.I32()
			case 5:
				d.I64()
			case 6:
				total += len(d.Str())
			case 7:
				total += len(d.Bytes())
			case 8:
				total += len(d.OptBytes())
			case 9:
				min := int(field) / 10
				if n := d.Count(min); n*max(min, 1) > len(body) {
					t.Fatalf("a list of %d items of %d bytes out of %d bytes", n, min, len(body))
				}
			}
		}
		if total > len(body) {
			t.Fatalf("%d bytes read out of %d", total, len(body))
		}
		if d.More() && d.Err() != nil {
			t.Fatal("More after a failure")
		}
		_ = d.Done()
	})
}
