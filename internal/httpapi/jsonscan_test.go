package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestValidJSON compares the scanner with encoding/json on cases of every rule.
func TestValidJSON(t *testing.T) {
	for _, s := range []string{
		"", " ", "null", " null\n", "nul", "nulls", "true", "false", "tru", "0", "-0", "-", "01", "1.", "1.5", ".5", "1e", "1e5", "1E+5", "1e-", "+1", "0x1", "1 2",
		`""`, `"a"`, `"a`, `"\n"`, `"\x"`, `"\u00e9"`, `"\u00g0"`, `"\u00`, "\"a\nb\"", "\"\x00\"", "\"\xff\"", `"12345678"`, `"1234567\"8"`, `"12345678`, `"\\"`, `"\`,
		"[]", "[ ]", "[1]", "[1,]", "[,1]", "[1 2]", "[1,2]", "[[[]]]", "[", "]", "[}", "[1}",
		"{}", "{ }", `{"a":1}`, `{"a":1,}`, `{"a" 1}`, `{"a"}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1,"b":[{"c":{}}]}`, "{", "}", "{]", `{"a":1]`, `{1:2}`,
		"\ufeff{}", "\v1", "1\x00", `{"a":tru}`, "[nul]", "[-]", "\"\x7f\"", "\"\x1f\"", "NaN",
	} {
		if got, want := validJSON([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("validJSON(%q) = %v, encoding/json says %v", s, got, want)
		}
	}
}

// TestJSONDepth: 10,000 levels are JSON, 10,001 are not, and the stack of open
// containers keeps their kinds beyond its inline part.
func TestJSONDepth(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 255, 256, 257, 320, 321, 9_999, 10_000, 10_001, 200_000} {
		for _, open := range []string{"[", `{"a":`, `[{"a":`} {
			closers := map[string]string{"[": "]", `{"a":`: "}", `[{"a":`: "}]"}
			k := n
			if len(closers[open]) == 2 {
				k = max(n/2, 1)
			}
			s := []byte(strings.Repeat(open, k) + "1" + strings.Repeat(closers[open], k))
			if got, want := validJSON(s), json.Valid(s); got != want {
				t.Errorf("%d x %s: %v, encoding/json says %v", k, open, got, want)
			}
			s[len(s)-1] = '1'
			if validJSON(s) {
				t.Errorf("%d x %s: accepted without its last closer", k, open)
			}
		}
	}
}

// FuzzValidJSON holds the scanner to encoding/json byte for byte.
func FuzzValidJSON(f *testing.F) {
	for _, s := range []string{"", `{"a":[1,2.5e-7,"x\u00e9\\",null,true]}`, "[[[[", `"12345678"`, "\"\xff\"", "-0.1e+5", "{}{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := validJSON(b), json.Valid(b); got != want {
			t.Fatalf("validJSON(%q) = %v, encoding/json says %v", b, got, want)
		}
	})
}

func BenchmarkValidJSON1KiB(b *testing.B) {
	doc := []byte(sampleJSON(1 << 10))
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if !validJSON(doc) {
			b.Fatal("not valid")
		}
	}
}

// sampleJSON is a plausible event of about n bytes.
func sampleJSON(n int) string {
	var s strings.Builder
	s.WriteString(`{"id":104729,"kind":"order.created","customer":{"name":"Ada Lovelace","vip":true},"lines":[`)
	for s.Len() < n-60 {
		s.WriteString(`{"sku":"AB-1234","qty":3,"price":12.50},`)
	}
	s.WriteString(`{"sku":"end","qty":1,"price":0}]}`)
	return s.String()
}
