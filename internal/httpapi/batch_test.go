package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/ingress"
)

// list is a batch body of n elements.
func list(n int, element string) string {
	return `{"messages":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
}

// TestDecodeBatch holds the decoder to the exact texts of PB-1 to PB-9, PB-17 and
// of the strict bodies (BODY-1).
func TestDecodeBatch(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, tc := range []struct {
		name, body string
		status     int
		text       string
	}{
		{"PB-2 absent", `{}`, 400, "messages required"},
		{"PB-2 empty", `{"messages":[]}`, 400, "messages required"},
		{"PB-2 null", `{"messages":null}`, 400, "messages required"},
		{"PB-3 1001", list(1001, `{"payload":1}`), 400, "too many messages: more than 1000"},
		{"PB-3 stops before the fault behind it", strings.TrimSuffix(list(1001, `{"payload":1}`), "]}") + ",garbage", 400, "too many messages: more than 1000"},
		{"PB-4 payload missing", list(101, `{}`), 400, "message 0: message required"},
		{"PB-4 payload empty", `{"messages":[{"payload":1},{"payload":"","payload_encoding":"base64"}]}`, 400, "message 1: message required"},
		{"PB-4 bad base64", `{"messages":[{"payload":"a","payload_encoding":"base64"}]}`, 400, "message 0: payload is not a string of standard padded base64"},
		{"PB-4 unpadded base64", `{"messages":[{"payload":"YQ","payload_encoding":"base64"}]}`, 400, "message 0: payload is not a string of standard padded base64"},
		{"PB-4 url base64", `{"messages":[{"payload":"_-__","payload_encoding":"base64"}]}`, 400, "message 0: payload is not"},
		{"PB-4 base64 with a line break", `{"messages":[{"payload":"YQ==\n","payload_encoding":"base64"}]}`, 400, "message 0: payload is not"},
		{"PB-4 base64 of a number", `{"messages":[{"payload":12,"payload_encoding":"base64"}]}`, 400, "message 0: payload is not"},
		{"PB-4 unknown encoding", `{"messages":[{"payload":1,"payload_encoding":"hex"}]}`, 400, "message 0: unknown payload_encoding: want base64"},
		{"PB-4 empty encoding", `{"messages":[{"payload":1,"payload_encoding":""}]}`, 400, "message 0: unknown payload_encoding: want base64"},
		{"PB-4 unknown key encoding", `{"messages":[{"payload":1,"key":"k","key_encoding":"x"}]}`, 400, "message 0: unknown key_encoding: want base64"},
		{"PB-4 bad key", `{"messages":[{"payload":1,"key":"*","key_encoding":"base64"}]}`, 400, "message 0: key is not standard padded base64"},
		{"PB-4 key not UTF-8", "{\"messages\":[{\"payload\":1,\"key\":\"\xff\"}]}", 400, "message 0: key is not valid UTF-8"},
		{"PB-4 negative partition", `{"messages":[{"payload":1},{"payload":1,"partition":-1}]}`, 400, "message 1: invalid argument: partition out of range"},
		{"PB-4 huge partition", `{"messages":[{"payload":1,"partition":4294967296}]}`, 400, "message 0: invalid argument: partition out of range"},
		{"PB-9 raw", `{"messages":[{"payload":1},{"payload":"` + big + `"}]}`, 413, "message 1: message too large"},
		{"PB-9 decoded", `{"messages":[{"payload":"` + base64.StdEncoding.EncodeToString([]byte(big+"x")) + `","payload_encoding":"base64"}]}`, 413, "message 0: message too large"},
		{"PB-6 JSON before form", `{"messages":[{},{"payload":1,"x":2}]}`, 400, `invalid json: json: unknown field "x"`},
		{"BODY-1 unknown field", `{"messages":[],"foo":1}`, 400, `invalid json: json: unknown field "foo"`},
		{"BODY-1 unknown field of a message", `{"messages":[{"payload":1,"id":1}]}`, 400, `invalid json: json: unknown field "id"`},
		{"BODY-1 field name in another case", `{"Messages":[]}`, 400, `invalid json: json: unknown field "Messages"`},
		{"BODY-1 not JSON", `{"messages":[{"payload":}]}`, 400, "invalid json: invalid character '}'"},
		{"BODY-1 empty", ``, 400, "invalid json: unexpected end of JSON input"},
		{"BODY-1 cut", `{"messages":[{"payload":"a`, 400, "invalid json: unexpected end of JSON input"},
		{"BODY-1 second value", `{"messages":[{"payload":1}]} {}`, 400, "invalid json: invalid character '{' after top-level value"},
		{"BODY-1 array", `[]`, 400, "invalid json: json: field body: want object"},
		{"BODY-1 list of numbers", `{"messages":[1]}`, 400, "invalid json: json: field messages: want object"},
		{"BODY-1 messages no list", `{"messages":{}}`, 400, "invalid json: json: field messages: want array"},
		{"BODY-1 key a number", `{"messages":[{"payload":1,"key":1}]}`, 400, "invalid json: json: field key: want string"},
		{"BODY-1 partition a string", `{"messages":[{"payload":1,"partition":"1"}]}`, 400, "invalid json: json: field partition: want integer"},
		{"BODY-1 partition a fraction", `{"messages":[{"payload":1,"partition":1.0}]}`, 400, "invalid json: json: field partition: want integer"},
		{"BODY-1 messages twice", `{"messages":[{"payload":1}],"messages":[{"payload":1}]}`, 400, `invalid json: json: field "messages" appears twice`},
		{"too deep", `{"messages":[{"payload":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}]}`, 400, "invalid json: exceeded max depth"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ms, err := decodeBatch([]byte(tc.body))
			if err == nil {
				t.Fatalf("decoded %d messages, want %q", len(ms), tc.text)
			}
			r := translate("produce", err)
			if r.status != tc.status || !strings.HasPrefix(r.text, tc.text) {
				t.Fatalf("%d %q, want %d %q", r.status, r.text, tc.status, tc.text)
			}
		})
	}
}

// TestDecodeBatchValues: what a message becomes, byte for byte (PB-1, PB-17).
func TestDecodeBatchValues(t *testing.T) {
	type m struct {
		payload, key string
		partition    int
	}
	for _, tc := range []struct {
		element string
		want    m
	}{
		{`{"payload":"hi"}`, m{`"hi"`, "", -1}}, // PB-17
		{`{"payload": {"a" : [1, 2] } }`, m{`{"a" : [1, 2] }`, "", -1}},
		{`{"payload":null}`, m{"null", "", -1}},
		{`{"payload":"aGk=","payload_encoding":"base64"}`, m{"hi", "", -1}},
		{`{"payload_encoding":"base64","payload":"\u0061G\u006b\u003d"}`, m{"hi", "", -1}},
		{`{"payload":"\/w==","payload_encoding":"base64"}`, m{"\xff", "", -1}},
		{`{"payload":1,"payload_encoding":null,"key":null,"key_encoding":null,"partition":null}`, m{"1", "", -1}},
		{`{"payload":1,"key":""}`, m{"1", "", -1}},
		{`{"payload":1,"key":"k\u00e9\n"}`, m{"1", "ké\n", -1}},
		{`{"payload":1,"key":"/wA=","key_encoding":"base64","partition":7}`, m{"1", "\xff\x00", 7}},
		{`{"payload":1,"payload":2}`, m{"2", "", -1}},
		{"{\"payload\":\"\xff\"}", m{"\"\xff\"", "", -1}},
		{`{"p\u0061yload":3}`, m{"3", "", -1}},
	} {
		ms, err := decodeBatch([]byte(`{"messages":[` + tc.element + `]}`))
		if err != nil || len(ms) != 1 {
			t.Errorf("%s: %v", tc.element, err)
			continue
		}
		if got := (m{string(ms[0].Payload), string(ms[0].Key), ms[0].Partition}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.element, got, tc.want)
		}
		if tc.want.key == "" && ms[0].Key != nil {
			t.Errorf("%s: key %v, want nil", tc.element, ms[0].Key)
		}
	}
	if ms, err := decodeBatch([]byte(list(1000, `{"payload":1}`))); err != nil || len(ms) != 1000 {
		t.Errorf("1000 messages: %d, %v", len(ms), err)
	}
}

