package model

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// spec/consume section 4: exactly two colons, digits only, no sign, no leading
// zeros except 0, at most 64 bytes, values in range.
func TestParseHandle(t *testing.T) {
	for text, want := range map[string]Handle{
		"2:1187:5530917400218863": {2, 1187, 5530917400218863},
		"0:0:1":                   {0, 0, 1},
		"107:9223372036854775807:9223372036854775807": {107, math.MaxInt64, math.MaxInt64},
		"2147483647:1:1": {math.MaxInt32, 1, 1},
	} {
		got, err := ParseHandle(text)
		if err != nil || got != want {
			t.Errorf("ParseHandle(%q) = %v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%q is written as %q", text, got)
		}
		if b := got.AppendTo([]byte("x")); string(b) != "x"+text {
			t.Errorf("AppendTo wrote %q", b)
		}
	}
}

func TestParseHandleRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                   "",
		"no colon":                "123",
		"one colon":               "1:2",
		"three colons":            "1:2:3:4",
		"trailing colon":          "1:2:3:",
		"leading colon":           ":1:2:3",
		"empty partition":         ":2:3",
		"empty offset":            "1::3",
		"empty nonce":             "1:2:",
		"plus sign":               "+1:2:3",
		"minus sign":              "1:-2:3",
		"minus zero":              "-0:2:3",
		"leading zero partition":  "01:2:3",
		"leading zero offset":     "1:02:3",
		"leading zero nonce":      "1:2:03",
		"double zero":             "00:2:3",
		"nonce zero":              "1:2:0",
		"space":                   "1:2: 3",
		"newline":                 "1:2:3\n",
		"hex":                     "1:2:0x3",
		"underscore":              "1:2:3_0",
		"letters":                 "a:b:c",
		"other digits":            "1:2:٣",
		"NUL":                     "1:2:3\x00",
		"partition past int32":    "2147483648:2:3",
		"offset past int64":       "1:9223372036854775808:3",
		"nonce past int64":        "1:2:9223372036854775808",
		"nonce past uint64":       "1:2:18446744073709551617",
		"65 bytes":                "1:2:" + strings.Repeat("3", HandleTextMax-3),
		"64 bytes and nonce huge": "1:2:" + strings.Repeat("3", HandleTextMax-4),
		"very long":               strings.Repeat("1:", 1<<16),
	} {
		if h, err := ParseHandle(text); !errors.Is(err, ErrBadHandle) || h != (Handle{}) {
			t.Errorf("%s: ParseHandle = %v, %v; want ErrBadHandle", name, h, err)
		}
	}
}

// The longest handle there is fits the bound.
func TestHandleTextFitsItsBound(t *testing.T) {
	h := Handle{math.MaxInt32, math.MaxInt64, math.MaxInt64}
	if n := len(h.String()); n > HandleTextMax {
		t.Errorf("%d bytes, bound %d", n, HandleTextMax)
	}
}

func FuzzParseHandle(f *testing.F) {
	for _, s := range []string{"2:1187:5530917400218863", "0:0:1", "1:2:3:4", "01:2:3", "1:2:0", ":::", "1:9223372036854775808:3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHandle(s)
		if err != nil {
			if !errors.Is(err, ErrBadHandle) || h != (Handle{}) {
				t.Fatalf("%q: %v, %v", s, h, err)
			}
			return
		}
		if h.String() != s { // one text per handle: comparing texts compares handles
			t.Fatalf("%q reads as %v", s, h)
		}
		if h.Partition < 0 || h.Offset < 0 || h.Nonce < 1 {
			t.Fatalf("%q: out of range: %+v", s, h)
		}
	})
}

func BenchmarkParseHandle(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseHandle("2:1187:5530917400218863"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHandleAppendTo(b *testing.B) {
	buf := make([]byte, 0, HandleTextMax)
	b.ReportAllocs()
	for b.Loop() {
		buf = Handle{2, 1187, 5530917400218863}.AppendTo(buf[:0])
	}
}

// The numbers are on the wire.
func TestSettleOpNumbers(t *testing.T) {
	for op, want := range map[SettleOp]string{0: "ack", 1: "extend", 2: "nack", 3: "settle op 3"} {
		if op.String() != want {
			t.Errorf("%d is %q, want %q", uint8(op), op, want)
		}
	}
	if Ack != 0 || Extend != 1 || Nack != 2 {
		t.Error("settle ops were renumbered")
	}
}

func TestNoPosition(t *testing.T) {
	if p := NoPosition(); p.Committed != -1 || p.Ahead != nil {
		t.Errorf("%+v", p)
	}
}

func TestAgedOutError(t *testing.T) {
	var err error = &AgedOutError{Offset: 5, Oldest: 9}
	if !errors.Is(err, ErrOffsetGone) || errors.Is(err, ErrUnreadable) {
		t.Error("matches the wrong sentinel")
	}
	if got, want := err.Error(), "offset 5 aged out of retention (oldest retained: 9)"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
