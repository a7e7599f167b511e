package commitlog

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/narad-mq/narad/internal/model"
)

// zstdWindow bounds what an encoder keeps; a frame is rarely larger.
const zstdWindow = framePayloadMax

// Codec compresses the payloads of new frames and reads every codec. One value is
// made per process and handed to all logs: it holds one encoder and one decoder,
// both safe for concurrent use. The zero value writes uncompressed frames.
type Codec struct {
	enc *zstd.Encoder // nil = codec none
	dec *zstdDecoder
}

// zstdDecoder makes its decoder when the first compressed frame is read, so that
// a node that compresses nothing pays nothing.
type zstdDecoder struct {
	once sync.Once
	dec  *zstd.Decoder
	err  error
}

// NewCodec makes the codec storage.codec and storage.compression_level name:
// "none" or "zstd", and "fastest", "default", "better" or "best"
// (spec/storage-and-produce section 4.2). An empty name is its default.
func NewCodec(name, level string) (Codec, error) {
	c := Codec{dec: &zstdDecoder{}}
	levels := map[string]zstd.EncoderLevel{
		"": zstd.SpeedFastest, "fastest": zstd.SpeedFastest, "default": zstd.SpeedDefault,
		"better": zstd.SpeedBetterCompression, "best": zstd.SpeedBestCompression,
	}
	l, ok := levels[level]
	if !ok {
		return Codec{}, fmt.Errorf("%w: storage.compression_level %q: want fastest, default, better or best", model.ErrInvalid, level)
	}
	switch name {
	case "", "none":
		return c, nil
	case "zstd":
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderCRC(false), zstd.WithWindowSize(zstdWindow))
		if err != nil {
			return Codec{}, fmt.Errorf("zstd encoder: %w", err)
		}
		c.enc = enc
		return c, nil
	}
	return Codec{}, fmt.Errorf("%w: storage.codec %q: want none or zstd", model.ErrInvalid, name)
}

// encode appends the stored payload for raw to dst and says which codec it used:
// raw itself when compressing gains nothing.
func (c Codec) encode(dst, raw []byte) ([]byte, uint8) {
	if c.enc == nil {
		return append(dst, raw...), codecNone
	}
	n := len(dst)
	if dst = c.enc.EncodeAll(raw, dst); len(dst)-n < len(raw) {
		return dst, codecZstd
	}
	return append(dst[:n], raw...), codecNone
}

// decode appends the uncompressed payload of a frame to dst, which must have room
// for h.uncompressed bytes: a payload that decodes to more is refused, not grown for.
func (c Codec) decode(dst []byte, h frameHeader, stored []byte) ([]byte, error) {
	if h.codec == codecNone {
		return append(dst, stored...), nil
	}
	z := c.dec
	z.once.Do(func() {
		z.dec, z.err = zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxFrameBytes))
	})
	if z.err != nil {
		return dst, fmt.Errorf("zstd decoder: %w", z.err)
	}
	n := len(dst)
	out, err := z.dec.DecodeAll(stored, dst[n:n:n+int(h.uncompressed)])
	if err != nil {
		return dst, fmt.Errorf("%w: frame at offset %d: %w", model.ErrCorrupt, h.base, err)
	}
	if int64(len(out)) != h.uncompressed {
		return dst, fmt.Errorf("%w: frame at offset %d decodes to %d bytes, header says %d",
			model.ErrCorrupt, h.base, len(out), h.uncompressed)
	}
	return dst[:n+len(out)], nil
}
