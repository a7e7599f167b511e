package httpapi

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Bounds of request bodies in bytes (spec/http-api section 5.2).
const (
	bodyMax      = 1 << 20  // LIM-1, and one message (LIM-3)
	batchBodyMax = 16 << 20 // LIM-2, as sent and once decoded
	ackBodyMax   = 64 << 10 // LIM-4
)

// A body of at most exactMax declared bytes is read into one buffer of exactly
// its size; any other starts at exactMax and grows growth-fold as bytes arrive,
// so that a stalled upload pins at most max(64 KiB, 4 x the bytes received).
const (
	exactMax = 64 << 10
	growth   = 4
)

// readBody reads a whole body of at most limit bytes; one byte more is refused
// with over. The buffer is the caller's.
func readBody(r *Request, limit int, over fixed, hold *budgetHold) ([]byte, error) {
	n := r.ContentLength
	switch {
	case n > int64(limit):
		return nil, over
	case n == 0:
		return nil, nil
	case n > 0 && n <= exactMax:
		buf := make([]byte, n)
		if _, err := io.ReadFull(r.Body, buf); err != nil {
			return nil, bodyError(r, err)
		}
		return buf, nil
	}
	buf, err := readGrowing(r.Body, n, limit, over, hold)
	if err != nil {
		return nil, bodyError(r, err)
	}
	return buf, nil
}

// readGrowing reads src to its end. declared is its length if known (else
// negative) and only bounds the last growth step.
func readGrowing(src io.Reader, declared int64, limit int, over fixed, hold *budgetHold) ([]byte, error) {
	size := exactMax
	ceiling := limit + 1 // one more byte than allowed proves that there are more
	if declared > 0 && declared <= int64(limit) {
		ceiling = int(declared) + 1
	}
	buf := make([]byte, 0, min(size, ceiling))
	for {
		if len(buf) == cap(buf) {
			size = min(size*growth, ceiling)
			buf = append(make([]byte, 0, size), buf...)
		}
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > limit {
			return nil, over
		}
		if e := hold.cover(len(buf)); e != nil {
			return nil, e
		}
		if err == io.EOF {
			return trim(buf), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// trim frees the unused part of a buffer that is mostly unused: stored payloads
// alias the buffer until they are committed.
func trim(buf []byte) []byte {
	if len(buf) < cap(buf)/2 {
		return append(make([]byte, 0, len(buf)), buf...)
	}
	return buf
}

// bodyError turns a failed read into the answer: the client's absence is not an
// error of its request, a stalled or malformed body is.
func bodyError(r *Request, err error) error {
	var ref fixed
	var timeout net.Error
	switch {
	case errors.As(err, &ref):
		return ref
	case errors.As(err, &timeout) && timeout.Timeout(): // first: net/http ends Ctx then too
		return errBodyTimeout
	case r.Ctx.Err() != nil, errors.Is(err, io.ErrUnexpectedEOF):
		return errClientGone
	}
	return errBodyUnreadable
}

// coding is a Content-Encoding of a batch body.
type coding uint8

const (
	codingNone coding = iota
	codingGzip
	codingZstd
)

func parseCoding(v string) (coding, error) {
	switch v = strings.Trim(v, " \t"); {
	case v == "" || strings.EqualFold(v, "identity"):
		return codingNone, nil
	case strings.EqualFold(v, "gzip"):
		return codingGzip, nil
	case strings.EqualFold(v, "zstd"):
		return codingZstd, nil
	}
	return codingNone, errEncoding
}

// wire is a compressed body on its way to a decoder: it refuses a body that is
// too long as sent, and remembers what went wrong on the network side, which a
// decoder's error may hide.
type wire struct {
	src  io.Reader
	left int64
	err  error // other than io.EOF
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.src.Read(p)
	w.left -= int64(n)
	if w.left < 0 {
		err = errBodyTooLarge
	}
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// readCompressed reads a batch body through its decoder. Both sides are bounded;
// what is held in memory, and counted against hold, is the decoded one.
func (p *decoders) readCompressed(r *Request, enc coding, hold *budgetHold) ([]byte, error) {
	if r.ContentLength > batchBodyMax {
		return nil, errBodyTooLarge
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	w := &wire{src: r.Body, left: batchBodyMax}
	defer func() { w.src = nil }() // a pooled decoder may still hold w
	buf, err := p.decode(w, enc, hold)
	var ref fixed
	switch {
	case err == nil:
		return buf, nil
	case w.err != nil:
		return nil, bodyError(r, w.err)
	case errors.As(err, &ref):
		return nil, ref
	}
	return nil, invalidJSON(err.Error())
}

// decoders pools decompressors; their windows are the expensive part.
type decoders struct {
	gzip sync.Pool // *gzip.Reader
	zstd sync.Pool // *zstd.Decoder
}

func (p *decoders) decode(src io.Reader, enc coding, hold *budgetHold) ([]byte, error) {
	if enc == codingGzip {
		return p.gunzip(src, hold)
	}
	return p.unzstd(src, hold)
}

func (p *decoders) gunzip(src io.Reader, hold *budgetHold) ([]byte, error) {
	z, _ := p.gzip.Get().(*gzip.Reader)
	if z == nil {
		z = new(gzip.Reader)
	}
	defer p.gzip.Put(z)
	if err := z.Reset(src); err != nil {
		return nil, err
	}
	return readGrowing(z, -1, batchBodyMax, errBodyTooLarge, hold)
}

func (p *decoders) unzstd(src io.Reader, hold *budgetHold) ([]byte, error) {
	z, _ := p.zstd.Get().(*zstd.Decoder)
	if z == nil {
		var err error
		// One decoder, no goroutines: a pooled one that is dropped needs no Close.
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(batchBodyMax))
		if err != nil {
			return nil, err
		}
	}
	defer p.zstd.Put(z)
	if err := z.Reset(src); err != nil {
		return nil, err
	}
	return readGrowing(z, -1, batchBodyMax, errBodyTooLarge, hold)
}
