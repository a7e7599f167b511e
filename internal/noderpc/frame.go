package noderpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of a frame (spec/cluster-and-network section 5.1).
const (
	frameMin     = 9                    // of the length field: type and request id
	frameMax     = 16 << 20             // of the length field, once the stream is authenticated
	authFrameMax = 64                   // of the length field before
	headerSize   = 13                   // length, type, request id
	bodyMax      = frameMax - frameMin  // of a frame's body
	bodyGrain    = 64 << 10             // a longer body is read into a buffer that grows as it comes
	bodyGrowth   = 4                    // by this factor
	joinMax      = 256 << 10            // larger bodies are written without a staging copy
	headersMax   = 64                   // of a response
	headerBytes  = 4 + 4                // least size of a header: two lengths
	replyFixed   = 2 + 4 + 4            // of a response: status and two lengths
	errorTextMax = authFrameMax - 9 - 4 // of an Error frame's message, so that it passes the cap before authentication
)

// frameType is the fifth byte of a frame.
type frameType uint8

const (
	frameAuthClient frameType = 1 + iota
	frameAuthServer
	frameRequest
	frameResponse
	frameError
	frameCancel
	framePing
	framePong
)

// errFrame: bytes that are no frame. The stream cannot go on, for the next frame's start
// is unknown.
var errFrame = errors.New("malformed frame")

// ErrFrameTooLarge: a request that does not fit a frame. Nothing of it was sent.
var ErrFrameTooLarge = errors.New("request too large for a frame")

// Header is a name and a value of a response, meant for the client of the HTTP API.
type Header struct{ Name, Value string }

// Response is the answer to a request, in the vocabulary of HTTP
// (spec/cluster-and-network section 5.1).
type Response struct {
	// Status is an HTTP status.
	Status int
	// ContentType and Body are passed to the client unchanged; both are empty for a
	// status without a body.
	ContentType string
	Body        []byte
	// Header is at most 64 more headers.
	Header []Header
	// Undelivered is of use to the serving side alone: when not nil, it is called at most
	// once if the answer may not have reached its requester, who gave up before, or
	// within two seconds after it was written (spec/cluster-and-network section 6.1).
	Undelivered func()
}

// frameHead is what precedes a body.
type frameHead struct {
	kind frameType
	id   uint64
	size int // of the body
}

// appendHead appends the 13 bytes before a body of h.size bytes.
func appendHead(b []byte, h frameHead) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(frameMin+h.size))
	b = append(b, byte(h.kind))
	return binary.BigEndian.AppendUint64(b, h.id)
}

// readHead reads the 13 bytes before a body into scratch, and holds the length to limit
// before anything is allocated for what follows.
func readHead(r io.Reader, scratch *[headerSize]byte, limit uint32) (frameHead, error) {
	if _, err := io.ReadFull(r, scratch[:]); err != nil {
		return frameHead{}, err
	}
	n := binary.BigEndian.Uint32(scratch[:4])
	if n < frameMin || n > limit {
		return frameHead{}, fmt.Errorf("%w: length %d, want %d to %d", errFrame, n, frameMin, limit)
	}
	return frameHead{
		kind: frameType(scratch[4]),
		id:   binary.BigEndian.Uint64(scratch[5:]),
		size: int(n) - frameMin,
	}, nil
}

// readBody reads n bytes into buf, if it is large enough, or into a new buffer that never
// runs far ahead of what has arrived.
func readBody(r io.Reader, n int, buf []byte) ([]byte, error) {
	if cap(buf) < min(n, bodyGrain) {
		buf = make([]byte, min(n, bodyGrain))
	}
	read := 0
	for {
		buf = buf[:min(n, cap(buf))]
		if _, err := io.ReadFull(r, buf[read:]); err != nil {
			return nil, err
		}
		if read = len(buf); read == n {
			return buf, nil
		}
		grown := make([]byte, min(n, read*bodyGrowth))
		copy(grown, buf)
		buf = grown
	}
}

// size is the number of bytes of the body of a Response frame.
func (r *Response) size() int {
	n := replyFixed + len(r.ContentType) + len(r.Body)
	if len(r.Header) > 0 {
		n += 4
	}
	for _, h := range r.Header {
		n += headerBytes + len(h.Name) + len(h.Value)
	}
	return n
}

// fits reports whether the response may be sent.
func (r *Response) fits() bool { return r.size() <= bodyMax && len(r.Header) <= headersMax }

// encode appends the Response frame for request id to buf; of a large r.Body only what
// goes before it, returning apart what goes after.
func (r *Response) encode(buf []byte, id uint64) (before, after []byte) {
	e := Encoder(appendHead(buf, frameHead{kind: frameResponse, id: id, size: r.size()}))
	e.AppendU16(uint16(r.Status))
	e.AppendStr(r.ContentType)
	e.AppendU32(uint32(len(r.Body)))
	if len(r.Body) <= joinMax {
		e = append(e, r.Body...)
		r.encodeHeader(&e)
		return e, nil
	}
	var tail Encoder
	r.encodeHeader(&tail)
	return e, tail
}

func (r *Response) encodeHeader(e *Encoder) {
	if len(r.Header) == 0 {
		return
	}
	e.AppendU32(uint32(len(r.Header)))
	for _, h := range r.Header {
		e.AppendStr(h.Name)
		e.AppendStr(h.Value)
	}
}

// decodeResponse reads the body of a Response frame; what it returns keeps body. Bytes it
// does not know are ignored: they are a newer release's.
func decodeResponse(body []byte) (Response, error) {
	d := NewDecoder(body)
	r := Response{Status: int(d.U16()), ContentType: d.Str(), Body: d.Bytes()}
	if d.More() {
		n := d.Count(headerBytes)
		if n > headersMax {
			return Response{}, fmt.Errorf("%w: %d headers, at most %d", errFrame, n, headersMax)
		}
		if n > 0 {
			r.Header = make([]Header, 0, n)
		}
		for range n {
			r.Header = append(r.Header, Header{Name: d.Str(), Value: d.Str()})
		}
	}
	if err := d.Err(); err != nil {
		return Response{}, fmt.Errorf("%w: response: %w", errFrame, err)
	}
	return r, nil
}

// decodeError reads the message of an Error frame, after which nothing may follow.
func decodeError(body []byte) (string, error) {
	d := NewDecoder(body)
	text := d.Str()
	if err := d.Done(); err != nil {
		return "", fmt.Errorf("%w: error: %w", errFrame, err)
	}
	return text, nil
}
