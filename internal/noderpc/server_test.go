package noderpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/testutil"
)

const soon = 10 * time.Second // of the real time a test waits for an event

// caught is what a call in the background returned.
type caught struct {
	res Response
	err error
}

func call(ctx context.Context, c *Client, addr string, op Op, body []byte) <-chan caught {
	out := make(chan caught, 1)
	go func() {
		res, err := c.Call(ctx, addr, op, body)
		out <- caught{res, err}
	}()
	return out
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		t.Fatalf("not within %s: %s", soon, what)
		panic("unreachable")
	}
}

// blocker is a handler that runs until released, or its context ends.
type blocker struct {
	entered chan struct{}
	release chan struct{}
	ended   chan struct{} // one for each context that ended first
}

func newBlocker() *blocker {
	return &blocker{entered: make(chan struct{}, 10000), release: make(chan struct{}), ended: make(chan struct{}, 10000)}
}

func (b *blocker) handle(ctx context.Context, _ []byte) Response {
	b.entered <- struct{}{}
	select {
	case <-b.release:
		return Response{Status: 200}
	case <-ctx.Done():
		b.ended <- struct{}{}
		return Response{Status: 503}
	}
}

func gateOf(g Gate) func([]byte) Gate { return func([]byte) Gate { return g } }

// TestCancelEndsTheRequest: a caller that stops waiting stops the work, and only its own.
func TestCancelEndsTheRequest(t *testing.T) {
	s, c, b := serve(t, nil), dialler(t, nil), newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	ctx, cancel := context.WithCancel(context.Background())
	mine := call(ctx, c, s.Addr(), OpConsume, nil)
	other := call(within(t, soon), c, s.Addr(), OpConsume, nil)
	for range 2 {
		receive(t, b.entered, "both run")
	}
	cancel()
	if got := receive(t, mine, "the caller returns"); !errors.Is(got.err, context.Canceled) || errors.Is(got.err, ErrUnreached) {
		t.Errorf("got %v, want a cancel whose outcome is unknown", got.err)
	}
	receive(t, b.ended, "the handler's context ends")
	close(b.release)
	if got := receive(t, other, "the other returns"); got.err != nil || got.res.Status != 200 {
		t.Errorf("the other got %v, %v", got.res.Status, got.err)
	}
	if len(b.ended) != 0 {
		t.Error("the other's context ended too")
	}
}

// TestStreamEndCancelsItsRequests: a requester that is gone has given up.
func TestStreamEndCancelsItsRequests(t *testing.T) {
	s, b := serve(t, nil), newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	_, stream := proven(t, s)
	for id := range uint64(3) {
		if _, err := stream.Write(frameOf(frameRequest, id, []byte{byte(OpConsume)})); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		receive(t, b.entered, "the requests run")
	}
	stream.CancelWrite(0)
	for range 3 {
		receive(t, b.ended, "their contexts end")
	}
}

