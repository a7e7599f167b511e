package httpapi

import (
	"context"
	"strconv"

	"github.com/narad-mq/narad/internal/ingress"
)

// Producer takes messages into this node's write-ahead log: they are durable
// when it returns nil.
type Producer interface {
	Accept(ctx context.Context, topic string, m ingress.Message) error
	AcceptMany(ctx context.Context, topic string, ms []ingress.Message) error
}

// produceParams are the documented query parameters of a produce.
var produceParams = [...]string{"key", "partition"}

// produce serves POST /v1/topics/{topic}/produce (spec/http-api section 10.1).
// The payload buffer is handed down and never touched again.
func (a *API) produce(c *call, be *Backends) error {
	if err := c.caller.MayProduce(c.topic); err != nil {
		return err
	}
	hold, err := a.produceCap.take(c.identity, 1)
	if err != nil {
		return err
	}
	defer hold.release()
	m := ingress.Message{Partition: anyPartition}
	if c.req.Query != "" {
		var q [len(produceParams)]param
		if err := onceEach(c.req.Query, produceParams[:], q[:]); err != nil {
			return err
		}
		if q[0].value != "" {
			m.Key = []byte(q[0].value)
		}
		if m.Partition, err = partitionParam(q[1]); err != nil {
			return err
		}
	}
	if m.Payload, err = readBody(c.req, bodyMax, errMessageTooBig, nil); err != nil {
		return err
	}
	if len(m.Payload) == 0 {
		return errMessage
	}
	if err := be.Produce.Accept(c.req.Ctx, c.topic, m); err != nil {
		return err
	}
	c.empty(202)
	return nil
}

// produceBatch serves POST /v1/topics/{topic}/produce/batch (spec/http-api
// section 10.2). The budget is held while the body is read and decoded, the
// identity's cap until the answer.
func (a *API) produceBatch(c *call, be *Backends) error {
	if err := c.caller.MayProduce(c.topic); err != nil {
		return err
	}
	hold, err := a.produceCap.take(c.identity, 1)
	if err != nil {
		return err
	}
	defer hold.release()
	messages, err := a.readBatch(c.req)
	if err != nil {
		return err
	}
	if err := hold.raise(len(messages)); err != nil {
		return err
	}
	if err := be.Produce.AcceptMany(c.req.Ctx, c.topic, messages); err != nil {
		return err
	}
	body := append(make([]byte, 0, 24), `{"accepted":`...)
	body = strconv.AppendInt(body, int64(len(messages)), 10)
	_ = c.send(202, typeJSON, append(body, '}', '\n'))
	return nil
}

func (a *API) readBatch(r *Request) ([]ingress.Message, error) {
	if r.Query != "" {
		var q [len(produceParams)]param
		if err := queryParams(r.Query, produceParams[:], q[:]); err != nil {
			return nil, err
		}
		if q[0].set || q[1].set {
			return nil, errBatchQuery
		}
	}
	enc, err := parseCoding(r.Header.Get("Content-Encoding"))
	if err != nil {
		return nil, err
	}
	hold := budgetHold{budget: &a.batchBudget}
	defer hold.release()
	var body []byte
	if enc == codingNone {
		body, err = readBody(r, batchBodyMax, errBodyTooLarge, &hold)
	} else {
		body, err = a.decoders.readCompressed(r, enc, &hold)
	}
	if err != nil {
		return nil, err
	}
	return decodeBatch(body)
}
