package httpapi

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
)

// Consumer reaches the queues of the cluster: what package router offers.
type Consumer interface {
	Consume(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error)
	Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error)
	Release(topic string, h model.Handle)
}

// waitCeiling is the longest wait when the setting is 0 (spec/http-api section 1).
const waitCeiling = 30 * time.Second

// batchAnswerMax bounds the encoded records of a batch answer in bytes; the first
// record always goes (spec/http-api CB-4).
const batchAnswerMax = 8 << 20

var consumeParams = [...]string{"wait", "partition", "offset", "max"}

// paramMax is the place of max in them.
const paramMax = 3

// consumeQuery is a consume as asked for.
type consumeQuery struct {
	wait      time.Duration
	clamped   bool
	partition int
	offset    int64 // replay when >= 0
	max       int   // 0 = single shape
}

// consume serves GET /v1/topics/{topic}/consume (spec/http-api section 10.3).
func (a *API) consume(c *call, be *Backends) error {
	var p [len(consumeParams)]param
	paramsErr := onceEach(c.req.Query, consumeParams[:], p[:])
	if err := a.mayConsume(c, p[paramMax].set); err != nil {
		return err
	}
	q, err := a.parseConsume(&p)
	if paramsErr != nil {
		err = paramsErr
	}
	hold, refused := a.consumeCap.take(c.identity, max(q.max, 1))
	if refused != nil {
		return refused // before what is wrong with the query: PIPE-7, PIPE-9
	}
	defer hold.release()
	if err != nil {
		return err
	}
	if q.clamped {
		c.resp.SetHeader("X-Narad-Wait-Clamped", q.wait.String())
	}
	if q.offset >= 0 {
		return a.replay(c, be, q)
	}
	got, err := be.Router.Consume(c.req.Ctx, broker.ConsumeRequest{
		Topic: c.topic, Partition: q.partition, Max: max(q.max, 1), Wait: q.wait,
	})
	if err == nil && len(got) > 0 && c.req.Ctx.Err() != nil {
		release(be.Router, c.topic, got)
		got, err = nil, c.req.Ctx.Err()
	}
	if err != nil {
		return err
	}
	if len(got) == 0 {
		c.empty(204)
		return nil
	}
	a.sendDeliveries(c, be.Router, got, q.max > 0)
	return nil
}

// mayConsume is what comes before the grant, and the grant. A HEAD is refused after
// the batch-header check (spec/http-api CSRF-6, C-7a): it would lease records and
// throw them away.
func (a *API) mayConsume(c *call, batch bool) error {
	if batch && c.req.Header.Get(clientHeader) == "" {
		return errBatchHeader
	}
	if c.req.Method == "HEAD" {
		c.allow = "GET"
		return errMethod
	}
	return c.caller.MayConsume(c.topic)
}

// parseConsume checks the query. max is set whenever that one is right.
func (a *API) parseConsume(p *[len(consumeParams)]param) (consumeQuery, error) {
	q := consumeQuery{partition: anyPartition, offset: -1}
	wait, partition, offset, most := p[0], p[1], p[2], p[paramMax]
	var err error
	if most.set {
		if q.max, err = strconv.Atoi(most.value); err != nil || q.max < 1 || q.max > model.ScanMessagesMax {
			q.max = 0
			return q, invalid("max must be an integer from 1 to " + strconv.Itoa(model.ScanMessagesMax))
		}
	}
	if wait.set {
		if q.wait, err = time.ParseDuration(wait.value); err != nil || q.wait < 0 {
			return q, invalid("wait must be a duration of at least 0, like 500ms or 10s")
		}
		if q.wait > a.maxWait {
			q.wait, q.clamped = a.maxWait, true
		}
	}
	if q.partition, err = partitionParam(partition); err != nil {
		return q, err
	}
	if offset.set {
		err = q.parseOffset(offset, partition.set)
	}
	return q, err
}

func (q *consumeQuery) parseOffset(offset param, pinned bool) (err error) {
	if q.offset, err = strconv.ParseInt(offset.value, 10, 64); err != nil || q.offset < 0 {
		return invalid("offset must be an integer of at least 0")
	}
	if !pinned {
		return errReplayPart
	}
	if q.max > 0 {
		return invalid("max and offset exclude each other")
	}
	return nil
}

// replay serves a read at an offset: no lease, no wait, nothing counted.
func (a *API) replay(c *call, be *Backends, q consumeQuery) error {
	m, ok, err := be.Router.Read(c.req.Ctx, c.topic, q.partition, q.offset)
	if err != nil {
		return err
	}
	if !ok {
		c.empty(204)
		return nil
	}
	buf := a.buffers.get(messageSizeHint(&m))
	defer a.buffers.put(buf)
	*buf = append(appendReplayed(*buf, &m), '\n')
	_ = c.send(200, typeJSON, *buf)
	return nil
}

// sendDeliveries writes deliveries, which the caller holds leases of: those cut
// from the answer are released before it is written, and all of them are when it
// cannot be written whole, because nobody can act on a part of it.
func (a *API) sendDeliveries(c *call, rt Consumer, got []model.Delivery, batch bool) {
	size := 0
	for i := range got {
		size += messageSizeHint(&got[i].Message)
	}
	buf := a.buffers.get(min(size, batchAnswerMax))
	defer a.buffers.put(buf)
	kept := got
	if batch {
		n := 0
		*buf, n = appendBatch(*buf, got)
		kept = got[:n]
		release(rt, c.topic, got[n:])
	} else {
		*buf = appendDelivery(*buf, &got[0])
	}
	*buf = append(*buf, '\n')
	if err := c.send(200, typeJSON, *buf); err != nil {
		release(rt, c.topic, kept)
		c.status = statusClientGone
	}
}

// appendBatch appends the batch shape with as many deliveries as fit the bound,
// and says how many: at least the first.
func appendBatch(dst []byte, got []model.Delivery) ([]byte, int) {
	dst = append(dst, `{"messages":[`...)
	records := 0
	for i := range got {
		from := len(dst)
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendDelivery(dst, &got[i])
		if records += len(dst) - from; records > batchAnswerMax && i > 0 {
			return append(dst[:from], "]}"...), i
		}
	}
	return append(dst, "]}"...), len(got)
}

func release(rt Consumer, topic string, ds []model.Delivery) {
	for i := range ds {
		rt.Release(topic, ds[i].Handle)
	}
}

// bufferKeepMax is the capacity up to which an answer's buffer is kept for the
// next one.
const bufferKeepMax = 256 << 10

// buffers pools the memory of encoded answers.
type buffers struct{ pool sync.Pool }

func (b *buffers) get(size int) *[]byte {
	buf, _ := b.pool.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	if cap(*buf) < size {
		*buf = make([]byte, 0, size)
	}
	return buf
}

func (b *buffers) put(buf *[]byte) {
	if cap(*buf) > bufferKeepMax {
		return
	}
	*buf = (*buf)[:0]
	b.pool.Put(buf)
}