// TestServerCloseEndsHandlers: Close ends what runs and waits for it.
func TestServerCloseEndsHandlers(t *testing.T) {
	s, c, b := serve(t, nil), dialler(t, nil), newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	got := call(within(t, soon), c, s.Addr(), OpConsume, nil)
	receive(t, b.entered, "the request runs")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(b.ended) != 1 {
		t.Error("Close returned before the handler")
	}
	if got := receive(t, got, "the caller returns"); got.err == nil && got.res.Status != 503 || errors.Is(got.err, ErrUnreached) {
		t.Errorf("got %d, %v", got.res.Status, got.err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestGateSaturation: with every slot taken, what needs the gate waits, what needs none or
// another is served, on the same streams; the slots freed, all are.
func TestGateSaturation(t *testing.T) {
	s, c, b := serve(t, nil), dialler(t, nil), newBlocker()
	s.Handle(OpCommitProduceBatch, b.handle, gateOf(GateCommit))
	s.Handle(OpCommitProduce, echo, nil)
	s.Handle(OpAck, echo, gateOf(GateMessaging))
	slots := cap(s.gates.slots[GateCommit])
	var waiting []<-chan caught
	for range slots + 20 {
		waiting = append(waiting, call(within(t, 30*time.Second), c, s.Addr(), OpCommitProduceBatch, make([]byte, 1000)))
	}
	for range slots {
		receive(t, b.entered, "the slots are taken")
	}
	testutil.Eventually(t, soon, func() bool { return s.gates.waiting.Load() == 20*1000 }, "20 requests wait")
	for range laneStreams[laneProduce] { // each stream of the lane
		for _, op := range []Op{OpCommitProduce, OpAck} {
			if res, err := c.Call(within(t, soon), s.Addr(), op, nil); err != nil || res.Status != 200 {
				t.Fatalf("%s beside a full gate: %d, %v", op, res.Status, err)
			}
		}
	}
	if len(b.entered) != 0 {
		t.Errorf("%d requests more than the gate has slots run", len(b.entered))
	}
	close(b.release)
	for _, w := range waiting {
		if got := receive(t, w, "all are served"); got.err != nil || got.res.Status != 200 {
			t.Fatalf("got %d, %v", got.res.Status, got.err)
		}
	}
	if n := s.gates.waiting.Load(); n != 0 {
		t.Errorf("%d bytes are still counted as waiting", n)
	}
}

// TestGateGivenUp: a request given up in the queue frees its bytes and is not run; a
// consume reaches its handler with an ended context, so that a claim's hold ends.
func TestGateGivenUp(t *testing.T) {
	s, c, b := serve(t, nil), dialler(t, nil), newBlocker()
	s.Handle(OpAckBatch, b.handle, gateOf(GateMessaging))
	var acks atomic.Int32
	s.Handle(OpAck, func(context.Context, []byte) Response { acks.Add(1); return Response{Status: 204} }, gateOf(GateMessaging))
	consumed := make(chan error, 1)
	s.Handle(OpConsume, func(ctx context.Context, _ []byte) Response { consumed <- ctx.Err(); return Response{Status: 204} }, gateOf(GateMessaging))
	slots := cap(s.gates.slots[GateMessaging])
	for range slots {
		call(within(t, 30*time.Second), c, s.Addr(), OpAckBatch, nil)
	}
	for range slots {
		receive(t, b.entered, "the slots are taken")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ack := call(ctx, c, s.Addr(), OpAck, make([]byte, 10))
	claim := call(ctx, c, s.Addr(), OpConsume, make([]byte, 30))
	testutil.Eventually(t, soon, func() bool { return s.gates.waiting.Load() == 40 }, "both wait")
	cancel()
	for _, w := range []<-chan caught{ack, claim} {
		if got := receive(t, w, "the callers return"); !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %v", got.err)
		}
	}
	if err := receive(t, consumed, "the consume reaches its handler"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that says %v", err)
	}
	testutil.Eventually(t, soon, func() bool { return s.gates.waiting.Load() == 0 }, "their bytes are free")
	close(b.release)
	if _, err := c.Call(within(t, soon), s.Addr(), OpAck, nil); err != nil || acks.Load() != 1 {
		t.Errorf("%d acks ran, %v; want only the one after", acks.Load(), err)
	}
}

// TestGateWaitingBound: at the bound a request waits, past it it is refused.
func TestGateWaitingBound(t *testing.T) {
	g := newGates()
	for range transferSlots {
		if err := g.enter(context.Background(), GateTransfer, waitingMax); err != nil {
			t.Fatalf("a free slot: %v", err) // costs nothing
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.enter(ctx, GateTransfer, waitingMax) }()
	testutil.Eventually(t, soon, func() bool { return g.waiting.Load() == waitingMax }, "it waits")
	if err := g.enter(ctx, GateTransfer, 1); !errors.Is(err, errBusy) {
		t.Errorf("a byte more: %v", err)
	}
	cancel()
	if err := receive(t, ended, "it gives up"); !errors.Is(err, errGaveUp) {
		t.Errorf("got %v", err)
	}
	if n := g.waiting.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	if err := g.enter(context.Background(), GateNone, waitingMax+1); err != nil {
		t.Errorf("no gate: %v", err)
	}
}

// TestTransferSlotHeldUntilWritten: the slot stands for memory, which a reply that waits
// for its reader still takes.
func TestTransferSlotHeldUntilWritten(t *testing.T) {
	s := serve(t, nil)
	s.Handle(OpFetchSegmentChunk, func(context.Context, []byte) Response {
		return Response{Status: 200, Body: make([]byte, 4<<20)}
	}, gateOf(GateTransfer))
	_, stream := proven(t, s) // its windows are QUIC's defaults, far under the reply
	if _, err := stream.Write(frameOf(frameRequest, 1, []byte{byte(OpFetchSegmentChunk)})); err != nil {
		t.Fatal(err)
	}
	var first [headerSize]byte
	if _, err := io.ReadFull(stream, first[:]); err != nil {
		t.Fatal(err)
	}
	if n := len(s.gates.slots[GateTransfer]); n != 1 {
		t.Errorf("%d slots held while the reply is written, want 1", n)
	}
	if _, err := io.CopyN(io.Discard, stream, 4<<20); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, soon, func() bool { return len(s.gates.slots[GateTransfer]) == 0 }, "the slot is free")
}

// TestInFlightBound: past 4096 requests on a stream, the next is told the node is busy.
func TestInFlightBound(t *testing.T) {
	s, b := serve(t, nil), newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	_, stream := proven(t, s)
	var in []byte
	for id := range uint64(inFlightMax + 1) {
		in = append(in, frameOf(frameRequest, id, []byte{byte(OpConsume)})...)
	}
	if _, err := stream.Write(in); err != nil {
		t.Fatal(err)
	}
	want, _ := busy().encode(nil, inFlightMax)
	got := make([]byte, len(want))
	_ = stream.SetReadDeadline(time.Now().Add(soon))
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != string(want) {
		t.Fatalf("answered %q, want %q (%v)", got, want, err)
	}
	for range inFlightMax {
		receive(t, b.entered, "the others run")
	}
	if len(b.entered) != 0 {
		t.Error("one more runs")
	}
}

func TestReplyTooLarge(t *testing.T) {
	var log lines
	s, c := serve(t, func(o *ServerOptions) { o.Logger = testLogger(&log) }), dialler(t, nil)
	undone := make(chan struct{}, 1)
	s.Handle(OpNodeStatus, func(context.Context, []byte) Response {
		return Response{Status: 200, Body: make([]byte, bodyMax), Undelivered: func() { undone <- struct{}{} }}
	}, nil)
	res, err := c.Call(within(t, soon), s.Addr(), OpNodeStatus, nil)
	if err != nil || res.Status != http.StatusInternalServerError || string(res.Body) != `{"error":"reply too large"}` {
		t.Fatalf("got %d %.100s, %v", res.Status, res.Body, err)
	}
	receive(t, undone, "the answer is taken back")
}

// TestUndelivered: an answer is taken back once if its requester gave up before it was
// written, or within the grace after, and never later or without a cancel.
func TestUndelivered(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	s := serve(t, func(o *ServerOptions) { o.Clock = clk })
	undone := make(chan uint64, 10)
	proceed := make(chan struct{}, 10)
	s.Handle(OpConsume, func(_ context.Context, body []byte) Response {
		id := NewDecoder(body).U64()
		<-proceed
		return Response{Status: 200, Undelivered: func() { undone <- id }}
	}, nil)
	s.Handle(OpNodeStatus, echo, nil)
	_, stream := proven(t, s)
	_ = stream.SetReadDeadline(time.Now().Add(soon))
	send := func(frames ...[]byte) {
		t.Helper()
		for _, f := range frames {
			if _, err := stream.Write(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	answered := func(id uint64) {
		t.Helper()
		var scratch [headerSize]byte
		head, err := readHead(stream, &scratch, frameMax)
		if err != nil || head.id != id {
			t.Fatalf("answered %+v, %v; want id %d", head, err, id)
		}
		if _, err := io.CopyN(io.Discard, stream, int64(head.size)); err != nil {
			t.Fatal(err)
		}
	}
	request := func(id uint64) []byte {
		e := Encoder{byte(OpConsume)}
		e.AppendU64(id)
		return frameOf(frameRequest, id, e)
	}
	// ordered returns once the server's read loop has taken everything sent before.
	ordered := func(id uint64) {
		t.Helper()
		send(frameOf(framePing, id, nil))
		answered(id)
	}
	cancel := func(id uint64) []byte { return frameOf(frameCancel, id, nil) }

	send(request(1), cancel(1))
	ordered(100)
	proceed <- struct{}{}
	answered(1)
	if id := receive(t, undone, "given up before"); id != 1 {
		t.Errorf("took back %d", id)
	}
	proceed <- struct{}{}
	send(request(2))
	answered(2)
	clk.Advance(cancelGrace - 1)
	send(cancel(2), cancel(2))
	if id := receive(t, undone, "given up in the grace"); id != 2 {
		t.Errorf("took back %d", id)
	}
	proceed <- struct{}{}
	send(request(3))
	answered(3)
	clk.Advance(cancelGrace)
	send(cancel(3), cancel(4))
	ordered(101)
	stream.CancelWrite(0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(undone) != 0 {
		t.Errorf("took back %d, too late", <-undone)
	}
}

// TestGraceQueue holds the queue to its bound and to the order of its deadlines.
func TestGraceQueue(t *testing.T) {
	q := newGraceQueue()
	now := time.Unix(0, 0)
	for id := range uint64(graceMax + 10) {
		q.add(id, func() {}, now)
	}
	if len(q.undo) != graceMax || q.take(9, now) != nil || q.take(10, now) == nil || q.take(10, now) != nil {
		t.Errorf("%d kept, want the last %d, each once", len(q.undo), graceMax)
	}
	for i := range 100_000 {
		q.add(uint64(graceMax+10+i), func() {}, now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(q.undo) > 2001 || cap(q.order) > 4*graceMax {
		t.Errorf("%d kept of one a millisecond, in room for %d", len(q.undo), cap(q.order))
	}
	q.expire(now.Add(time.Hour))
	if len(q.undo) != 0 || len(q.order) != 0 {
		t.Errorf("%d kept after an hour, %d in order", len(q.undo), len(q.order))
	}
}

// TestReaderThatStopped: a peer that asks and does not read costs its stream, no more.
func TestReaderThatStopped(t *testing.T) {
	s := serve(t, nil)
	s.Handle(OpNodeStatus, func(context.Context, []byte) Response { return Response{Status: 200, Body: make([]byte, 8<<20)} }, nil)
	conn, stream := proven(t, s)
	if _, err := stream.Write(frameOf(frameRequest, 1, []byte{byte(OpNodeStatus)})); err != nil {
		t.Fatal(err)
	}
	_ = stream.SetWriteDeadline(time.Now().Add(soon))
	// Until the reply has filled the window the pings are answered at once.
	in := []byte(strings.Repeat(string(frameOf(framePing, 7, nil)), 1000))
	var err error
	for range 1000 {
		if _, err = stream.Write(in); err != nil {
			break
		}
	}
	var reset *quic.StreamError
	if !errors.As(err, &reset) || !reset.Remote {
		t.Fatalf("a million answers wait for a peer that does not read: %v", err)
	}
	if conn.Context().Err() != nil {
		t.Error("the connection ended with the stream")
	}
}

func TestServerPanicsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, c := serve(t, func(o *ServerOptions) { o.Registry = reg }), dialler(t, nil)
	s.Handle(OpAck, func(context.Context, []byte) Response { panic("a bug of the test") }, nil)
	if _, err := c.Call(within(t, soon), s.Addr(), OpAck, nil); err != nil {
		t.Fatal(err)
	}
	if got := gathered(t, reg); !strings.Contains(got, `narad_errors_total{component=rpc,kind=panic} 1`) {
		t.Errorf("gathered %s", got)
	}
}

// gathered renders the counters and histogram counts of a registry.
func gathered(t testing.TB, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				value = float64(h.GetSampleCount())
			}
			fmt.Fprintf(&out, "%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), value)
		}
	}
	return out.String()
}

// TestHandleWhileServing: operations come up while others are served.
func TestHandleWhileServing(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	var all sync.WaitGroup
	for o := Op(1); o < opCount; o++ {
		all.Go(func() { s.Handle(o, echo, nil) })
		all.Go(func() {
			if res, err := c.Call(within(t, soon), s.Addr(), o, nil); err != nil || res.Status != 200 && res.Status != 503 {
				t.Errorf("%s: %d, %v", o, res.Status, err)
			}
		})
	}
	all.Wait()
}
