package noderpc

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestFrameGolden fixes the bytes of a frame of each shape (spec/cluster-and-network
// section 5.1).
func TestFrameGolden(t *testing.T) {
	response := Response{Status: 503, ContentType: "a/b", Body: []byte{0xca, 0xfe}}
	plain, _ := response.encode(nil, 7)
	response.Header = []Header{{"k", "v"}}
	headed, _ := response.encode(nil, 7)
	empty, _ := (&Response{Status: 204}).encode(nil, math.MaxUint64)
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"auth", "00000029" + "01" + "0000000000000000", appendHead(nil, frameHead{kind: frameAuthClient, size: macSize})},
		{"request", "0000000a" + "03" + "0000000000000102", appendHead(nil, frameHead{kind: frameRequest, id: 0x102, size: 1})},
		{"response", "00000018" + "04" + "0000000000000007" + "01f7" + "00000003612f62" + "00000002cafe", plain},
		{"response with headers", "00000026" + "04" + "0000000000000007" + "01f7" + "00000003612f62" + "00000002cafe" + "00000001" + "000000016b" + "0000000176", headed},
		{"response without a body", "00000013" + "04" + "ffffffffffffffff" + "00cc" + "00000000" + "00000000", empty},
		{"error", "00000010" + "05" + "0000000000000005" + "00000003626164", errorFrame(5, "bad")},
		{"cancel", "00000009" + "06" + "0000000000000009", appendHead(nil, frameHead{kind: frameCancel, id: 9})},
		{"ping", "00000009" + "07" + "0000000000000009", appendHead(nil, frameHead{kind: framePing, id: 9})},
		{"pong", "00000009" + "08" + "0000000000000009", appendHead(nil, frameHead{kind: framePong, id: 9})},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: encoded\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// TestResponseSizeIsExact: the length is written before the body is.
func TestResponseSizeIsExact(t *testing.T) {
	for _, r := range []Response{
		{Status: 200}, {Status: 200, ContentType: "x", Body: make([]byte, 9)},
		{Status: 200, Body: make([]byte, joinMax+1), Header: []Header{{"a", "b"}, {"", ""}}},
	} {
		before, after := r.encode(nil, 1)
		n := len(before) + len(after) - headerSize
		if len(r.Body) > joinMax {
			n += len(r.Body)
		}
		if n != r.size() || int(binary.BigEndian.Uint32(before)) != frameMin+n {
			t.Errorf("%d bytes encoded, size %d, length field %d", n, r.size(), binary.BigEndian.Uint32(before))
		}
	}
}

// TestHeadBounds holds the length field to both caps, at the bound and past it, before
// anything that follows is read.
func TestHeadBounds(t *testing.T) {
	for _, c := range []struct {
		length, limit uint32
		ok            bool
	}{
		{0, frameMax, false}, {frameMin - 1, frameMax, false}, {frameMin, frameMax, true},
		{frameMax, frameMax, true}, {frameMax + 1, frameMax, false}, {math.MaxUint32, frameMax, false},
		{authFrameMax, authFrameMax, true}, {authFrameMax + 1, authFrameMax, false}, {frameMax, authFrameMax, false},
	} {
		b := binary.BigEndian.AppendUint32(nil, c.length)
		r := bytes.NewReader(append(b, make([]byte, 9)...))
		var scratch [headerSize]byte
		head, err := readHead(r, &scratch, c.limit)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, errFrame) {
			t.Errorf("length %d under a cap of %d: %v", c.length, c.limit, err)
		}
		if c.ok && head.size != int(c.length)-frameMin {
			t.Errorf("length %d: body of %d bytes", c.length, head.size)
		}
	}
}

// TestBodyGrowsAsItComes: a declared length alone costs one grain.
func TestBodyGrowsAsItComes(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readBody(bytes.NewReader(make([]byte, 100)), bodyMax, nil)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*bodyGrain {
		t.Errorf("%d bytes allocated for a body of 100 bytes that declares %d", n, bodyMax)
	}
	for _, n := range []int{0, 1, bodyGrain - 1, bodyGrain, bodyGrain + 1, 5 * bodyGrain, 1 << 20} {
		want := bytes.Repeat([]byte{1, 2, 3}, n/3+1)[:n]
		for _, buf := range [][]byte{nil, make([]byte, 0, 4<<10), make([]byte, 0, 1<<20)} {
			got, err := readBody(bytes.NewReader(append(want, 9)), n, buf)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes into a buffer of %d: %d bytes, %v", n, cap(buf), len(got), err)
			}
		}
	}
}

