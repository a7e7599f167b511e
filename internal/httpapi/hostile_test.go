package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/model"
)

func (s *server) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func recordOps(a *API, path string) answer {
	w := httptest.NewRecorder()
	a.OpsHandler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return answer{w.Code, w.Header(), w.Body.String()}
}

const post = "POST /v1/topics/t/produce HTTP/1.1\r\nHost: x\r\nX-Narad-Client: t\r\n"

// TestHostileRequests: malformed and lying requests meet a documented answer or a
// clean close, and never a success that did not happen.
func TestHostileRequests(t *testing.T) {
	for _, tc := range []struct {
		name, send, want string // want "" = closed without an answer
	}{
		{"PIPE-1 huge header", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Big: " + strings.Repeat("a", 70_000) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"PIPE-1 huge target", "GET /v1/topics/" + strings.Repeat("a", 70_000) + " HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 431 "},
		{"header within the bound", "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Big: " + strings.Repeat("a", 60_000) + "\r\n\r\n", "HTTP/1.1 200 "},
		{"two lengths", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 400 "},
		{"negative length", post + "Content-Length: -1\r\n\r\n", "HTTP/1.1 400 "},
		{"length over the bound", post + "Content-Length: 1048577\r\n\r\n", "HTTP/1.1 413 "},
		{"length beyond 63 bits", post + "Content-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 400 "},
		{"no body", post + "Connection: close\r\n\r\n", "HTTP/1.1 400 "},
		{"bad chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", "HTTP/1.1 400 "},
		{"unknown transfer encoding", post + "Transfer-Encoding: snail\r\n\r\nab", "HTTP/1.1 501 "},
		{"length and chunks", post + "Connection: close\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "HTTP/1.1 "},
		{"chunked", post + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "HTTP/1.1 202 "},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 "},
		{"garbage", "\x16\x03\x01\x00\xa5\r\n\r\n", "HTTP/1.1 400 "},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 404 "},
		{"CONNECT", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 404 "},
		{"absolute target", "GET http://other/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 "},
		{"encoded slash in a topic", "GET /v1/topics/..%2F..%2Fetc/consume HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 204 "},
		{"bad escape", "GET /v1/topics/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 "},
		{"NUL in the target", "GET /v1/topics/a\x00b HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveFake(t, &fake{}, nil)
			got := s.raw(t, 10*time.Second, tc.send)
			if !strings.HasPrefix(got, tc.want) {
				t.Fatalf("answer %.200q, want %q", got, tc.want)
			}
		})
	}
}

// TestLyingLength: a client that declares more than it sends and leaves is a 499,
// and nothing is accepted.
func TestLyingLength(t *testing.T) {
	f := &fake{}
	s := serveFake(t, f, nil)
	conn := s.dial(t).(*net.TCPConn)
	io.WriteString(conn, post+"Content-Length: 10\r\n\r\nabc")
	conn.CloseWrite()
	got, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(got), "HTTP/1.1 499 ") || !strings.Contains(string(got), "Connection: close") {
		t.Fatalf("%q", got)
	}
	if len(f.accepted) != 0 {
		t.Fatal("half a message was accepted")
	}
}

// TestSlowBody: the read timeout ends a stalled body, but not a long poll.
func TestSlowBody(t *testing.T) {
	f := &fake{}
	s := serveFake(t, f, func(c *config.HTTP) { c.ReadTimeout = 100 * time.Millisecond })
	got := s.raw(t, 10*time.Second, post+"Content-Length: 10\r\n\r\nabc")
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "did not arrive in time") {
		t.Fatalf("%q", got)
	}
	if len(f.accepted) != 0 {
		t.Fatal("half a message was accepted")
	}
	slow := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(400 * time.Millisecond):
			return nil
		}
	}
	f.consume = func(ctx context.Context) ([]model.Delivery, error) { return nil, slow(ctx) }
	f.accept = slow
	s.do(t, "GET", "/v1/topics/t/consume?wait=1s", "").expect(t, 204, "")
	s.do(t, "POST", "/v1/topics/t/produce", "whole body, slow log").expect(t, 202, "")
}

