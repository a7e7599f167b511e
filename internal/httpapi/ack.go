package httpapi

import (
	"context"
	"strconv"
	"strings"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
)

// Settler settles deliveries, wherever their partitions live.
type Settler interface {
	Settle(ctx context.Context, topic string, h model.Handle, op model.SettleOp) error
	SettleMany(ctx context.Context, topic string, handles []model.Handle, op model.SettleOp) ([]error, error)
	// CountRejected counts a settlement that was refused before Settle.
	CountRejected(reason string)
}

var ackParams = [...]string{"receipt_handle", "extend"}

// ack serves POST /v1/topics/{topic}/ack (spec/http-api section 10.5). A handle
// in the query selects the single form, whose body is ignored.
func (a *API) ack(c *call, be *Backends) error {
	if err := c.caller.MayConsume(c.topic); err != nil {
		return err
	}
	var p [len(ackParams)]param
	if err := onceEach(c.req.Query, ackParams[:], p[:]); err != nil {
		return err
	}
	op, err := settleOp(p[1])
	if err != nil {
		return err
	}
	if !p[0].set {
		return a.ackBatch(c, be, op)
	}
	if p[0].value == "" {
		return errHandleRequired
	}
	h, err := model.ParseHandle(p[0].value)
	if err != nil {
		be.Router.CountRejected(broker.RejectBadHandle)
		return err
	}
	if err := be.Router.Settle(c.req.Ctx, c.topic, h, op); err != nil {
		return err
	}
	c.empty(204)
	return nil
}

func settleOp(extend param) (model.SettleOp, error) {
	switch {
	case !extend.set || extend.value == "false":
		return model.Ack, nil
	case extend.value == "true" || extend.value == "1":
		return model.Extend, nil
	case extend.value == "0":
		return model.Nack, nil
	}
	return 0, invalid("extend must be true or 1 to extend, 0 to nack, or false")
}

// ackBatch settles a list of handles in order and answers with one result each:
// exactly what the single form would have answered.
func (a *API) ackBatch(c *call, be *Backends, op model.SettleOp) error {
	body, err := readBody(c.req, ackBodyMax, errBodyTooLarge, nil)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return errHandleRequired
	}
	list, err := decodeHandles(body)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errHandleRequired
	}
	results := make([]*refusal, len(list))
	handles := make([]model.Handle, 0, len(list))
	places := make([]int, 0, len(list)) // of handles in results
	for i, item := range list {
		if item.err != nil {
			be.Router.CountRejected(broker.RejectBadHandle)
			results[i] = translate(routeAck.op(), item.err)
			continue
		}
		handles, places = append(handles, item.handle), append(places, i)
	}
	errs, err := be.Router.SettleMany(c.req.Ctx, c.topic, handles, op)
	if err != nil {
		return err
	}
	for j, err := range errs {
		if err != nil {
			results[places[j]] = translate(routeAck.op(), err)
		}
	}
	buf := a.buffers.get(16 + 96*len(list))
	defer a.buffers.put(buf)
	*buf = appendResults(*buf, results)
	_ = c.send(200, typeJSON, *buf)
	return nil
}

// listedHandle is one entry of a batch: a handle, or why it is none.
type listedHandle struct {
	handle model.Handle
	err    error
}

// decodeHandles reads {"receipt_handles":[...]} one handle at a time and stops
// at the 101st.
func decodeHandles(body []byte) ([]listedHandle, error) {
	s := scanner{b: body}
	var list []listedHandle
	elem := func() error {
		if len(list) == model.ScanMessagesMax {
			return errTooManyHandles
		}
		if s.peek() != '"' {
			return s.mistyped("receipt_handles", "string")
		}
		text, _, err := s.text()
		if err != nil {
			return err
		}
		h, err := model.ParseHandle(string(text))
		list = append(list, listedHandle{handle: h, err: err})
		return nil
	}
	err := s.object("body", func(name []byte) error {
		if string(name) != "receipt_handles" {
			return unknownField(name)
		}
		if null, err := s.null(); null {
			return err
		}
		if list != nil {
			return invalidJSON(`json: field "receipt_handles" appears twice`)
		}
		return s.array("receipt_handles", elem)
	})
	if err != nil {
		return nil, err
	}
	return list, s.end()
}

func appendResults(dst []byte, results []*refusal) []byte {
	dst = append(dst, `{"results":[`...)
	for i, r := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		if r == nil {
			dst = append(dst, `{"status":204}`...)
			continue
		}
		dst = append(dst, `{"status":`...)
		dst = strconv.AppendInt(dst, int64(r.status), 10)
		dst = append(dst, `,"error":`...)
		dst = appendString(dst, strings.ToValidUTF8(r.text, "\ufffd"))
		dst = append(dst, `,"code":`...)
		dst = appendString(dst, r.code)
		dst = append(dst, '}')
	}
	return append(dst, "]}\n"...)
}
