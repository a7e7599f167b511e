package peer

import (
	"context"
	"fmt"
	"net/http"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// settleOps are the operations of one settlement, by model.SettleOp; in an AckBatch its
// kind is one more.
var settleOps = [...]noderpc.Op{model.Ack: noderpc.OpAck, model.Extend: noderpc.OpExtendAck, model.Nack: noderpc.OpNack}

// settlement is one entry of an AckBatch, and the whole of a single op.
type settlement struct {
	op     model.SettleOp
	topic  string
	handle model.Handle
}

// settlementBytesMin is what an entry takes at least: kind and the lengths of two strings.
const settlementBytesMin = 1 + 4 + 4

// appendTarget appends what a single op says: topic and handle.
func (s *settlement) appendTarget(e *noderpc.Encoder) {
	e.AppendStr(s.topic)
	var text [model.HandleTextMax]byte
	e.AppendBytes(s.handle.AppendTo(text[:0]))
}

func appendSettlements(e *noderpc.Encoder, list []settlement) {
	e.AppendU32(uint32(len(list)))
	for i := range list {
		e.AppendU8(uint8(list[i].op) + 1)
		list[i].appendTarget(e)
	}
}

// decodeSettle reads ops 3, 18 and 19.
func decodeSettle(d *noderpc.Decoder, op model.SettleOp) (s settlement, err error) {
	s.op, s.topic = op, d.Str()
	handle := d.Bytes()
	if err := d.Done(); err != nil {
		return s, err
	}
	if err := topicName(s.topic); err != nil {
		return s, err
	}
	s.handle, err = model.ParseHandle(string(handle))
	return s, err
}

// entry is a decoded entry of an AckBatch: a settlement, or why it is none.
type entry struct {
	settlement
	err error
}

// decodeSettlements reads op 32. An entry that names no settlement fails alone.
func decodeSettlements(d *noderpc.Decoder) ([]entry, error) {
	n := d.Count(settlementBytesMin)
	list := make([]entry, 0, min(n, repliesMax))
	for range n {
		kind, topic, handle := d.U8(), d.Bytes(), d.Bytes()
		if len(list) == repliesMax || d.Err() != nil {
			continue // to the end: trailing data comes before the rest
		}
		list = append(list, newEntry(kind, string(topic), string(handle)))
	}
	if err := d.Done(); err != nil {
		return nil, err
	}
	if n > repliesMax {
		return nil, fmt.Errorf("%w: %d settlements, at most %d", model.ErrInvalid, n, repliesMax)
	}
	return list, nil
}

func newEntry(kind uint8, topic, handle string) (e entry) {
	if kind < 1 || int(kind) > len(settleOps) {
		return entry{err: fmt.Errorf("%w: settlement of kind %d", model.ErrInvalid, kind)}
	}
	e.op, e.topic, e.err = model.SettleOp(kind-1), topic, topicName(topic)
	if e.err == nil {
		e.handle, e.err = model.ParseHandle(handle)
	}
	return e
}

// resultBytesMin is what a result takes at least: status and the length of its message.
const resultBytesMin = 2 + 4

func appendResults(e *noderpc.Encoder, errs []error) {
	e.AppendU32(uint32(len(errs)))
	for _, err := range errs {
		if err == nil {
			e.AppendU16(http.StatusNoContent)
			e.AppendStr("")
			continue
		}
		r := refuse(noderpc.OpAckBatch, err)
		e.AppendU16(uint16(r.Status))
		e.AppendStr(r.Text[:min(len(r.Text), refusalTextMax)])
	}
}

// decodeResults reads the answer to op 32 into one error, or nil, for each settlement.
func decodeResults(d *noderpc.Decoder, want int) ([]error, error) {
	n := d.Count(resultBytesMin)
	if d.Err() == nil && n != want {
		return nil, fmt.Errorf("%d results for %d settlements", n, want)
	}
	errs := make([]error, n)
	for i := range errs {
		status, text := int(d.U16()), d.Bytes()
		if status < 200 || status > 299 {
			errs[i] = resultError(status, string(text[:min(len(text), refusalTextMax)]))
		}
	}
	return errs, d.Err()
}

// resultError is the refusal of one settlement of a batch: it says what the single op
// would have, whose code its text tells.
func resultError(status int, text string) error {
	e := &StatusError{Status: status, Text: text}
	if r, ok := e.row(); ok {
		e.Code = r.code
	}
	res := e.response()
	e.ContentType, e.Body = res.ContentType, res.Body
	return e
}

func serveSettles(s Server, level model.ReleaseLevel, q Queue) {
	gate := always(noderpc.GateMessaging)
	for op, number := range settleOps {
		serve(s, number, gate, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
			one, err := decodeSettle(d, model.SettleOp(op))
			if err != nil {
				return noderpc.Response{}, err
			}
			return empty(), q.Settle(ctx, one.topic, one.handle, one.op)
		})
	}
	if !knows(level, featureAckBatch) {
		without(s, noderpc.OpAckBatch)
		return
	}
	serve(s, noderpc.OpAckBatch, gate, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		list, err := decodeSettlements(d)
		if err == nil {
			err = ctx.Err() // nothing was applied
		}
		if err != nil {
			return noderpc.Response{}, err
		}
		errs := make([]error, len(list))
		for i := range list {
			if errs[i] = list[i].err; errs[i] == nil {
				errs[i] = q.Settle(ctx, list[i].topic, list[i].handle, list[i].op)
			}
		}
		e := make(noderpc.Encoder, 0, lengthBytes+len(errs)*resultBytesMin)
		appendResults(&e, errs)
		return noderpc.Response{Status: http.StatusOK, ContentType: typeBinary, Body: e}, nil
	})
}