// FuzzDecodeBatch: whatever decodes is what encoding/json makes of it, nothing
// panics, and payloads stay within the body.
func FuzzDecodeBatch(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"payload":{"a":1},"key":"k","partition":2}]}`,
		`{"messages":[{"payload":"aGk=","payload_encoding":"base64","key":"/w==","key_encoding":"base64"}]}`,
		`{"messages":null}`, `{"messages":[{}]}`, "{", `{"messages":[{"payload":"\u00zz"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		orig := bytes.Clone(body)
		ms, err := decodeBatch(body)
		if !bytes.Equal(orig, body) {
			t.Fatal("the body was written to")
		}
		if err != nil {
			r := translate("produce", err)
			if r.status != 400 && r.status != 413 || !json.Valid(r.body()) {
				t.Fatalf("%d %s", r.status, r.body())
			}
			return
		}
		var want struct {
			Messages []struct {
				Payload         json.RawMessage
				Key             string
				PayloadEncoding string `json:"payload_encoding"`
				KeyEncoding     string `json:"key_encoding"`
				Partition       *int
			}
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("decoded, but encoding/json says %v", err)
		}
		if len(ms) != len(want.Messages) {
			t.Fatalf("%d messages, encoding/json has %d", len(ms), len(want.Messages))
		}
		for i, w := range want.Messages {
			if w.PayloadEncoding == "" && !bytes.Equal(ms[i].Payload, w.Payload) {
				t.Fatalf("message %d: payload %q, want %q", i, ms[i].Payload, w.Payload)
			}
			if w.KeyEncoding == "" && string(ms[i].Key) != w.Key {
				t.Fatalf("message %d: key %q, want %q", i, ms[i].Key, w.Key)
			}
			if w.Partition != nil && *w.Partition != ms[i].Partition {
				t.Fatalf("message %d: partition %d, want %d", i, ms[i].Partition, *w.Partition)
			}
		}
	})
}

func BenchmarkDecodeBatch100x1KiB(b *testing.B) {
	for _, kind := range []string{"json", "base64"} {
		b.Run(kind, func(b *testing.B) {
			element := fmt.Sprintf(`{"key":"customer-7","payload":%s}`, sampleJSON(1<<10))
			if kind == "base64" {
				element = `{"payload":"` + base64.StdEncoding.EncodeToString(make([]byte, 1<<10)) + `","payload_encoding":"base64"}`
			}
			body := []byte(list(100, element))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			var ms []ingress.Message
			var err error
			for b.Loop() {
				if ms, err = decodeBatch(body); err != nil || len(ms) != 100 {
					b.Fatal(err)
				}
			}
		})
	}
}
