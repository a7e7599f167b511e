package peer

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// AnyPartition takes from whatever partition of the topic the owner has records in.
const AnyPartition = -1

// ConsumeRequest asks an owner for records with a lease each.
type ConsumeRequest struct {
	Topic     string
	Partition int           // AnyPartition = any the owner has
	Max       int           // 1 to 100
	Wait      time.Duration // whole milliseconds, at most MaxWait; 0 = not at all
	Claim     bool          // answers a token's notification: ends the hold it left
	Claimer   string        // member id of who claims; "" = a release that does not tell. The client sets it
}

// MaxWait is the longest wait a request can carry.
const MaxWait = math.MaxUint32 * time.Millisecond

// Queue is this node's part of the queues: it never asks another node. Consume answers
// nothing, and no error, when nothing came within the wait. Release puts back a record
// that reached nobody.
type Queue interface {
	Consume(ctx context.Context, req ConsumeRequest) ([]model.Delivery, error)
	Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error)
	Settle(ctx context.Context, topic string, h model.Handle, op model.SettleOp) error
	Release(topic string, h model.Handle)
}

// queueOffset is the offset of a consume that does not replay.
const queueOffset = -1

// consumeMessage is op 2: a consume, or a replay read when offset is not queueOffset.
type consumeMessage struct {
	ConsumeRequest
	offset int64
}

// encode appends the message and returns its shapes.
func (m *consumeMessage) encode(e *noderpc.Encoder) ([]shape, error) {
	e.AppendStr(m.Topic)
	if err := e.AppendPartition(m.Partition); err != nil {
		return nil, err
	}
	e.AppendI64(m.offset)
	e.AppendU32(uint32((m.Wait + time.Millisecond - 1) / time.Millisecond))
	plain := shape{0, len(*e)}
	if !m.Claim && m.Max <= 1 {
		return []shape{plain}, nil
	}
	e.AppendBool(m.Claim)
	claim := shape{featureClaim, len(*e)}
	e.AppendI32(int32(m.Max))
	most := shape{featureMax, len(*e)}
	if !m.Claim {
		return []shape{most, plain}, nil
	}
	e.AppendStr(m.Claimer)
	return []shape{{featureClaimer, len(*e)}, most, claim, plain}, nil
}

func decodeConsume(d *noderpc.Decoder, level model.ReleaseLevel) (m consumeMessage, err error) {
	m.Topic, m.Partition, m.offset = d.Str(), int(d.I32()), d.I64()
	m.Wait, m.Max = time.Duration(d.U32())*time.Millisecond, 1
	if knows(level, featureClaim) && d.More() {
		m.Claim = d.Bool()
	}
	if knows(level, featureMax) && d.More() {
		m.Max = int(d.I32())
	}
	if knows(level, featureClaimer) && d.More() {
		m.Claimer = d.Str()
	}
	if !m.Claim {
		m.Claimer = ""
	}
	if err := d.Done(); err != nil {
		return m, err
	}
	return m, m.check()
}

func (m *consumeMessage) check() error {
	switch {
	case m.Partition < AnyPartition, m.Max < 1, m.Max > repliesMax, m.Wait < 0, m.Wait > MaxWait:
		return fmt.Errorf("%w: consume of %d messages from partition %d, waiting %s", model.ErrInvalid, m.Max, m.Partition, m.Wait)
	case m.offset < queueOffset, m.offset != queueOffset && m.Partition < 0:
		return fmt.Errorf("%w: replay of offset %d of partition %d", model.ErrInvalid, m.offset, m.Partition)
	}
	if err := bounded("claimer", m.Claimer, nameBytesMax); err != nil {
		return err
	}
	return topicName(m.Topic)
}

// consumeGate: what may wait holds no slot (spec/cluster-and-network section 6).
func consumeGate(body []byte) noderpc.Gate {
	d := noderpc.NewDecoder(body)
	d.Bytes()
	d.I32()
	d.I64()
	if d.U32() > 0 {
		return noderpc.GateNone
	}
	return noderpc.GateMessaging
}

// Consume takes records from the queue an owner has, at most r.Max; nothing and no error
// when none came within the wait. Records of a call that failed may be leased: they come
// back when their visibility times out, or at once where the owner learned of it. The
// records belong to the caller.
func (c *Client) Consume(ctx context.Context, addr string, r ConsumeRequest) ([]model.Delivery, error) {
	budget := probeBudget
	if r.Wait > 0 {
		budget = r.Wait + pollMargin
	}
	if r.Claim {
		r.Claimer = c.self
	}
	out, err := c.consume(ctx, addr, budget, consumeMessage{r, queueOffset})
	if err == nil && len(out) > r.Max {
		return nil, fmt.Errorf("%s at %s: %d messages answered, %d asked for", noderpc.OpConsume, addr, len(out), r.Max)
	}
	return out, err
}

// Read is a replay read of one record; false when the offset is not written yet.
func (c *Client) Read(ctx context.Context, addr, topic string, partition int, offset int64) (model.Message, bool, error) {
	if offset < 0 {
		return model.Message{}, false, fmt.Errorf("%w: offset %d", model.ErrInvalid, offset)
	}
	m := consumeMessage{ConsumeRequest{Topic: topic, Partition: partition, Max: 1}, offset}
	out, err := c.consume(ctx, addr, replayBudget, m)
	if err != nil || len(out) == 0 {
		return model.Message{}, false, err
	}
	got := out[0].Message
	if len(out) > 1 || got.Partition != partition || got.Offset != offset {
		return model.Message{}, false, fmt.Errorf("%s at %s: %d messages, first %d/%d, for a replay of %d/%d",
			noderpc.OpConsume, addr, len(out), got.Partition, got.Offset, partition, offset)
	}
	return got, true, nil
}

