package noderpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Bounds of a stream's serving side.
const (
	inFlightMax    = 4096 // requests of a stream
	asideMax       = 64   // answers of the read loop that wait to be written
	readBufferSize = 4 << 10
	replyBudget    = 5 * time.Second // to write a reply, and
	replyBudgetPer = time.Second     // for each so many bytes of it
	replyBudgetFor = 256 << 10
)

// errReject: an open server met a peer that shows a proof, or a proof came twice.
var errReject = errors.New("a proof where none is expected")

// serverStream is an authenticated stream. Its read loop never waits: each request runs
// on a goroutine of its own.
type serverStream struct {
	*serverConn
	stream  *quic.Stream
	writer  *frameWriter
	ctx     context.Context // of its requests; ends with the stream
	scratch [headerSize]byte

	mu       sync.Mutex // guards the rest
	requests map[uint64]context.CancelFunc
	answered graceQueue
	aside    int // answers of the read loop that wait to be written
}

func (c *serverConn) serveStream(stream *quic.Stream) {
	if c.authenticate(stream) != nil {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	st := &serverStream{
		serverConn: c, stream: stream, writer: newFrameWriter(stream), ctx: ctx,
		requests: map[uint64]context.CancelFunc{}, answered: newGraceQueue(),
	}
	err := st.read()
	code := streamDone
	if errors.Is(err, errFrame) {
		code = streamProtocol
		c.rejects.Warn(c.log, "frame "+c.host(), "cluster stream aborted: malformed frame", "peer", c.conn.RemoteAddr().String(), "err", err)
	}
	if errors.Is(err, errReject) {
		c.reject(err)
	}
	stream.CancelRead(code)
	stream.CancelWrite(code)
}

// read takes frames until the stream ends or cannot go on.
func (st *serverStream) read() error {
	r := bufio.NewReaderSize(st.stream, readBufferSize)
	for {
		head, err := readHead(r, &st.scratch, frameMax)
		if err != nil {
			return err
		}
		if head.kind == frameRequest {
			err = st.request(r, head)
		} else if _, err = r.Discard(head.size); err == nil {
			err = st.control(head)
		}
		if err != nil {
			return err
		}
	}
}

// control serves a frame that is no request, whose body has been read.
func (st *serverStream) control(head frameHead) error {
	switch head.kind {
	case frameCancel:
		st.cancelRequest(head.id)
		return nil
	case framePing:
		return st.answerAside(appendHead(nil, frameHead{kind: framePong, id: head.id}))
	case frameAuthClient, frameAuthServer:
		return errReject
	}
	return st.answerAside(errorFrame(head.id, fmt.Sprintf("unknown frame type %d", head.kind)))
}

// errorFrame is an Error frame, whose text is cut to what an unauthenticated reader takes.
func errorFrame(id uint64, text string) []byte {
	text = text[:min(len(text), errorTextMax)]
	e := Encoder(appendHead(nil, frameHead{kind: frameError, id: id, size: 4 + len(text)}))
	e.AppendStr(text)
	return e
}

// answerAside writes a frame of the read loop's own without making it wait. A peer that
// lets too many of them wait does not read, and loses the stream.
func (st *serverStream) answerAside(frame []byte) error {
	if done, err := st.writer.try(frame); done || err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.aside >= asideMax {
		return fmt.Errorf("%d answers wait for a peer that does not read", asideMax)
	}
	st.aside++
	st.running.Go(func() {
		ctx, stop := context.WithTimeout(st.ctx, replyBudget)
		defer stop()
		// A peer that cannot be told ends up where it would: at its deadline.
		_ = st.writer.write(ctx, frame)
		st.mu.Lock()
		st.aside--
		st.mu.Unlock()
	})
	return nil
}

// request reads a request and starts it.
func (st *serverStream) request(r io.Reader, head frameHead) error {
	buf := st.buffers.get(head.size)
	body, err := readBody(r, head.size, *buf)
	if err != nil {
		return err
	}
	*buf = body
	if len(body) == 0 {
		return st.answerAside(errorFrame(head.id, "request without an operation"))
	}
	st.mu.Lock()
	_, twice := st.requests[head.id]
	full := len(st.requests) >= inFlightMax
	if twice || full {
		st.mu.Unlock()
		st.buffers.put(buf)
		if twice {
			return fmt.Errorf("%w: request id %d is in use", errFrame, head.id)
		}
		frame, _ := busy().encode(nil, head.id)
		return st.answerAside(frame)
	}
	ctx, cancel := context.WithCancel(st.ctx)
	st.requests[head.id] = cancel
	st.mu.Unlock()
	st.running.Go(func() {
		st.serve(ctx, head.id, Op(body[0]), body[1:])
		cancel()
		st.buffers.put(buf)
	})
	return nil
}

// serve answers one request.
func (st *serverStream) serve(ctx context.Context, id uint64, op Op, body []byte) {
	r := st.routes[op].Load()
	if r == nil {
		st.reply(ctx, id, st.unrouted())
		return
	}
	res, held := st.run(ctx, r, op, body)
	st.reply(ctx, id, res)
	st.gates.leave(held)
}

// run lets a request through its gate to its handler, and contains their panics, which
// are one request's trouble. It returns the gate whose slot is held until the reply is
// written.
func (st *serverStream) run(ctx context.Context, r *route, op Op, body []byte) (res Response, held Gate) {
	entered := GateNone
	defer func() {
		if p := recover(); p != nil {
			st.panics.Inc()
			st.log.Error("node RPC: a handler panicked", "op", op.String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res = refusal(http.StatusInternalServerError, "internal error")
		}
		if entered != GateTransfer {
			st.gates.leave(entered)
		} else {
			held = entered
		}
	}()
	gate := GateNone
	if r.gate != nil {
		gate = r.gate(body)
	}
	switch err := st.gates.enter(ctx, gate, len(body)); {
	case err == nil:
		entered = gate
	case errors.Is(err, errBusy):
		return *busy(), GateNone
	case op != OpConsume:
		return refusal(http.StatusServiceUnavailable, "not applied: the requester gave up"), GateNone
	}
	return r.handle(ctx, body), GateNone
}

// reply writes the answer to a request within its budget, and keeps how to take it back
// for as long as a cancel may still be on its way.
func (st *serverStream) reply(ctx context.Context, id uint64, res Response) {
	undelivered := res.Undelivered
	if !res.fits() {
		st.undo(undelivered)
		undelivered = nil
		st.log.Error("node RPC: reply too large", "bytes", res.size(), "headers", len(res.Header), "status", res.Status)
		res = refusal(http.StatusInternalServerError, "reply too large")
	}
	if err := st.send(id, &res); err != nil {
		st.log.Debug("node RPC: reply not written", "peer", st.conn.RemoteAddr().String(), "err", err)
		st.forget(id)
		st.undo(undelivered)
		return
	}
	st.mu.Lock()
	delete(st.requests, id)
	gaveUp := ctx.Err() != nil
	if undelivered != nil && !gaveUp {
		st.answered.add(id, undelivered, st.clk.Now())
	}
	st.mu.Unlock()
	if gaveUp {
		st.undo(undelivered)
	}
}

func (st *serverStream) send(id uint64, res *Response) error {
	size := res.size()
	room := size
	if len(res.Body) > joinMax {
		room -= len(res.Body)
	}
	buf := st.buffers.get(headerSize + room)
	defer st.buffers.put(buf)
	before, after := res.encode(*buf, id)
	joined := len(res.Body) <= joinMax
	if joined {
		if done, err := st.writer.try(before); done || err != nil {
			return err
		}
	}
	ctx, stop := context.WithTimeout(st.ctx, replyBudget+replyBudgetPer*time.Duration(size/replyBudgetFor))
	defer stop()
	if joined {
		return st.writer.write(ctx, before)
	}
	return st.writer.write(ctx, before, res.Body, after)
}

func (st *serverStream) forget(id uint64) {
	st.mu.Lock()
	delete(st.requests, id)
	st.mu.Unlock()
}

// cancelRequest ends the context of a request that runs, or takes back one that was
// answered a moment ago (spec/cluster-and-network section 6.1).
func (st *serverStream) cancelRequest(id uint64) {
	st.mu.Lock()
	cancel := st.requests[id]
	undelivered := st.answered.take(id, st.clk.Now())
	st.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if undelivered != nil {
		st.running.Go(func() { st.undo(undelivered) })
	}
}

// undo calls f, if there is one, and contains its panic.
func (st *serverStream) undo(f func()) {
	if f == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			st.panics.Inc()
			st.log.Error("node RPC: taking back an answer panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// unrouted is the answer for an operation without a handler.
func (st *serverStream) unrouted() Response {
	if st.ready.Load() {
		return refusal(http.StatusBadRequest, "unsupported rpc operation")
	}
	return refusal(http.StatusServiceUnavailable, "not ready")
}

func busy() *Response {
	r := refusal(http.StatusServiceUnavailable, "node busy")
	return &r
}

// refusal is an answer of the transport's own.
func refusal(status int, text string) Response {
	body, err := json.Marshal(map[string]string{"error": text})
	if err != nil {
		panic(err) // a string always marshals
	}
	return Response{Status: status, ContentType: "application/json", Body: body}
}
