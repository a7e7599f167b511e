package ingress

import (
	"encoding/binary"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// Body formats (spec/storage-and-produce section 14.2). Zero is never legal.
const (
	formatByName = 1 // a topic record without an id
	formatByID   = 2
)

// Limits of a record body.
const (
	bodyBytesMax   = 2 << 20 // what one WAL frame carries
	partitionMax   = 1<<31 - 1
	incarnationLen = 16  // hex characters
	recordOverhead = 160 // bytes of memory a held record costs besides key and payload
)

// record is one accepted message from the moment it is staged until it is done.
// The accepting goroutine builds it, the WAL encodes it once, and after
// OnDurable it belongs to the dispatcher alone.
type record struct {
	model.Record
	topic     string // the topic record's own string, never a request buffer
	partition int32
}

// Size returns the exact number of bytes AppendTo appends.
func (r *record) Size() int {
	n := 1 + 4 + len(r.topic) + 4 + len(r.Key) + 4 + 8 + 4 + len(r.Payload)
	if r.Incarnation != "" {
		n += 4 + len(r.Incarnation)
	}
	return n
}

// AppendTo appends the record body.
func (r *record) AppendTo(dst []byte) []byte {
	if r.Incarnation == "" {
		dst = appendString(append(dst, formatByName), r.topic)
	} else {
		dst = appendString(append(dst, formatByID), r.topic)
		dst = appendString(dst, string(r.Incarnation))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Key)))
	dst = append(dst, r.Key...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.partition))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.AcceptedAt))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Payload)))
	return append(dst, r.Payload...)
}

func appendString(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// memory is what holding the record costs, in bytes.
func (r *record) memory() int64 {
	return int64(len(r.Key)+len(r.Payload)) + recordOverhead
}

// release drops the message's bytes, so that a record of a batch whose siblings
// are still held does not keep its payload alive.
func (r *record) release() { r.Key, r.Payload = nil, nil }

// fields is a record body taken apart; every slice aliases the body.
type fields struct {
	topic, incarnation, key, payload []byte
	partition                        int32
	acceptedAt                       int64
}

// decodeFields parses a record body strictly: every byte is accounted for, and
// every failure is model.ErrCorrupt.
func decodeFields(body []byte) (fields, error) {
	c := cursor{rest: body}
	var f fields
	format := c.byte()
	f.topic = c.bytes()
	switch {
	case c.short:
	case format == formatByID:
		f.incarnation = c.bytes()
	case format != formatByName:
		return fields{}, fmt.Errorf("%w: ingress record format %d, want %d or %d",
			model.ErrCorrupt, format, formatByName, formatByID)
	}
	f.key = c.bytes()
	partition := c.uint32()
	f.acceptedAt = int64(c.uint64())
	f.payload = c.bytes()
	switch {
	case c.short:
		return fields{}, fmt.Errorf("%w: ingress record of %d bytes ends inside a field", model.ErrCorrupt, len(body))
	case len(c.rest) != 0:
		return fields{}, fmt.Errorf("%w: ingress record of %d bytes has %d bytes too many",
			model.ErrCorrupt, len(body), len(c.rest))
	case partition > partitionMax:
		return fields{}, fmt.Errorf("%w: ingress record has partition %d, at most %d",
			model.ErrCorrupt, partition, partitionMax)
	case len(f.topic) == 0 || len(f.topic) > model.TopicNameStoredMax:
		return fields{}, fmt.Errorf("%w: ingress record has a topic name of %d bytes, want 1 to %d",
			model.ErrCorrupt, len(f.topic), model.TopicNameStoredMax)
	}
	if format == formatByID {
		if _, err := model.ParseIncarnation(string(f.incarnation)); err != nil {
			return fields{}, fmt.Errorf("%w: ingress record: %w", model.ErrCorrupt, err)
		}
	}
	f.partition = int32(partition)
	return f, nil
}

// record copies the fields into a record of its own. topic and incarnation are
// passed in so that the caller can share strings it already has.
func (f *fields) record(topic string, id model.Incarnation) *record {
	buf := make([]byte, 0, len(f.key)+len(f.payload))
	buf = append(append(buf, f.key...), f.payload...)
	r := &record{topic: topic, partition: f.partition}
	r.AcceptedAt, r.Incarnation = f.acceptedAt, id
	if k := len(f.key); k > 0 {
		r.Key = buf[:k:k]
	}
	r.Payload = buf[len(f.key):]
	return r
}

// cursor reads big-endian fields off the front of a slice; short is set once it
// was asked for more than there is, and every later read is empty.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if c.short || n > len(c.rest) {
		c.short = true
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) bytes() []byte {
	n := c.uint32()
	if n > bodyBytesMax {
		c.short = true
		return nil
	}
	return c.take(int(n))
}