func (c *Client) consume(ctx context.Context, addr string, budget time.Duration, m consumeMessage) ([]model.Delivery, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	e := c.encoder()
	defer c.recycle(e)
	shapes, err := m.encode(e)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	res, err := accepted(c.narrowing(ctx, addr, noderpc.OpConsume, *e, shapes))
	if err != nil || res.Status == http.StatusNoContent {
		return nil, err
	}
	out, err := decodeDeliveries(noderpc.NewDecoder(res.Body), m.Topic)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: answer: %w", noderpc.OpConsume, addr, err)
	}
	return out, nil
}

// deliveryBytesMin is what a record takes besides key and payload: partition, offset,
// time, nonce, count, a byte for the key, the payload's length.
const deliveryBytesMin = 4 + 8 + 8 + 8 + 4 + 1 + 4

// appendDeliveries appends as many of ds as an answer may carry and returns their number:
// all, or what fits replyBytesMax and at least one.
func appendDeliveries(e *noderpc.Encoder, ds []model.Delivery) int {
	n, size := 0, 0
	for n < min(len(ds), repliesMax) {
		size += deliveryBytesMin + lengthBytes + len(ds[n].Key) + len(ds[n].Payload)
		if n > 0 && size > replyBytesMax {
			break
		}
		n++
	}
	e.AppendU32(uint32(n))
	for i := range ds[:n] {
		d := &ds[i]
		e.AppendI32(int32(d.Partition))
		e.AppendI64(d.Offset)
		e.AppendI64(d.CommittedAt)
		e.AppendI64(d.Handle.Nonce)
		e.AppendI32(int32(d.Count))
		e.AppendOptBytes(d.Key)
		e.AppendBytes(d.Payload)
	}
	return n
}

// decodeDeliveries reads an answer to op 2. A replayed record has neither nonce nor count.
func decodeDeliveries(d *noderpc.Decoder, topic string) ([]model.Delivery, error) {
	n := d.Count(deliveryBytesMin)
	if n > repliesMax {
		return nil, fmt.Errorf("%d messages, at most %d", n, repliesMax)
	}
	out := make([]model.Delivery, n)
	for i := range out {
		m := &out[i]
		m.Topic, m.Partition, m.Offset, m.CommittedAt = topic, int(d.I32()), d.I64(), d.I64()
		m.Handle = model.Handle{Partition: m.Partition, Offset: m.Offset, Nonce: d.I64()}
		m.Count, m.Key, m.Payload = int(d.I32()), d.OptBytes(), d.Bytes()
		if d.Err() == nil && (m.Partition < 0 || m.Offset < 0 || m.Handle.Nonce < 0 || m.Count < 0) {
			return nil, fmt.Errorf("message %d: partition %d, offset %d, nonce %d, count %d", i, m.Partition, m.Offset, m.Handle.Nonce, m.Count)
		}
	}
	return out, d.Err()
}

// ServeQueue serves ops 2, 3, 18, 19 and 32. A record that was reserved for a caller who is
// gone, or that does not fit the answer, is released at once
// (spec/cluster-and-network section 6.1).
func ServeQueue(s Server, level model.ReleaseLevel, q Queue) {
	serve(s, noderpc.OpConsume, consumeGate, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		m, err := decodeConsume(d, level)
		switch {
		case err != nil:
			return noderpc.Response{}, err
		case m.offset != queueOffset:
			return serveRead(ctx, q, m)
		}
		return serveConsume(ctx, q, m.ConsumeRequest)
	})
	serveSettles(s, level, q)
}

func serveRead(ctx context.Context, q Queue, m consumeMessage) (noderpc.Response, error) {
	got, ok, err := q.Read(ctx, m.Topic, m.Partition, m.offset)
	if err != nil || !ok {
		return empty(), err
	}
	res, _ := deliver([]model.Delivery{{Message: got}})
	return res, nil
}

func serveConsume(ctx context.Context, q Queue, r ConsumeRequest) (noderpc.Response, error) {
	got, err := q.Consume(ctx, r)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		release(q, r.Topic, got)
		return noderpc.Response{}, err
	}
	if len(got) == 0 {
		return empty(), nil
	}
	res, n := deliver(got)
	release(q, r.Topic, got[n:])
	handles := make([]model.Handle, n)
	for i := range handles {
		handles[i] = got[i].Handle
	}
	res.Undelivered = func() {
		for _, h := range handles {
			q.Release(r.Topic, h)
		}
	}
	return res, nil
}

// deliver encodes the answer and returns how many of ds it carries.
func deliver(ds []model.Delivery) (noderpc.Response, int) {
	size := lengthBytes
	for i := range ds {
		size += deliveryBytesMin + lengthBytes + len(ds[i].Key) + len(ds[i].Payload)
	}
	e := make(noderpc.Encoder, 0, min(size, replyBytesMax))
	n := appendDeliveries(&e, ds)
	return noderpc.Response{Status: http.StatusOK, ContentType: typeBinary, Body: e}, n
}

func release(q Queue, topic string, ds []model.Delivery) {
	for i := range ds {
		q.Release(topic, ds[i].Handle)
	}
}
