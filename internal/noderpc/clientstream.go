package noderpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
)

// clientStream is an authenticated stream, shared by many requests, which find their
// answers by id. One request's trouble never ends it.
type clientStream struct {
	link    *link
	slot    *slot // set before the stream is used
	proven  bool  // this end showed a proof on it, so the peer may have run what came on it
	stream  *quic.Stream
	writer  *frameWriter
	scratch [headerSize]byte

	mu      sync.Mutex // guards the rest
	lastID  uint64
	waiters map[uint64]*waiter
	ended   error // why the stream ended; nil while it lives
}

// waiter is one request that waits. The reader answers it at most once.
type waiter struct{ answer chan answer }

type answer struct {
	res Response
	err error
}

func newClientStream(l *link, s *quic.Stream) *clientStream {
	return &clientStream{
		link: l, proven: len(l.peer.client.security.secret) > 0,
		stream: s, writer: newFrameWriter(s), waiters: map[uint64]*waiter{},
	}
}

// wait registers a request. The error is errUnwritten: the stream has ended.
func (st *clientStream) wait() (uint64, *waiter, error) {
	w := &waiter{answer: make(chan answer, 1)}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended != nil {
		return 0, nil, fmt.Errorf("%w: %w", errUnwritten, st.ended)
	}
	st.lastID++
	st.waiters[st.lastID] = w
	return st.lastID, w, nil
}

// leave ends a wait, and reports whether no answer has come.
func (st *clientStream) leave(id uint64) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, waits := st.waiters[id]
	delete(st.waiters, id)
	return waits
}

// call sends a request and waits for its answer. An error that is not errUnwritten leaves
// the outcome unknown.
func (st *clientStream) call(ctx context.Context, op Op, body []byte) (Response, error) {
	id, w, err := st.wait()
	if err != nil {
		return Response{}, err
	}
	if err := st.send(ctx, id, op, body); err != nil {
		st.leave(id)
		st.overdue(ctx)
		return Response{}, err
	}
	st.link.waiting.Add(1)
	defer st.link.waiting.Add(-1)
	st.link.guard()
	select {
	case a := <-w.answer:
		return a.res, a.err
	case <-ctx.Done():
	}
	if !st.leave(id) {
		a := <-w.answer // it came at the same moment
		return a.res, a.err
	}
	st.sendCancel(id)
	st.overdue(ctx)
	return Response{}, fmt.Errorf("waiting for the answer: %w", ctx.Err())
}

func (st *clientStream) send(ctx context.Context, id uint64, op Op, body []byte) error {
	head := frameHead{kind: frameRequest, id: id, size: 1 + len(body)}
	if len(body) > joinMax {
		return st.writer.write(ctx, append(appendHead(make([]byte, 0, headerSize+1), head), byte(op)), body)
	}
	buffers := &st.link.peer.client.buffers
	buf := buffers.get(headerSize + 1 + len(body))
	defer buffers.put(buf)
	*buf = append(append(appendHead(*buf, head), byte(op)), body...)
	return st.writer.write(ctx, *buf)
}

// sendCancel tells the peer that nobody waits any more. If the stream is too full to take
// it at once, the request runs on.
func (st *clientStream) sendCancel(id uint64) {
	_, _ = st.writer.try(appendHead(make([]byte, 0, headerSize), frameHead{kind: frameCancel, id: id}))
}

// overdue looks after the connection of a request that ended on a deadline.
func (st *clientStream) overdue(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		st.link.suspect(st)
	}
}

// ping sends a ping and waits for the pong.
func (st *clientStream) ping(ctx context.Context) error {
	id, w, err := st.wait()
	if err != nil {
		return nil // the stream ended, which somebody noticed
	}
	defer st.leave(id)
	if err := st.writer.write(ctx, appendHead(nil, frameHead{kind: framePing, id: id})); err != nil {
		return err
	}
	select {
	case <-w.answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read hands out answers until the stream ends.
func (st *clientStream) read() {
	r := bufio.NewReaderSize(countingReader{st.stream, &st.link.received}, readBufferSize)
	var err error
	for err == nil {
		err = st.readFrame(r)
	}
	st.slot.stream.CompareAndSwap(st, nil)
	st.stream.CancelRead(streamDone)
	st.stream.CancelWrite(streamDone)
	st.mu.Lock()
	waiters := st.waiters
	st.waiters, st.ended = nil, err
	st.mu.Unlock()
	end := fmt.Errorf("%w: %w", errLostConn, err)
	if refusesUs(err) && !st.proven {
		end = fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	for _, w := range waiters {
		w.answer <- answer{err: end}
	}
}

func (st *clientStream) readFrame(r *bufio.Reader) error {
	head, err := readHead(r, &st.scratch, frameMax)
	if err != nil {
		return err
	}
	switch head.kind {
	case frameResponse, frameError, framePong:
	default:
		_, err := r.Discard(head.size)
		return err
	}
	st.mu.Lock()
	_, waited := st.waiters[head.id]
	st.mu.Unlock()
	if !waited { // it gave up: nothing is allocated for it
		_, err := r.Discard(head.size)
		return err
	}
	body, err := readBody(r, head.size, nil)
	if err != nil {
		return err
	}
	a := decodeAnswer(head.kind, body)
	st.mu.Lock()
	w := st.waiters[head.id]
	delete(st.waiters, head.id)
	st.mu.Unlock()
	if w != nil {
		w.answer <- a
	}
	return nil
}

func decodeAnswer(kind frameType, body []byte) answer {
	switch kind {
	case frameResponse:
		res, err := decodeResponse(body)
		if err != nil {
			return answer{err: fmt.Errorf("%w: %w", &ProtocolError{Text: "unreadable response"}, err)}
		}
		return answer{res: res}
	case frameError:
		text, err := decodeError(body)
		if err != nil {
			return answer{err: fmt.Errorf("%w: %w", &ProtocolError{Text: "unreadable error"}, err)}
		}
		return answer{err: &ProtocolError{Text: text}}
	}
	return answer{} // a pong
}

// countingReader counts the reads that brought something.
type countingReader struct {
	r io.Reader
	n *atomic.Uint64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		c.n.Add(1)
	}
	return n, err
}
