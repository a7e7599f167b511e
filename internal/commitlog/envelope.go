package commitlog

import "encoding/binary"

// Record envelope (spec/storage-and-produce section 4.3).
const (
	envelopeVersion = 2
	envelopeMin     = 1 + 1 + 8 // version, a one-byte key length, commit time
	offsetMax       = 1 << 62   // no log gets here; a larger offset on disk is damage
)

// Record is one record to commit. The log keeps Key and Payload: the caller must
// not write to them once Commit was called.
type Record struct {
	Key, Payload []byte // an empty key is no key
	CommittedAt  int64  // Unix milliseconds; raised to the newest commit time of the log
}

// Stored is one committed record. Key and Payload alias memory that is never
// written again, so they may be kept, and must not be written to.
type Stored struct {
	Offset       int64
	Key, Payload []byte // Key is nil when there is none
	CommittedAt  int64  // Unix milliseconds
	damaged      bool   // the frame checks out, the envelope does not decode
}

// envelopeSize is the bytes of r as stored, without its length prefix.
func envelopeSize(r *Record) int64 {
	var b [binary.MaxVarintLen64]byte
	return 1 + int64(binary.PutUvarint(b[:], uint64(len(r.Key)))) + int64(len(r.Key)) + 8 + int64(len(r.Payload))
}

// appendRecord appends the length prefix and the envelope of r.
func appendRecord(dst []byte, r *Record) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(envelopeSize(r)))
	dst = append(dst, envelopeVersion)
	dst = binary.AppendUvarint(dst, uint64(len(r.Key)))
	dst = append(dst, r.Key...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.CommittedAt))
	return append(dst, r.Payload...)
}

// decodeEnvelope decodes one record; the result aliases b. One that does not
// decode is marked damaged: it reads as a damaged record and hides no neighbour.
func decodeEnvelope(offset int64, b []byte) Stored {
	bad := Stored{Offset: offset, damaged: true}
	if len(b) < envelopeMin || b[0] != envelopeVersion {
		return bad
	}
	keyLen, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return bad
	}
	rest := b[1+n:]
	if len(rest) < 8 || keyLen > uint64(len(rest)-8) {
		return bad
	}
	rec := Stored{Offset: offset}
	if keyLen > 0 {
		rec.Key = rest[:keyLen:keyLen]
	}
	rec.CommittedAt = int64(binary.BigEndian.Uint64(rest[keyLen:]))
	rec.Payload = rest[keyLen+8:]
	return rec
}
