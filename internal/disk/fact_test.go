package disk

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"testing"
)

var hwmMagic = [4]byte{'N', 'H', 'W', '1'}

// The golden vector: the bytes of a fact may never change.
func TestFactGolden(t *testing.T) {
	b := EncodeFact(hwmMagic, 0x0102030405060708)
	if got, want := hex.EncodeToString(b[:]), "4e4857310102030405060708d3533f6c"; got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
}

func TestFactRoundTrip(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 255, 1 << 40, math.MaxInt64, math.MinInt64} {
		b := EncodeFact(hwmMagic, v)
		if got, state := DecodeFact(hwmMagic, b[:]); got != v || state != FactValid {
			t.Errorf("%d decodes to %d, state %d", v, got, state)
		}
	}
}

// Every damage is seen: no value is invented, and a zeroed fact is not the value 0.
func TestFactDamage(t *testing.T) {
	valid := EncodeFact(hwmMagic, 77)
	cases := map[string][]byte{
		"one byte":      valid[:1],
		"old 8 bytes":   valid[4:12],
		"one short":     valid[:15],
		"one long":      append(bytes.Clone(valid[:]), 0),
		"zero-filled":   make([]byte, FactSize),
		"0xff-filled":   bytes.Repeat([]byte{0xff}, FactSize),
		"another magic": func() []byte { b := EncodeFact([4]byte{'N', 'C', 'P', '1'}, 77); return b[:] }(),
	}
	for name, b := range cases {
		if v, state := DecodeFact(hwmMagic, b); v != 0 || state != FactDamaged {
			t.Errorf("%s: value %d, state %d", name, v, state)
		}
	}
	for bit := range FactSize * 8 {
		b := valid
		b[bit/8] ^= 1 << (bit % 8)
		if v, state := DecodeFact(hwmMagic, b[:]); v != 0 || state != FactDamaged {
			t.Errorf("bit %d flipped: value %d, state %d", bit, v, state)
		}
	}
	for _, b := range [][]byte{nil, {}} {
		if v, state := DecodeFact(hwmMagic, b); v != 0 || state != FactEmpty {
			t.Errorf("no bytes: value %d, state %d", v, state)
		}
	}
}

// A fact overwritten in place is, after a crash, one of the values written.
func TestFactOverwriteIsAtomic(t *testing.T) {
	for seed := range int64(200) {
		s := NewSim(seed)
		f := create(t, s, "hwm", "")
		for v := range int64(6) {
			b := EncodeFact(hwmMagic, v)
			_, err := f.WriteAt(b[:], 0)
			must(t, err)
			if v == 1 {
				must(t, f.Sync())
				must(t, SyncDir(s, "/"))
			}
		}
		b, err := ReadFile(s.Crash(seed), "hwm", FactSize)
		must(t, err)
		if v, state := DecodeFact(hwmMagic, b); state != FactValid || v < 1 || v > 5 {
			t.Fatalf("seed %d: value %d, state %d", seed, v, state)
		}
	}
}

func FuzzDecodeFact(f *testing.F) {
	valid := EncodeFact(hwmMagic, 42)
	f.Add(valid[:])
	f.Add([]byte{})
	f.Add(make([]byte, FactSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, state := DecodeFact(hwmMagic, b)
		again := EncodeFact(hwmMagic, v)
		switch state {
		case FactValid:
			if !bytes.Equal(again[:], b) {
				t.Fatalf("%x is valid but encodes as %x", b, again)
			}
		case FactEmpty:
			if len(b) != 0 || v != 0 {
				t.Fatalf("%x: empty, value %d", b, v)
			}
		default:
			if v != 0 || bytes.Equal(again[:], b) {
				t.Fatalf("%x: damaged, value %d", b, v)
			}
		}
	})
}

func BenchmarkEncodeFact(b *testing.B) {
	b.ReportAllocs()
	for i := range b.N {
		EncodeFact(hwmMagic, int64(i))
	}
}

func BenchmarkOverwriteFact(b *testing.B) {
	f, err := OS{}.Open(b.TempDir()+"/fact", os.O_RDWR|os.O_CREATE)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.ReportAllocs()
	for i := range b.N {
		fact := EncodeFact(hwmMagic, int64(i))
		if _, err := f.WriteAt(fact[:], 0); err != nil {
			b.Fatal(err)
		}
	}
}