// TestPipelining: requests sent back to back on one connection are answered in
// order.
func TestPipelining(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	got := s.raw(t, 10*time.Second, post+"Content-Length: 1\r\n\r\na"+post+"Content-Length: 1\r\n\r\nb"+
		"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if strings.Count(got, "HTTP/1.1 202 ") != 2 || !strings.HasSuffix(got, "{\"status\":\"ok\"}\n") {
		t.Fatalf("%q", got)
	}
	if strings.Count(got, "Content-Length: 0\r\n") != 2 {
		t.Fatalf("P-1 wants Content-Length: 0: %q", got)
	}
}

// TestZipBombs: what decodes to more than 16 MiB is refused without being held,
// and so is what is longer than that as sent (PB-10).
func TestZipBombs(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	zeros := make([]byte, 1<<20)
	var gz bytes.Buffer
	zw := gzip.NewWriter(&gz)
	var zs bytes.Buffer
	sw, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		zw.Write(zeros)
		sw.Write(zeros)
	}
	zw.Close()
	sw.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for enc, body := range map[string]string{"gzip": gz.String(), "zstd": zs.String()} {
		s.do(t, "POST", "/v1/topics/t/produce/batch", body, "Content-Encoding: "+enc).expect(t, 413, "request body too large")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 160<<20 {
		t.Fatalf("%d MiB allocated for two bombs", grown>>20)
	}
	if n := s.api.batchBudget.used.Load(); n != 0 {
		t.Fatalf("%d bytes of the budget are held", n)
	}
}

// TestPB10_Wire: a compressed body over 16 MiB as sent is refused although next to
// nothing comes out of it, with its length declared or not.
func TestPB10_Wire(t *testing.T) {
	const skip = 17 << 20 // one skippable frame
	body := append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, skip >> 16 & 0xff, skip >> 24}, make([]byte, skip)...)
	for _, declared := range []int64{int64(len(body)), -1} {
		r := &Request{Ctx: t.Context(), Body: bytes.NewReader(body), ContentLength: declared}
		if _, err := new(decoders).readCompressed(r, codingZstd, nil); err != error(errBodyTooLarge) {
			t.Errorf("declared length %d: %v", declared, err)
		}
	}
}

// TestPB12_BadCompression: a body that does not decompress is invalid JSON with
// the decoder's text, a coding nobody knows is 415 (PB-11).
func TestPB12_BadCompression(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	path := "/v1/topics/t/produce/batch"
	for _, enc := range []string{"gzip", "zstd"} {
		s.do(t, "POST", path, `{"messages":[]}`, "Content-Encoding: "+enc).expect(t, 400, `"invalid json: `)
		s.do(t, "POST", path, "\x1f\x8b\x08", "Content-Encoding: "+enc).expect(t, 400, `"invalid json: `)
	}
	for _, enc := range []string{"br", "deflate", "gzip, gzip"} {
		s.do(t, "POST", path, `{}`, "Content-Encoding: "+enc).expect(t, 415, "unsupported Content-Encoding: want zstd, gzip or none")
	}
	for _, enc := range []string{"identity", "Identity", ""} {
		s.do(t, "POST", path, `{}`, "Content-Encoding: "+enc).expect(t, 400, "messages required")
	}
}

// TestCompressedBatch: gzip and zstd bodies of every size class, from pooled
// decoders, give the messages that were sent.
func TestCompressedBatch(t *testing.T) {
	f := &fake{}
	s := serveFake(t, f, nil)
	want := 0
	for _, n := range []int{1, 100, 1000} {
		body := list(n, `{"payload":`+sampleJSON(3000)+`}`)
		var gz bytes.Buffer
		zw := gzip.NewWriter(&gz)
		io.WriteString(zw, body)
		zw.Close()
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		for coding, b := range map[string]string{"gzip": gz.String(), "ZSTD": string(enc.EncodeAll([]byte(body), nil))} {
			s.do(t, "POST", "/v1/topics/t/produce/batch", b, "Content-Encoding: "+coding).expect(t, 202, fmt.Sprintf("{\"accepted\":%d}\n", n))
			want += n
		}
	}
	if len(f.accepted) != want {
		t.Fatalf("%d accepted, want %d", len(f.accepted), want)
	}
	for i, m := range f.accepted {
		if string(m.Payload) != sampleJSON(3000) {
			t.Fatalf("message %d: %.80q", i, m.Payload)
		}
	}
}

// TestLimitListener: surplus connections wait until one is closed, and Close ends
// a waiting Accept.
func TestLimitListener(t *testing.T) {
	s := serveFake(t, &fake{}, func(c *config.HTTP) { c.MaxConnections = 1 })
	first := s.dial(t)
	io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	buf := make([]byte, 512)
	if n, err := first.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200") {
		t.Fatalf("%q %v", buf[:n], err)
	}
	second := s.dial(t)
	io.WriteString(second, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = second.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := second.Read(buf); err == nil {
		t.Fatalf("the second connection was served over the cap: %q", buf[:n])
	}
	if err := (&limitConn{Conn: first}).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := second.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200") {
		t.Fatalf("%q %v", buf[:n], err)
	}
}
