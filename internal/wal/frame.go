package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Sizes of the format (spec/storage-and-produce section 14.1), in bytes.
const (
	headerSize      = 32
	frameHeaderSize = 20

	// BodyMax is the largest body of one record, in bytes.
	BodyMax = 2 << 20
)

const (
	segmentMagic = "NWSEG001"
	frameMagic   = "NWF1"
)

// The length word of a frame: 22 bits of body length (BodyMax needs them all), nine
// of the group's number, one that says the group goes on.
const (
	lengthMask = 1<<22 - 1
	groupShift = 22
	groupMask  = 1<<9 - 1
	moreFlag   = 1 << 31
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errFrameMagic  = errors.New("no frame here")
	errFrameLength = errors.New("body length out of range")
	errFrameShort  = errors.New("frame is cut off")
	errFrameCRC    = errors.New("checksum mismatch")
)

// segmentHeader is the identity of a segment. The salt is new for each use of a
// file, so frames of an earlier use never verify.
type segmentHeader struct {
	salt [8]byte
	base uint64 // seq of the first frame; equals the file name
}

func (h segmentHeader) encode() (b [headerSize]byte) {
	copy(b[:], segmentMagic)
	copy(b[8:], h.salt[:])
	binary.BigEndian.PutUint64(b[16:], h.base)
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

// decodeHeader reports false for anything but a whole, valid header.
func decodeHeader(b []byte) (h segmentHeader, ok bool) {
	if len(b) < headerSize || string(b[:8]) != segmentMagic || binary.BigEndian.Uint32(b[24:]) != 0 ||
		binary.BigEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli) {
		return h, false
	}
	copy(h.salt[:], b[8:])
	h.base = binary.BigEndian.Uint64(b[16:])
	return h, true
}

// saltSum is the state every frame checksum of the segment starts from.
func (h segmentHeader) saltSum() uint32 { return crc32.Update(0, castagnoli, h.salt[:]) }

// group is a frame's place among the group commits of its segment: the number of
// the write it was part of, modulo 512, and whether that write goes on after it.
type group struct {
	number uint16
	more   bool
}

// following is the group that the frame after one of group g belongs to.
func (g group) following() uint16 {
	if g.more {
		return g.number
	}
	return (g.number + 1) & groupMask
}

// frame is a decoded frame header.
type frame struct {
	seq   uint64
	body  int // bytes
	group group
	sum   uint32
}

func (f frame) size() int { return frameHeaderSize + f.body }

// sealFrame completes the header of a staged frame: b starts at the frame, whose
// body and body length are in place.
func sealFrame(b []byte, saltSum uint32, seq uint64, g group) {
	word := binary.BigEndian.Uint32(b[12:])&lengthMask | uint32(g.number&groupMask)<<groupShift
	if g.more {
		word |= moreFlag
	}
	end := frameHeaderSize + int(word&lengthMask)
	copy(b, frameMagic)
	binary.BigEndian.PutUint64(b[4:], seq)
	binary.BigEndian.PutUint32(b[12:], word)
	sum := crc32.Update(saltSum, castagnoli, b[4:16])
	binary.BigEndian.PutUint32(b[16:], crc32.Update(sum, castagnoli, b[frameHeaderSize:end]))
}

// parseFrameHeader decodes the header at the start of b and checks all that can be
// checked without the salt.
func parseFrameHeader(b []byte) (f frame, err error) {
	if len(b) < frameHeaderSize {
		return f, errFrameShort
	}
	if string(b[:4]) != frameMagic {
		return f, errFrameMagic
	}
	word := binary.BigEndian.Uint32(b[12:])
	f = frame{
		seq:   binary.BigEndian.Uint64(b[4:]),
		body:  int(word & lengthMask),
		group: group{number: uint16(word >> groupShift & groupMask), more: word&moreFlag != 0},
		sum:   binary.BigEndian.Uint32(b[16:]),
	}
	if f.body < 1 || f.body > BodyMax {
		return f, fmt.Errorf("%w: %d bytes", errFrameLength, f.body)
	}
	return f, nil
}

// verify checks the checksum of the frame at the start of b.
func (f frame) verify(b []byte, saltSum uint32) error {
	if len(b) < f.size() {
		return errFrameShort
	}
	sum := crc32.Update(saltSum, castagnoli, b[4:16])
	if crc32.Update(sum, castagnoli, b[frameHeaderSize:f.size()]) != f.sum {
		return errFrameCRC
	}
	return nil
}

// nextMagic is the index of the first frame magic in b, or -1.
func nextMagic(b []byte) int { return bytes.Index(b, []byte(frameMagic)) }