// TestResponseCorruption changes each byte of a response: it decodes to something else or
// is refused, and never panics.
func TestResponseCorruption(t *testing.T) {
	r := Response{Status: 200, ContentType: "a/b", Body: []byte("body"), Header: []Header{{"name", "value"}}}
	frame, _ := r.encode(nil, 1)
	whole := frame[headerSize:]
	if got, err := decodeResponse(whole); err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("decoded %+v, %v", got, err)
	}
	for i := range whole {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			bad := bytes.Clone(whole)
			bad[i] ^= flip
			if got, err := decodeResponse(bad); err == nil && reflect.DeepEqual(got, r) {
				t.Errorf("byte %d changed by %x goes unnoticed", i, flip)
			} else if err != nil && !errors.Is(err, errFrame) {
				t.Errorf("byte %d changed by %x: %v, want errFrame", i, flip, err)
			}
		}
	}
	minimum := replyFixed + len(r.ContentType) + len(r.Body)
	for cut := range whole {
		_, err := decodeResponse(whole[:cut])
		if ok := cut == minimum; (err == nil) != ok {
			t.Errorf("cut at %d of %d: %v", cut, len(whole), err)
		}
	}
	if got, err := decodeResponse(append(bytes.Clone(whole), 1, 2, 3)); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("with a newer release's bytes behind it: %+v, %v", got, err)
	}
}

func TestResponseHeaderBound(t *testing.T) {
	for n, ok := range map[int]bool{headersMax: true, headersMax + 1: false} {
		r := Response{Status: 200, Header: make([]Header, n)}
		frame, _ := r.encode(nil, 1)
		if _, err := decodeResponse(frame[headerSize:]); (err == nil) != ok {
			t.Errorf("%d headers: %v", n, err)
		}
		if r.fits() != ok {
			t.Errorf("%d headers may be sent: %v", n, r.fits())
		}
	}
}

func TestResponseFits(t *testing.T) {
	r := Response{Status: 200, Body: make([]byte, bodyMax-replyFixed)}
	if !r.fits() {
		t.Error("a response that fills a frame is refused")
	}
	r.ContentType = "x"
	if r.fits() {
		t.Error("a response one byte over is not")
	}
}

func TestErrorFrame(t *testing.T) {
	frame := errorFrame(1, strings.Repeat("x", 200))
	if len(frame)-4 != authFrameMax {
		t.Errorf("a long text makes a frame of length %d, want it cut to %d", len(frame)-4, authFrameMax)
	}
	body := errorFrame(1, "text")[headerSize:]
	if text, err := decodeError(body); err != nil || text != "text" {
		t.Errorf("decoded %q, %v", text, err)
	}
	if _, err := decodeError(append(body, 0)); !errors.Is(err, ErrTrailing) {
		t.Errorf("bytes behind an error: %v, want ErrTrailing", err)
	}
	if _, err := decodeError(body[:3]); !errors.Is(err, errFrame) {
		t.Errorf("cut error: %v", err)
	}
}

// FuzzFrames reads frames until the input makes none, as the read loops do.
func FuzzFrames(f *testing.F) {
	r := Response{Status: 200, ContentType: "a/b", Body: []byte("body"), Header: []Header{{"name", "value"}}}
	frame, _ := r.encode(nil, 1)
	f.Add(append(frame, errorFrame(2, "text")...))
	f.Add(appendHead(nil, frameHead{kind: frameRequest, id: 1, size: bodyMax}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		reader := bytes.NewReader(in)
		var scratch [headerSize]byte
		for {
			head, err := readHead(reader, &scratch, frameMax)
			if err != nil {
				return
			}
			body, err := readBody(reader, head.size, nil)
			if err != nil {
				return
			}
			if len(body) != head.size {
				t.Fatalf("%d bytes read, %d declared", len(body), head.size)
			}
			_ = decodeAnswer(head.kind, body)
		}
	})
}

// FuzzResponse: what decodes survives being encoded and decoded again.
func FuzzResponse(f *testing.F) {
	r := Response{Status: 200, ContentType: "a/b", Body: []byte("body"), Header: []Header{{"name", "value"}}}
	frame, _ := r.encode(nil, 1)
	f.Add(frame[headerSize:])
	f.Add([]byte{0, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := decodeResponse(in)
		if err != nil {
			return
		}
		if len(r.Body) > joinMax {
			return
		}
		again, _ := r.encode(nil, 1)
		back, err := decodeResponse(again[headerSize:])
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%+v came back as %+v, %v", r, back, err)
		}
	})
}

// FuzzProof: no bytes but the right ones pass for a proof, however the frame is made.
func FuzzProof(f *testing.F) {
	want := bytes.Repeat([]byte{7}, macSize)
	right := append(appendHead(nil, frameHead{kind: frameAuthClient, size: macSize}), want...)
	f.Add(right)
	f.Add(append(appendHead(nil, frameHead{kind: frameAuthServer, size: macSize}), want...))
	f.Add(right[:20])
	f.Fuzz(func(t *testing.T, in []byte) {
		err := readProof(bytes.NewReader(in), frameAuthClient, want)
		if ok := bytes.HasPrefix(in, right); (err == nil) != ok {
			t.Fatalf("%x: %v", in, err)
		}
	})
}

// TestProofAllocatesNothingByLength: what a stranger declares is refused from the stack.
func TestProofAllocatesNothingByLength(t *testing.T) {
	for name, length := range map[string]uint32{"one over": authFrameMax + 1, "frame cap": frameMax, "4 GiB": math.MaxUint32, "short": 3} {
		in := append(binary.BigEndian.AppendUint32(nil, length), make([]byte, 100)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			if err := readProof(bytes.NewReader(in), frameAuthClient, make([]byte, macSize)); !errors.Is(err, errFrame) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / 100; n > 1024 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}
