package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// plainByStdlib is what plainJSON must agree with, nesting aside.
func plainByStdlib(p []byte) bool {
	return len(p) > 0 && !space(p[0]) && !space(p[len(p)-1]) && utf8.Valid(p) && json.Valid(p)
}

var plainSeeds = []string{
	`{}`, `[]`, `null`, `true`, `false`, `nul`, `truex`, `0`, `-0`, `01`, `-`, `1.`, `1.5`, `.5`, `1e`, `1e+`, `1E-5`, `1e5x`,
	`""`, `"`, `"a`, `"\n"`, "\"\n\"", `"\u12aF"`, `"\u12g4"`, `"\u1"`, `"\x"`, `"\`, `"` + "\x7f" + `"`, `"é€😀"`, "\"\xff\"",
	`{"a":1}`, `{"a" : [ 1 , {"b":null} ] }`, `{"a":1,}`, `[1,]`, `[,1]`, `{a:1}`, `{"a"}`, `{"a":}`, `[1 2]`, `{"a":1}}`, `]`,
	" 1", "1 ", "\t{}", `"0123456789abcdef"`, `"0123456\"abcdef"`, "\"0123456\x1fabcdef\"", `"0123456789abcde\\"`, `"0123456!!!!!!!!"`,
}

func TestPlainJSON(t *testing.T) {
	for _, s := range plainSeeds {
		if got, want := plainJSON([]byte(s)), plainByStdlib([]byte(s)); got != want {
			t.Errorf("plainJSON(%q) = %v, want %v", s, got, want)
		}
	}
	for _, depth := range []int{plainDepthMax - 1, plainDepthMax} {
		p := strings.Repeat("[", depth) + "1" + strings.Repeat("]", depth)
		if got, want := plainJSON([]byte(p)), depth < plainDepthMax; got != want {
			t.Errorf("%d levels: plainJSON = %v, want %v", depth, got, want)
		}
	}
}

func FuzzPlainJSON(f *testing.F) {
	for _, s := range plainSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		got, want := plainJSON(p), plainByStdlib(p)
		if got != want && (got || strings.Count(string(p), "[")+strings.Count(string(p), "{") < plainDepthMax) {
			t.Errorf("plainJSON(%q) = %v, want %v", p, got, want)
		}
	})
}

// What is encoded decodes to the same bytes and keys, and is JSON.
func FuzzEncodeBatch(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte("key"), 2)
	f.Add([]byte("text"), []byte("\x00\"\\\x1f\xff"), -1)
	f.Fuzz(func(t *testing.T, payload, key []byte, partition int) {
		if len(payload) == 0 || partition > 1<<30 {
			return
		}
		body := encodeBatch([]Message{{Payload: payload, Key: key, Pin: Partition(partition)}, {Payload: payload}})
		var got struct {
			Messages []struct {
				Payload         json.RawMessage `json:"payload"`
				PayloadEncoding string          `json:"payload_encoding"`
				Key             string          `json:"key"`
				KeyEncoding     string          `json:"key_encoding"`
				Partition       *int            `json:"partition"`
			} `json:"messages"`
		}
		if err := json.Unmarshal(body, &got); err != nil || len(got.Messages) != 2 {
			t.Fatalf("body %q: %d messages, %v", body, len(got.Messages), err)
		}
		m := got.Messages[0]
		stored := []byte(m.Payload)
		if m.PayloadEncoding != "" {
			var s string
			if err := json.Unmarshal(m.Payload, &s); err != nil {
				t.Fatal(err)
			}
			stored, _ = decodeText(s, m.PayloadEncoding)
		}
		k, err := decodeText(m.Key, m.KeyEncoding)
		if string(stored) != string(payload) || string(k) != string(key) || err != nil {
			t.Errorf("body %q: payload %q, key %q, %v", body, stored, k, err)
		}
		if pinned := fmt.Sprint(m.Partition != nil); pinned != fmt.Sprint(partition >= 0) || m.Partition != nil && *m.Partition != partition {
			t.Errorf("body %q: partition pinned is %s for %d", body, pinned, partition)
		}
	})
}

func BenchmarkPlainJSON(b *testing.B) {
	p := []byte(`{"id":12345,"text":"` + strings.Repeat("lorem ipsum ", 80) + `"}`)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if !plainJSON(p) {
			b.Fatal("not plain")
		}
	}
}
