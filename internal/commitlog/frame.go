package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/narad-mq/narad/internal/model"
)

// Frame layout and limits (spec/storage-and-produce section 4.2).
const (
	frameHeaderSize  = 27        // bytes before the stored payload
	framePayloadMax  = 1 << 20   // uncompressed bytes the writer puts in one frame of several records
	maxFrameBytes    = 256 << 20 // bound of both length fields, on write and on read
	recordLenSize    = 4         // bytes of the length before each record
	codecNone        = 0
	codecZstd        = 1
	frameCodecMask   = 0b0000_0111
	frameCRCFrom     = 2  // first header byte the CRC covers
	frameCRCTo       = 23 // one past the last
	frameMagic0      = 0xCA
	frameMagic1      = 0xFE
	damageSpanBytes  = 40     // bytes a stored frame takes at least, see jumpMax
	damageSpanOffset = 70_000 // offsets such a frame can hold at most
)

// crc32c extends a CRC-32C. MakeTable answers from a table made once.
func crc32c(crc uint32, b []byte) uint32 {
	return crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), b)
}

// frameHeader is a decoded frame header.
type frameHeader struct {
	codec        uint8
	count        int32 // records
	base         int64 // offset of the first record
	uncompressed int64 // payload bytes before the codec
	compressed   int64 // payload bytes as stored
	crc          uint32
}

// end is the offset after the last record.
func (h frameHeader) end() int64 { return h.base + int64(h.count) }

// size is the bytes of the whole frame in the file.
func (h frameHeader) size() int64 { return frameHeaderSize + h.compressed }

// putFrameHeader fills the first 27 bytes of frame, whose stored payload follows
// them already, CRC included.
func putFrameHeader(frame []byte, h frameHeader) {
	frame[0], frame[1], frame[2] = frameMagic0, frameMagic1, h.codec
	binary.BigEndian.PutUint32(frame[3:], uint32(h.count))
	binary.BigEndian.PutUint64(frame[7:], uint64(h.base))
	binary.BigEndian.PutUint32(frame[15:], uint32(h.uncompressed))
	binary.BigEndian.PutUint32(frame[19:], uint32(h.compressed))
	crc := crc32c(0, frame[frameCRCFrom:frameCRCTo])
	binary.BigEndian.PutUint32(frame[23:], crc32c(crc, frame[frameHeaderSize:]))
}

// parseFrameHeader decodes the header at the start of b and applies every rule
// that needs no payload: whatever it accepts is bounded. reason is "" when the
// header is plausible; only the CRC makes a frame valid.
func parseFrameHeader(b []byte) (h frameHeader, reason string) {
	if len(b) < frameHeaderSize {
		return h, "short header"
	}
	if b[0] != frameMagic0 || b[1] != frameMagic1 {
		return h, "bad magic"
	}
	count := binary.BigEndian.Uint32(b[3:])
	base := binary.BigEndian.Uint64(b[7:])
	h = frameHeader{
		codec:        b[2] & frameCodecMask,
		count:        int32(count),
		base:         int64(base),
		uncompressed: int64(binary.BigEndian.Uint32(b[15:])),
		compressed:   int64(binary.BigEndian.Uint32(b[19:])),
		crc:          binary.BigEndian.Uint32(b[23:]),
	}
	switch {
	case b[2]&^frameCodecMask != 0:
		return h, "reserved flag bits set"
	case h.codec > codecZstd:
		return h, "unknown codec"
	case h.count < 1:
		return h, "record count below 1"
	case h.base < 0 || h.base > offsetMax:
		return h, "base offset out of range"
	case h.uncompressed > maxFrameBytes || h.compressed > maxFrameBytes:
		return h, "length above the limit"
	case recordLenSize*int64(h.count) > h.uncompressed:
		return h, "more records than bytes"
	case h.codec == codecNone && h.compressed != h.uncompressed:
		return h, "lengths differ without a codec"
	}
	return h, ""
}

// frameValid reports whether frame, a header and exactly its stored payload,
// carries the CRC its header states.
func frameValid(h frameHeader, frame []byte) bool {
	crc := crc32c(0, frame[frameCRCFrom:frameCRCTo])
	return crc32c(crc, frame[frameHeaderSize:]) == h.crc
}

// jumpMax is how many offsets a walk may skip over when it resumes behind skipped
// damaged bytes: more than any run of frames this writer makes can hold, so that
// a payload holding the bytes of a frame cannot move the log's end far
// (spec/storage-and-produce section 6).
func jumpMax(skipped int64) int64 {
	return damageSpanOffset * ((skipped + damageSpanBytes - 1) / damageSpanBytes)
}

// decodePayload appends the records of one frame to dst. payload is the
// uncompressed payload, and the records alias it.
func decodePayload(dst []Stored, h frameHeader, payload []byte) ([]Stored, error) {
	for i := range int64(h.count) {
		if len(payload) < recordLenSize {
			return dst, fmt.Errorf("%w: record %d: no length", model.ErrCorrupt, h.base+i)
		}
		n := int64(binary.BigEndian.Uint32(payload))
		payload = payload[recordLenSize:]
		if n > int64(len(payload)) {
			return dst, fmt.Errorf("%w: record %d: %d bytes, %d left in the frame", model.ErrCorrupt, h.base+i, n, len(payload))
		}
		dst = append(dst, decodeEnvelope(h.base+i, payload[:n:n]))
		payload = payload[n:]
	}
	if len(payload) != 0 {
		return dst, fmt.Errorf("%w: frame at offset %d: %d bytes after the last record", model.ErrCorrupt, h.base, len(payload))
	}
	return dst, nil
}
