package disk

import (
	"encoding/binary"
	"hash/crc32"
)

// FactSize is the size of a small durable fact on disk, in bytes. It lies within
// one sector, so that an in-place overwrite leaves the old value or the new one.
const FactSize = 16

// FactState says what the bytes of a small durable fact turned out to be.
type FactState uint8

// States of a fact (spec/storage-and-produce section 1, "Small durable facts").
const (
	FactEmpty   FactState = iota // no bytes at all: the file's documented "empty" case
	FactValid                    // the value can be trusted
	FactDamaged                  // anything else: handle as empty, and warn
)

// EncodeFact lays out one int64 as a small durable fact:
//
//	 0         4                    12        16
//	+---------+--------------------+---------+
//	| magic   | value (big endian) | CRC-32C |
//	+---------+--------------------+---------+
//
// The CRC covers the 12 bytes before it. Magics in use: NHW1 (hwm), NCP1
// (dispatch.checkpoint), NCO1 (consumer.offset).
func EncodeFact(magic [4]byte, v int64) (b [FactSize]byte) {
	copy(b[:4], magic[:])
	binary.BigEndian.PutUint64(b[4:12], uint64(v))
	binary.BigEndian.PutUint32(b[12:], factSum(b[:12]))
	return b
}

// DecodeFact reads what EncodeFact wrote. The value is zero unless the state is
// FactValid. Any length but 0 and FactSize, another magic, or a wrong CRC is
// FactDamaged; a zero-filled fact therefore never reads as the value 0.
func DecodeFact(magic [4]byte, b []byte) (v int64, state FactState) {
	if len(b) == 0 {
		return 0, FactEmpty
	}
	if len(b) != FactSize || [4]byte(b[:4]) != magic || binary.BigEndian.Uint32(b[12:]) != factSum(b[:12]) {
		return 0, FactDamaged
	}
	return int64(binary.BigEndian.Uint64(b[4:12])), FactValid
}

func factSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
