package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/narad-mq/narad/internal/model"
)

// TestAppendDelivery is the golden form of a message object: field order, the
// three encodings of 10.4, seconds, handle and count.
func TestAppendDelivery(t *testing.T) {
	for _, tc := range []struct {
		name, key, payload, want string
	}{
		{"JSON verbatim", "", `{"a" : [1,2]}`, `"payload":{"a" : [1,2]}`},
		{"JSON is not re-escaped", "", `"<é>"`, `"payload":"<é>"`},
		{"number", "", `1.50`, `"payload":1.50`},
		{"text", "", `hi <b>&"`, `"payload":"hi \u003cb\u003e\u0026\""`},
		{"two values are text", "", `1 2`, `"payload":"1 2"`},
		{"line separators", "", "a\u2028b\u2029c", `"payload":"a\u2028b\u2029c"`},
		{"controls", "", "\x00\b\f\n\r\t\x1f\x7f", `"payload":"\u0000\b\f\n\r\t\u001f` + "\x7f" + `"`},
		{"binary", "", "\xff\x00", `"payload":"/wA=","payload_encoding":"base64"`},
		{"JSON with bad UTF-8 is binary", "", "\"\xff\"", `"payload":"Iv8i","payload_encoding":"base64"`},
		{"too deep is text", "", strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), `"payload":"[[[`},
		{"key", "k\n", "1", `"key":"k\n","payload":1`},
		{"binary key", "\xfe", "1", `"key":"/g==","key_encoding":"base64","payload":1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := model.Delivery{
				Message: model.Message{Topic: "t", Partition: 2, Offset: 17, Key: []byte(tc.key), Payload: []byte(tc.payload), CommittedAt: 1_700_000_000_999},
				Handle:  model.Handle{Partition: 2, Offset: 17, Nonce: 42}, Count: 3,
			}
			got := string(appendDelivery(nil, &d))
			prefix, suffix := `{"topic":"t","partition":2,"offset":17,`, `,"timestamp":1700000000,"receipt_handle":"2:17:42","delivery_count":3}`
			if !strings.HasPrefix(got, prefix+tc.want) || !strings.HasSuffix(got, suffix) || !json.Valid([]byte(got)) {
				t.Fatalf("got  %.300s\nwant %s%s%s", got, prefix, tc.want, suffix)
			}
			replayed := string(appendReplayed(nil, &d.Message))
			if replayed != strings.TrimSuffix(got, `,"receipt_handle":"2:17:42","delivery_count":3}`)+"}" {
				t.Fatalf("replayed %s", replayed)
			}
		})
	}
}

// FuzzMessage: every message is one JSON object from which a client gets its
// bytes back; strings are written as encoding/json writes them.
func FuzzMessage(f *testing.F) {
	f.Add([]byte("k"), []byte(`{"a":1}`))
	f.Add([]byte(""), []byte("text <&>\u2028"))
	f.Add([]byte("\xff"), []byte("\xff\x00"))
	f.Add([]byte("\xe2\x80"), []byte("\"\xe2\x80\xa8\""))
	f.Fuzz(func(t *testing.T, key, payload []byte) {
		if len(payload) == 0 {
			return
		}
		d := model.Delivery{Message: model.Message{Topic: "t", Key: key, Payload: payload}}
		out := appendDelivery(nil, &d)
		var m struct {
			Key             *string         `json:"key"`
			KeyEncoding     string          `json:"key_encoding"`
			Payload         json.RawMessage `json:"payload"`
			PayloadEncoding string          `json:"payload_encoding"`
		}
		if err := json.Unmarshal(out, &m); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if len(key) == 0 != (m.Key == nil) {
			t.Fatalf("key %q became %v", key, m.Key)
		}
		if m.Key != nil && !bytes.Equal(decoded(t, *m.Key, m.KeyEncoding), key) {
			t.Fatalf("key %q became %q (%s)", key, *m.Key, m.KeyEncoding)
		}
		switch {
		case m.PayloadEncoding == "" && utf8.Valid(payload) && json.Valid(payload):
			if !bytes.Contains(out, payload) {
				t.Fatalf("JSON %q is not verbatim in %q", payload, out)
			}
		default:
			var s string
			if err := json.Unmarshal(m.Payload, &s); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(decoded(t, s, m.PayloadEncoding), payload) {
				t.Fatalf("payload %q became %q (%s)", payload, s, m.PayloadEncoding)
			}
			if m.PayloadEncoding == "" {
				if want, _ := json.Marshal(string(payload)); !bytes.Equal(want, m.Payload) {
					t.Fatalf("string %q, encoding/json writes %q", m.Payload, want)
				}
			}
		}
	})
}

func decoded(t *testing.T, s, enc string) []byte {
	if enc == "" {
		return []byte(s)
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || enc != "base64" {
		t.Fatalf("%q as %q: %v", s, enc, err)
	}
	return b
}

// TestCB4_AnswerBound: the batch answer is cut at 8 MiB of encoded records, the
// first always goes.
func TestCB4_AnswerBound(t *testing.T) {
	one := model.Delivery{Message: model.Message{Topic: "t", Payload: bytes.Repeat([]byte("<"), 512<<10)}} // 3 MiB encoded
	got := []model.Delivery{one, one, one}
	out, n := appendBatch(nil, got)
	if n != 2 || !json.Valid(out) {
		t.Fatalf("%d of 3 kept, %d bytes", n, len(out))
	}
	huge := model.Delivery{Message: model.Message{Topic: "t", Payload: bytes.Repeat([]byte("<"), 3<<19)}} // 9 MiB
	if out, n := appendBatch(nil, []model.Delivery{huge, huge}); n != 1 || len(out) < batchAnswerMax || !json.Valid(out) {
		t.Fatalf("%d kept, %d bytes: the first record goes whatever its size", n, len(out))
	}
	small := model.Delivery{Message: model.Message{Topic: "t", Payload: bytes.Repeat([]byte("x"), 80_000)}}
	got = nil
	for range 100 {
		got = append(got, small)
	}
	if out, n := appendBatch(nil, got); n != 100 || !json.Valid(out) {
		t.Fatalf("%d of 100 kept", n)
	}
}

func BenchmarkAppendDelivery(b *testing.B) {
	for name, payload := range map[string][]byte{
		"json-1KiB":   []byte(sampleJSON(1 << 10)),
		"text-1KiB":   bytes.Repeat([]byte("plain text "), 93),
		"binary-1KiB": bytes.Repeat([]byte{0xff}, 1<<10),
	} {
		b.Run(name, func(b *testing.B) {
			d := model.Delivery{Message: model.Message{Topic: "orders", Key: []byte("customer-7"), Payload: payload}, Handle: model.Handle{Nonce: 1 << 60}, Count: 1}
			buf := make([]byte, 0, 8<<10)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				buf = appendDelivery(buf[:0], &d)
			}
		})
	}
}
