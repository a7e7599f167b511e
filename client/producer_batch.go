package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// batch is messages of a Producer that travel together, encoded as they come.
type batch struct {
	body    []byte // batchHead, messages with commas between; the tail comes last
	buf     *[]byte
	items   []item
	encoded int           // bytes of the messages
	overdue bool          // lingered long enough, and no request was free
	free    bool          // nobody reads body any more
	lost    error         // first failure that has no callback to go to
	done    chan struct{} // closed once every outcome was told
}

// item is one message of a batch: body[from:to], and whom to tell.
type item struct {
	from, to int
	done     func(error)
}

func pooled(from *sync.Pool) *[]byte {
	if b, ok := from.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (p *Producer) newBatch() *batch {
	b := &batch{buf: pooled(&p.large), done: make(chan struct{})}
	b.body = append((*b.buf)[:0], batchHead...)
	return b
}

// recycle gives the body to a later batch, unless a request may still read it: a
// transport can do so after it returned, except when the answer shows that the server
// had all of it.
func (p *Producer) recycle(b *batch) {
	if b.free {
		*b.buf = b.body
		p.large.Put(b.buf)
	}
	b.body, b.buf = nil, nil
}

func (b *batch) add(encoded []byte, done func(error)) {
	if len(b.items) > 0 {
		b.body = append(b.body, ',')
	}
	from := len(b.body)
	b.body = append(b.body, encoded...)
	b.items = append(b.items, item{from: from, to: len(b.body), done: done})
	b.encoded += len(encoded)
}

func (b *batch) tell(it item, err error) {
	switch {
	case it.done != nil:
		it.done(err)
	case b.lost == nil:
		b.lost = err
	}
}

// removedMax is how many messages a server may refuse out of one batch before the
// rest of it is sent one by one.
const removedMax = 8

// send sends b and tells every outcome. A batch is stored as a whole or not at all, so
// one message the server refuses would take the others down: it is taken out, and the
// rest is sent again.
func (p *Producer) send(b *batch) {
	b.body = append(b.body, batchTail...)
	rep, err := p.post(b.body)
	b.free = err == nil && rep.attempts == 1
	rest := b.items
	for removed := 0; len(rest) > 0; removed++ {
		i, own := blamed(err, len(rest))
		if own == nil {
			break
		}
		b.tell(rest[i], own)
		rest = append(slices.Clone(rest[:i]), rest[i+1:]...)
		switch {
		case len(rest) == 0:
			return
		case removed == removedMax:
			p.sendEach(b, rest)
			return
		}
		_, err = p.post(b.bodyOf(rest))
	}
	for _, it := range rest {
		b.tell(it, err)
	}
}

// sendEach sends messages as batches of one.
func (p *Producer) sendEach(b *batch, items []item) {
	for _, it := range items {
		_, err := p.post(b.bodyOf([]item{it}))
		if _, own := blamed(err, 1); own != nil {
			err = own
		}
		b.tell(it, err)
	}
}

// bodyOf is a body of its own for some messages of b.
func (b *batch) bodyOf(items []item) []byte {
	out := append(make([]byte, 0, len(b.body)), batchHead...)
	for i, it := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, b.body[it.from:it.to]...)
	}
	return append(out, batchTail...)
}

func (p *Producer) post(body []byte) (reply, error) {
	if p.ctx.Err() != nil {
		return reply{}, fmt.Errorf("produce to %s: %w", p.topic, ErrClosed)
	}
	return p.c.produceBody(p.ctx, p.topic, body)
}

// blamed reports which of n messages a refusal is about, and the refusal in the words
// of that message's own produce; nil when it is about all of them or none
// (spec/http-api PB-4, PB-5, PB-9).
func blamed(err error, n int) (int, error) {
	var e *Error
	if !errors.As(err, &e) || e.Status < 400 || e.Status >= 499 {
		return 0, nil
	}
	text, ok := strings.CutPrefix(e.Message, "message ")
	number, text, colon := strings.Cut(text, ": ")
	i, bad := strconv.Atoi(number)
	if !ok || !colon || bad != nil || i < 0 || i >= n || Uncertain(err) {
		return 0, nil
	}
	own := *e
	own.Message = text
	return i, wrap(&own, opProduce, 1, false)
}
