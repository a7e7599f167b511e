package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Record is a message on its way to its partition: what the ingress WAL holds
// and what an owner is asked to commit. Slices are owned by the record and never
// written again once it was accepted.
type Record struct {
	Key         []byte // nil or empty = no key
	Payload     []byte
	AcceptedAt  int64       // Unix milliseconds; for latency metrics only
	Incarnation Incarnation // life of the topic it was accepted for; "" = by name
}

// Message is a record as stored in a partition.
type Message struct {
	Topic       string
	Partition   int
	Offset      int64
	Key         []byte // nil = no key
	Payload     []byte
	CommittedAt int64 // Unix milliseconds, stamped by the owner
}

// Delivery is one lease of a message.
type Delivery struct {
	Message
	Handle Handle
	Count  int // 1 for the first delivery this owner process made of the record
}

// Handle is a receipt handle: it names one delivery, not one message. Its text
// form is partition:offset:nonce, three unsigned decimals (spec/consume section 4).
type Handle struct {
	Partition int
	Offset    int64
	Nonce     int64 // 1 to 2^63-1
}

// HandleTextMax bounds the text form of a handle, in bytes.
const HandleTextMax = 64

// AppendTo appends the text form.
func (h Handle) AppendTo(dst []byte) []byte {
	dst = strconv.AppendInt(dst, int64(h.Partition), 10)
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, h.Offset, 10)
	dst = append(dst, ':')
	return strconv.AppendInt(dst, h.Nonce, 10)
}

func (h Handle) String() string { return string(h.AppendTo(nil)) }

// ParseHandle decodes a handle; every failure is ErrBadHandle: more or fewer
// than two colons, anything but digits, a leading zero, more than 64 bytes, or a
// value out of range (spec/consume section 4).
func ParseHandle(s string) (Handle, error) {
	if len(s) > HandleTextMax {
		return Handle{}, fmt.Errorf("%w: %d bytes, at most %d", ErrBadHandle, len(s), HandleTextMax)
	}
	p, rest, ok1 := strings.Cut(s, ":")
	o, n, ok2 := strings.Cut(rest, ":")
	if !ok1 || !ok2 {
		return Handle{}, ErrBadHandle
	}
	part, err1 := handleField(p, 1<<31-1)
	off, err2 := handleField(o, 1<<63-1)
	nonce, err3 := handleField(n, 1<<63-1)
	if err1 != nil || err2 != nil || err3 != nil || nonce == 0 {
		return Handle{}, ErrBadHandle
	}
	return Handle{Partition: int(part), Offset: off, Nonce: nonce}, nil
}

func handleField(s string, limit int64) (int64, error) {
	if s == "" || len(s) > 1 && s[0] == '0' {
		return 0, ErrBadHandle
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, ErrBadHandle
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v > limit {
		return 0, ErrBadHandle
	}
	return v, nil
}

// SettleOp is what a consumer asks of a lease.
type SettleOp uint8

// The three settlements, numbered as on the wire (spec/consume section 9).
const (
	Ack SettleOp = iota
	Extend
	Nack
)

func (o SettleOp) String() string {
	switch o {
	case Ack:
		return "ack"
	case Extend:
		return "extend"
	case Nack:
		return "nack"
	}
	return fmt.Sprintf("settle op %d", uint8(o))
}

// Run is a half-open range of offsets [Start, End), Start < End.
type Run struct {
	Start, End int64
}

// Position is the settled state of one partition: everything up to and including
// Committed is resolved (-1 = nothing), and so are the offsets of Ahead, which is
// ascending, non-overlapping, non-adjacent, and lies above Committed+1.
type Position struct {
	Committed int64
	Ahead     []Run
}

// NoPosition is the state of a partition nobody has acked in.
func NoPosition() Position { return Position{Committed: -1} }

// PartitionStats describes one partition; field order is the order of emission
// (spec/http-api section 7.3). A partition that could not be asked has zero numbers.
type PartitionStats struct {
	Index           int    `json:"index"`
	Segments        int    `json:"segments"`
	OldestOffset    int64  `json:"oldest_offset"`
	NextOffset      int64  `json:"next_offset"` // may lead HighWatermark during a commit
	HighWatermark   int64  `json:"high_watermark"`
	SizeBytes       int64  `json:"size_bytes"`
	OldestSegmentAt int64  `json:"oldest_segment_at,omitempty"` // Unix seconds
	OwnerNode       string `json:"owner_node"`
	Status          string `json:"status"` // ok, owner_unavailable
	OwnerLiveness   string `json:"owner_liveness,omitempty"`
}
