package noderpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Refusals of the codec.
var (
	// ErrTruncated: a field reaches past the end of what was received.
	ErrTruncated = errors.New("truncated data")
	// ErrTrailing: bytes follow the last field known here, so the sender is of a newer
	// release. The answer to a request is a 400 with this text, decided before anything
	// else of it is looked at (spec/cluster-and-network section 5.2).
	ErrTrailing = errors.New("trailing data")
	// ErrPartition: a partition number that does not fit its field.
	ErrPartition = errors.New("partition number out of range")
)

// Encoder is the bytes encoded so far: the fields of an operation, big-endian, in order
// (spec/cluster-and-network section 5.1). Its zero value is ready; to recycle a buffer
// convert it, Encoder(buf[:0]).
type Encoder []byte

// AppendU8 appends one byte.
func (e *Encoder) AppendU8(v uint8) { *e = append(*e, v) }

// AppendBool appends 1 for true and 0 for false.
func (e *Encoder) AppendBool(v bool) {
	if v {
		e.AppendU8(1)
		return
	}
	e.AppendU8(0)
}

// AppendU16 appends two bytes.
func (e *Encoder) AppendU16(v uint16) { *e = binary.BigEndian.AppendUint16(*e, v) }

// AppendU32 appends four bytes; it is also the count before a list's items.
func (e *Encoder) AppendU32(v uint32) { *e = binary.BigEndian.AppendUint32(*e, v) }

// AppendU64 appends eight bytes.
func (e *Encoder) AppendU64(v uint64) { *e = binary.BigEndian.AppendUint64(*e, v) }

// AppendI32 appends four bytes.
func (e *Encoder) AppendI32(v int32) { e.AppendU32(uint32(v)) }

// AppendI64 appends eight bytes.
func (e *Encoder) AppendI64(v int64) { e.AppendU64(uint64(v)) }

// AppendPartition appends an i32 partition number, -1 meaning any, and refuses one out
// of range with ErrPartition, having appended nothing.
func (e *Encoder) AppendPartition(p int) error {
	if p < -1 || p > math.MaxInt32 {
		return fmt.Errorf("%w: %d", ErrPartition, p)
	}
	e.AppendI32(int32(p))
	return nil
}

// AppendStr appends a length of four bytes and the string. What does not fit a frame is
// refused when it is sent.
func (e *Encoder) AppendStr(s string) {
	e.AppendU32(uint32(len(s)))
	*e = append(*e, s...)
}

// AppendBytes appends a length of four bytes and b.
func (e *Encoder) AppendBytes(b []byte) {
	e.AppendU32(uint32(len(b)))
	*e = append(*e, b...)
}

// AppendOptBytes appends 0 for nil, or 1 and b, so that an empty b stays apart from none.
func (e *Encoder) AppendOptBytes(b []byte) {
	e.AppendBool(b != nil)
	if b != nil {
		e.AppendBytes(b)
	}
}

// Decoder reads what an Encoder wrote. The first failure sticks: later readers return
// zero values, so a message is read in one go and Err or Done asked once. It never
// allocates by a length or count it has not held against the bytes left.
type Decoder struct {
	left []byte
	err  error
}

// NewDecoder reads b, which it does not copy.
func NewDecoder(b []byte) *Decoder { return &Decoder{left: b} }

func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.left) {
		d.err = fmt.Errorf("%w: a field of %d bytes, %d left", ErrTruncated, n, len(d.left))
		return nil
	}
	b := d.left[:n:n]
	d.left = d.left[n:]
	return b
}

// U8 reads one byte.
func (d *Decoder) U8() uint8 {
	b := d.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Bool reads one byte; everything but 0 is true.
func (d *Decoder) Bool() bool { return d.U8() != 0 }

// U16 reads two bytes.
func (d *Decoder) U16() uint16 {
	b := d.take(2)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// U32 reads four bytes. For the count of a list use Count.
func (d *Decoder) U32() uint32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// U64 reads eight bytes.
func (d *Decoder) U64() uint64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// I32 reads four bytes.
func (d *Decoder) I32() int32 { return int32(d.U32()) }

// I64 reads eight bytes.
func (d *Decoder) I64() int64 { return int64(d.U64()) }

// Count reads the number of items of a list whose items take at least min bytes each, at
// least one, and fails when the bytes left cannot hold them: only then may the caller
// allocate for them.
func (d *Decoder) Count(min int) int {
	n := uint64(d.U32())
	if d.err == nil && n*uint64(max(min, 1)) > uint64(len(d.left)) {
		d.err = fmt.Errorf("%w: a list of %d items of at least %d bytes, %d left", ErrTruncated, n, max(min, 1), len(d.left))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// Bytes reads a length and that many bytes. They belong to the decoded message: copy what
// outlives it.
func (d *Decoder) Bytes() []byte { return d.take(d.Count(1)) }

// Str reads a length and a string of that many bytes.
func (d *Decoder) Str() string { return string(d.Bytes()) }

// OptBytes reads what AppendOptBytes wrote: nil for none, never nil for an empty one. The
// bytes belong to the decoded message.
func (d *Decoder) OptBytes() []byte {
	if !d.Bool() {
		return nil
	}
	return d.Bytes()
}

// More reports whether optional trailing fields follow.
func (d *Decoder) More() bool { return d.err == nil && len(d.left) > 0 }

// Err is the first failure, nil while there is none. It is what a reader of responses
// asks, who ignores trailing bytes.
func (d *Decoder) Err() error { return d.err }

// Done is what a reader of requests asks after the last field: the first failure, or
// ErrTrailing when bytes are left.
func (d *Decoder) Done() error {
	if d.err == nil && len(d.left) > 0 {
		return fmt.Errorf("%w: %d bytes after the last field", ErrTrailing, len(d.left))
	}
	return d.err
}
