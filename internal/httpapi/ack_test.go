package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAck covers.
func TestAck(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	n.create(t, "other")
	for range 6 {
		n.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 202, "")
	}
	gone := `{"error":"receipt handle no longer matches an active reservation","code":"lease_gone"}`
	m := n.take(t, "t", "")
	n.settle(t, "other", m.Handle, "").expect(t, 410, gone) // another topic's handle
	n.settle(t, "t", m.Handle, "true").expect(t, 204, "")
	n.settle(t, "t", m.Handle, "1").expect(t, 204, "")
	n.settle(t, "t", m.Handle, "false").expect(t, 204, "")
	n.settle(t, "t", m.Handle, "").expect(t, 410, gone)
	n.settle(t, "t", m.Handle, "true").expect(t, 410, gone)
	m = n.take(t, "t", "")
	n.settle(t, "t", m.Handle, "0").expect(t, 204, "")
	n.settle(t, "t", m.Handle, "").expect(t, 410, gone)
	m = n.take(t, "t", "")
	n.settle(t, "t", fmt.Sprintf("%d:%d:%d", m.Partition, m.Offset, 1), "").expect(t, 410, gone)
	n.settle(t, "t", "3:0:1", "").expect(t, 410, gone) // a partition the topic lacks
	for _, h := range []string{"x", "0:0", "0:0:0", "00:0:1", "-1:0:1", "0:0:1:2", "0:0:99999999999999999999", strings.Repeat("1", 65)} {
		n.settle(t, "t", h, "").expect(t, 400, `{"error":"invalid receipt handle","code":"invalid_receipt_handle"}`)
	}
	required := `{"error":"receipt_handle required","code":"receipt_handle_required"}`
	n.do(t, "POST", "/v1/topics/t/ack", "").expect(t, 400, required)
	n.settle(t, "t", "", "").expect(t, 400, required)
	for _, extend := range []string{"yes", "2", "TRUE"} {
		n.settle(t, "t", m.Handle, extend).expect(t, 400, "invalid argument: extend")
	}
	n.do(t, "POST", "/v1/topics/t/ack?extend=&receipt_handle="+m.Handle, "").expect(t, 400, "invalid argument: extend")
	n.do(t, "POST", "/v1/topics/t/ack?extend=0&extend=0&receipt_handle="+m.Handle, "").expect(t, 400, "given more than once")
	n.settle(t, "nope", m.Handle, "").expect(t, 404, "topic not found")
	n.do(t, "POST", "/v1/topics/t/ack?receipt_handle="+m.Handle, "{not json").expect(t, 204, "")
}

// TestAckBatch covers AB-1 to AB-7.
func TestAckBatch(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	n.do(t, "POST", "/v1/topics/t/produce/batch", list(4, `{"payload":1,"partition":0}`)).expect(t, 202, "4")
	var handles []string
	for range 4 {
		handles = append(handles, n.take(t, "t", "partition=0").Handle)
	}
	batch := func(query string, hs ...string) answer {
		t.Helper()
		b, err := json.Marshal(map[string][]string{"receipt_handles": hs})
		if err != nil {
			t.Fatal(err)
		}
		return n.do(t, "POST", "/v1/topics/t/ack"+query, string(b))
	}
	const (
		ok   = `{"status":204}`
		gone = `{"status":410,"error":"receipt handle no longer matches an active reservation","code":"lease_gone"}`
		bad  = `{"status":400,"error":"invalid receipt handle","code":"invalid_receipt_handle"}`
	)
	results := func(rs ...string) string { return `{"results":[` + strings.Join(rs, ",") + "]}\n" }
	batch("?extend=true", handles...).expect(t, 200, results(ok, ok, ok, ok))                                                      // AB-3
	batch("", handles[0], "zzz", handles[0], handles[1], "3:0:1", "0:99:1").expect(t, 200, results(ok, bad, gone, ok, gone, gone)) // AB-1, AB-6, AB-7
	batch("?extend=0", handles[2], handles[3], handles[3]).expect(t, 200, results(ok, ok, gone))
	for _, tc := range []struct {
		name, body string
		status     int
		text       string
	}{
		{"AB-4 not JSON", `{"receipt_handles":[`, 400, "invalid json: unexpected end of JSON input"},
		{"AB-4 unknown field", `{"receipt_handles":["0:0:1"],"x":1}`, 400, `invalid json: json: unknown field \"x\"`},
		{"AB-4 wrong type", `{"receipt_handles":"0:0:1"}`, 400, "invalid json: "},
		{"AB-4 number", `{"receipt_handles":[1]}`, 400, "invalid json: "},
		{"AB-4 second value", `{"receipt_handles":["0:0:1"]}{}`, 400, "invalid json: "},
		{"AB-4 twice", `{"receipt_handles":["0:0:1"],"receipt_handles":["0:0:1"]}`, 400, "invalid json: "},
		{"AB-4 empty list", `{"receipt_handles":[]}`, 400, "receipt_handle required"},
		{"AB-4 empty object", `{}`, 400, "receipt_handle required"},
		{"AB-4 null", `{"receipt_handles":null}`, 400, "receipt_handle required"},
		{"AB-4 101", `{"receipt_handles":["0:0:1"` + strings.Repeat(`,"0:0:1"`, 100) + `]}`, 400, `{"error":"too many receipt_handles: more than 100","code":"too_many_receipt_handles"}`},
		{"LIM-7 100", `{"receipt_handles":["0:0:1"` + strings.Repeat(`,"0:0:1"`, 99) + `]}`, 200, gone},
		{"AB-5", `{"receipt_handles":["` + strings.Repeat("1", 64<<10) + `"]}`, 413, "request body too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "POST", "/v1/topics/t/ack", tc.body).expect(t, tc.status, tc.text)
		})
	}
	n.do(t, "POST", "/v1/topics/nope/ack", `{"receipt_handles":["0:0:1"]}`).expect(t, 404, "topic not found")
}

// FuzzDecodeHandles: nothing panics, the bound holds, and what decodes is what
// encoding/json reads.
func FuzzDecodeHandles(f *testing.F) {
	f.Add([]byte(`{"receipt_handles":["0:0:1","zz","\u0030:1:2"]}`))
	f.Add([]byte(`{"receipt_handles":null}`))
	f.Add([]byte(`{"receipt_handles":["\xff"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := decodeHandles(body)
		if err != nil {
			if r := translate("ack", err); r.status != 400 || !json.Valid(r.body()) {
				t.Fatalf("%d %s", r.status, r.body())
			}
			return
		}
		var want struct {
			Handles []string `json:"receipt_handles"`
		}
		if err := json.Unmarshal(body, &want); err != nil || len(want.Handles) != len(list) || len(list) > 100 {
			t.Fatalf("%d handles, encoding/json has %d: %v", len(list), len(want.Handles), err)
		}
		for i, h := range list {
			if h.err == nil && h.handle.String() != want.Handles[i] {
				t.Fatalf("handle %d: %v, want %s", i, h.handle, want.Handles[i])
			}
		}
	})
}

func BenchmarkAckHandler(b *testing.B) {
	f := &fake{}
	s := serveFake(b, f, nil)
	h := s.api.Handler()
	r := httptest.NewRequest("POST", "/v1/topics/t/ack?receipt_handle=1:7:5530917400218863", nil)
	r.Header.Set("Content-Type", "application/json")
	w := &nullWriter{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
	if w.status != 204 {
		b.Fatal(w.status)
	}
}
