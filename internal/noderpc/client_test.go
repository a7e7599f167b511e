package noderpc

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/testutil"
)

// relay is a way to a server that can be cut: packets are lost in both directions.
type relay struct {
	front *net.UDPConn
	back  string
	cut   atomic.Bool
	wg    sync.WaitGroup

	mu   sync.Mutex
	outs map[string]*net.UDPConn // by client address
}

func newRelay(t testing.TB, back string) *relay {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{front: front, back: back, outs: map[string]*net.UDPConn{}}
	r.wg.Go(r.forward)
	t.Cleanup(func() {
		_ = front.Close()
		r.mu.Lock()
		for _, out := range r.outs {
			_ = out.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.front.LocalAddr().String() }

func (r *relay) forward() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := r.front.ReadFromUDP(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		out := r.outs[from.String()]
		if out == nil {
			to, err := net.ResolveUDPAddr("udp", r.back)
			if err == nil {
				out, err = net.DialUDP("udp", nil, to)
			}
			if err != nil {
				r.mu.Unlock()
				return
			}
			r.outs[from.String()] = out
			r.wg.Go(func() { r.backward(out, from) })
		}
		r.mu.Unlock()
		if !r.cut.Load() {
			_, _ = out.Write(buf[:n])
		}
	}
}

func (r *relay) backward(out *net.UDPConn, to *net.UDPAddr) {
	buf := make([]byte, 64<<10)
	for {
		n, err := out.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && !r.cut.Load() {
			_, _ = r.front.WriteToUDP(buf[:n], to)
		}
	}
}

func linkOf(t testing.TB, c *Client, addr string) *link {
	t.Helper()
	p, err := c.peer(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p.link.Load()
}

// TestSharedDial: callers at once make one connection.
func TestSharedDial(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if _, err := c.Call(within(t, soon), s.Addr(), OpNodeStatus, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns != 1 {
		t.Errorf("%d connections, want 1", s.conns)
	}
}

// TestLanesOfAConnection: requests take the streams of their lane in turn, and no others.
func TestLanesOfAConnection(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	for o := Op(1); o < opCount; o++ {
		s.Handle(o, echo, nil)
	}
	for _, op := range []Op{OpCommitProduceBatch, OpConsume, OpAck} {
		for range 40 {
			if _, err := c.Call(within(t, soon), s.Addr(), op, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := linkOf(t, c, s.Addr())
	for ln, want := range []int{16, 16, 16, 0} {
		open := 0
		for i := range l.lanes[ln].slots {
			if l.lanes[ln].slots[i].stream.Load() != nil {
				open++
			}
		}
		if open != want {
			t.Errorf("lane %d has %d streams open, want %d", ln, open, want)
		}
	}
}

// TestCancelledCallerFailsAlone: whoever gives up while a dial runs arms no backoff and
// takes the dial from nobody.
func TestCancelledCallerFailsAlone(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	r := newRelay(t, s.Addr())
	r.cut.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancelled := call(ctx, c, r.addr(), OpNodeStatus, nil)
	late, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	overdue := call(late, c, r.addr(), OpNodeStatus, nil)
	patient := call(within(t, soon), c, r.addr(), OpNodeStatus, nil)
	got := receive(t, overdue, "its deadline")
	if !errors.Is(got.err, ErrUnreached) || !errors.Is(got.err, context.DeadlineExceeded) {
		t.Errorf("overdue: %v", got.err)
	}
	cancel()
	if got := receive(t, cancelled, "its cancel"); !errors.Is(got.err, ErrUnreached) || !errors.Is(got.err, context.Canceled) {
		t.Errorf("cancelled: %v", got.err)
	}
	p, err := c.peer(r.addr())
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	if p.failed != nil || p.dialing == nil {
		t.Errorf("backoff after %v, dialling %v", p.failed, p.dialing != nil)
	}
	p.mu.Unlock()
	r.cut.Store(false)
	if got := receive(t, patient, "the dial goes on"); got.err != nil {
		t.Errorf("patient: %v", got.err)
	}
}

// TestBackoff: a dial that fails is not tried again for 250 ms, doubling to 2 s.
func TestBackoff(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	c := dialler(t, func(o *ClientOptions) { o.Clock = clk })
	const addr = "127.0.0.1:99999" // no port: fails at once
	for _, wait := range []time.Duration{250, 500, 1000, 2000, 2000} {
		if _, err := c.Call(within(t, soon), addr, OpNodeStatus, nil); !errors.Is(err, ErrUnreached) || errors.Is(err, errBackoff) {
			t.Fatalf("dialled: %v", err)
		}
		clk.Advance(wait*time.Millisecond - 1)
		if _, err := c.Call(within(t, soon), addr, OpNodeStatus, nil); !errors.Is(err, ErrUnreached) || !errors.Is(err, errBackoff) {
			t.Fatalf("just before %d ms: %v, want the backoff", wait, err)
		}
		clk.Advance(1)
	}
}

// TestDialTimeout: a node that does not answer costs its callers a second, and its error
// is not mistaken for their own deadline.
func TestDialTimeout(t *testing.T) {
	t.Parallel()
	c := dialler(t, nil)
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	start := time.Now()
	_, err = c.Call(within(t, soon), silent.LocalAddr().String(), OpNodeStatus, nil)
	if !errors.Is(err, ErrUnreached) || !errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(start); took < dialTimeout {
		t.Errorf("failed after %s, want a dial of %s", took, dialTimeout)
	}
	if _, err := c.Call(within(t, soon), silent.LocalAddr().String(), OpNodeStatus, nil); !errors.Is(err, errBackoff) {
		t.Errorf("called again: %v, want the backoff", err)
	}
}

// TestReconnectAfterCrash: a node that died without a word and came back on its port says
// so by stateless resets, which its new process can make because it has the secret. The
// request that meets the old connection fails in moments, the next one is served.
func TestReconnectAfterCrash(t *testing.T) {
	s, err := Listen(ServerOptions{Addr: "127.0.0.1:0", Secret: testSecret, Secured: true, Clock: clock.Real(), Logger: testLogger(&lines{})})
	if err != nil {
		t.Fatal(err)
	}
	c := dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	if _, err := c.Call(within(t, soon), s.Addr(), OpNodeStatus, nil); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	_ = s.transport.Conn.Close() // no packet leaves any more
	_ = s.Close()                // its goroutines end; its socket is closed already
	var again *Server
	testutil.Eventually(t, soon, func() bool {
		var err error
		again, err = Listen(ServerOptions{Addr: addr, Secret: testSecret, Secured: true, Clock: clock.Real(), Logger: testLogger(&lines{})})
		return err == nil
	}, "the port is free")
	defer again.Close()
	again.Handle(OpNodeStatus, echo, nil)
	start := time.Now()
	res, err := c.Call(within(t, 20*time.Second), addr, OpNodeStatus, make([]byte, 100))
	if err != nil && (!errors.Is(err, errLostConn) || errors.Is(err, ErrUnreached)) {
		t.Errorf("the request that met the old connection: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the old connection took %s to go (%v, %v)", took, res.Status, err)
	}
	if res, err := c.Call(within(t, soon), addr, OpNodeStatus, nil); err != nil || res.Status != 200 {
		t.Errorf("the next: %v, %v", res.Status, err)
	}
}

// TestReconnectAfterStop: a node that stopped in order cost no request its outcome.
func TestReconnectAfterStop(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	addr := s.Addr()
	if _, err := c.Call(within(t, soon), addr, OpNodeStatus, nil); err != nil {
		t.Fatal(err)
	}
	old := linkOf(t, c, addr)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, old.conn.Context().Done(), "the client learns of it")
	again := serve(t, func(o *ServerOptions) { o.Addr = addr })
	again.Handle(OpNodeStatus, echo, nil)
	if res, err := c.Call(within(t, soon), addr, OpNodeStatus, nil); err != nil || res.Status != 200 {
		t.Errorf("got %v, %v", res.Status, err)
	}
}

// TestPingClosesOnlySilence: a request that ends on its deadline has the connection
// pinged. A peer that is slow answers the ping and keeps it; one that is silent loses it.
func TestPingClosesOnlySilence(t *testing.T) {
	var log lines
	s, b := serve(t, nil), newBlocker()
	c := dialler(t, func(o *ClientOptions) { o.Logger = testLogger(&log) })
	s.Handle(OpGetTopic, b.handle, nil)
	s.Handle(OpNodeStatus, echo, nil)
	r := newRelay(t, s.Addr())
	for range laneStreams[laneControl] { // every stream of the lane is open
		if _, err := c.Call(within(t, soon), r.addr(), OpNodeStatus, nil); err != nil {
			t.Fatal(err)
		}
	}
	overdue := func() {
		t.Helper()
		ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer stop()
		if _, err := c.Call(ctx, r.addr(), OpGetTopic, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreached) {
			t.Fatalf("got %v", err)
		}
	}
	waiting := call(within(t, 30*time.Second), c, r.addr(), OpGetTopic, nil)
	receive(t, b.entered, "the first request runs")
	l := linkOf(t, c, r.addr())
	overdue()
	testutil.Eventually(t, soon, func() bool { return !l.pinging.Load() }, "the pong comes")
	if l.conn.Context().Err() != nil || linkOf(t, c, r.addr()) != l {
		t.Fatal("a slow peer lost its connection")
	}
	l.mu.Lock()
	l.lastPing = time.Time{} // as if a second had passed
	l.mu.Unlock()
	r.cut.Store(true)
	overdue()
	receive(t, l.conn.Context().Done(), "a silent peer loses its connection")
	if got := receive(t, waiting, "and who waits on it learns so"); !errors.Is(got.err, errLostConn) || errors.Is(got.err, ErrUnreached) {
		t.Errorf("got %v", got.err)
	}
	if !log.has("cluster connection is silent") {
		t.Error("no line about it")
	}
}

// TestWatchFindsTheDead: requests without any deadline near learn within seconds that their
// peer is silent, and a slow one keeps its connection as long as it pongs.
func TestWatchFindsTheDead(t *testing.T) {
	s, b, c := serve(t, nil), newBlocker(), dialler(t, nil)
	s.Handle(OpGetTopic, b.handle, nil)
	r := newRelay(t, s.Addr())
	waiting := call(within(t, time.Minute), c, r.addr(), OpGetTopic, nil)
	receive(t, b.entered, "the request runs")
	l := linkOf(t, c, r.addr())
	pinged := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.lastPing.IsZero() && !l.pinging.Load()
	}
	testutil.Eventually(t, soon, pinged, "a second without an answer has the peer pinged")
	if l.conn.Context().Err() != nil {
		t.Fatal("a slow peer lost its connection")
	}
	r.cut.Store(true)
	start := time.Now()
	if got := receive(t, waiting, "who waits learns of the silence"); !errors.Is(got.err, errLostConn) || errors.Is(got.err, ErrUnreached) {
		t.Errorf("got %v", got.err)
	}
	if took := time.Since(start); took > idleTimeout/2 {
		t.Errorf("after %s: not by the watch", took)
	}
	testutil.Eventually(t, soon, func() bool { return l.waiting.Load() == 0 }, "nobody waits any more")
}

// TestPingForAnOpen: a request that ends while its stream is opened has the connection
// pinged on another.
func TestPingForAnOpen(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	r := newRelay(t, s.Addr())
	if _, err := c.Call(within(t, soon), r.addr(), OpNodeStatus, nil); err != nil {
		t.Fatal(err)
	}
	l := linkOf(t, c, r.addr())
	r.cut.Store(true)
	start := time.Now()
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	if _, err := c.Call(ctx, r.addr(), OpAck, nil); !errors.Is(err, ErrUnreached) {
		t.Errorf("got %v", err)
	}
	receive(t, l.conn.Context().Done(), "the silent connection is closed")
	if took := time.Since(start); took >= proofWait {
		t.Errorf("after %s: not by the ping", took)
	}
}

// TestPingSparesWhatReceives: no pong, but other answers come: the connection stays.
func TestPingSparesWhatReceives(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	if _, err := c.Call(within(t, soon), s.Addr(), OpNodeStatus, nil); err != nil {
		t.Fatal(err)
	}
	l := linkOf(t, c, s.Addr())
	st := l.lanes[laneControl].slots[0].stream.Load()
	st.writer.token <- struct{}{} // the ping finds its stream taken
	st.writer.stream = blocked{}
	l.pinging.Store(true)
	pinged := make(chan struct{})
	go func() { l.ping(st); close(pinged) }()
	testutil.Eventually(t, soon, func() bool {
		if _, err := c.Call(within(t, 50*time.Millisecond), s.Addr(), OpNodeStatus, nil); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		select {
		case <-pinged:
			return true
		default:
			return false
		}
	}, "the ping ends")
	if l.conn.Context().Err() != nil {
		t.Error("a connection that receives was closed")
	}
}

// TestPingRate: at most one ping a second on a connection.
func TestPingRate(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	s := serve(t, nil)
	c := dialler(t, func(o *ClientOptions) { o.Clock = clk })
	s.Handle(OpNodeStatus, echo, nil)
	if _, err := c.Call(within(t, soon), s.Addr(), OpNodeStatus, nil); err != nil {
		t.Fatal(err)
	}
	l := linkOf(t, c, s.Addr())
	st := l.lanes[laneControl].slots[0].stream.Load()
	pings := func() uint64 {
		l.suspect(st)
		testutil.Eventually(t, soon, func() bool { return !l.pinging.Load() }, "the ping ends")
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.lastID
	}
	first := pings()
	clk.Advance(pingInterval - 1)
	if n := pings(); n != first {
		t.Errorf("%d pings within a second", n-first+1)
	}
	clk.Advance(1)
	if n := pings(); n != first+1 {
		t.Errorf("%d pings after a second, want 1", n-first)
	}
}

// TestFallbackBudget: a caller without a deadline waits five seconds.
func TestFallbackBudget(t *testing.T) {
	t.Parallel()
	s, c, b := serve(t, nil), dialler(t, nil), newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	start := time.Now()
	_, err := c.Call(context.Background(), s.Addr(), OpConsume, nil)
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took < fallbackBudget {
		t.Errorf("got %v after %s", err, took)
	}
	receive(t, b.ended, "the handler is cancelled")
}

// TestClientClose fails those who wait, and all who come later.
func TestClientClose(t *testing.T) {
	s, c, b := serve(t, nil), dialler(t, nil), newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	waiting := call(within(t, soon), c, s.Addr(), OpConsume, nil)
	receive(t, b.entered, "the request runs")
	r := newRelay(t, s.Addr())
	r.cut.Store(true)
	dialling := call(within(t, soon), c, r.addr(), OpConsume, nil)
	testutil.Eventually(t, soon, func() bool {
		p, err := c.peer(r.addr())
		return err == nil && !p.idle()
	}, "the dial runs")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, waiting, "who waits returns"); got.err == nil || errors.Is(got.err, ErrUnreached) {
		t.Errorf("waiting: %v", got.err)
	}
	if got := receive(t, dialling, "who dials returns"); !errors.Is(got.err, ErrUnreached) {
		t.Errorf("dialling: %v", got.err)
	}
	if _, err := c.Call(context.Background(), s.Addr(), OpConsume, nil); !errors.Is(err, ErrUnreached) || !errors.Is(err, errClosed) {
		t.Errorf("after: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestUnreachableAddress(t *testing.T) {
	c := dialler(t, nil)
	for _, addr := range []string{"", "nowhere", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:http"} {
		if _, err := c.Call(within(t, soon), addr, OpNodeStatus, nil); !errors.Is(err, ErrUnreached) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

// TestPeerBound: addresses without a connection make room, those with one do not.
func TestPeerBound(t *testing.T) {
	s, c := serve(t, nil), dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	if _, err := c.Call(within(t, soon), s.Addr(), OpNodeStatus, nil); err != nil {
		t.Fatal(err)
	}
	connected := c.peers[s.Addr()]
	for len(c.peers) < peersMax {
		c.peers[strconv.Itoa(len(c.peers))] = &peer{client: c}
	}
	if _, err := c.peer("one more"); err != nil {
		t.Fatal(err)
	}
	if len(c.peers) != 2 || c.peers[s.Addr()] != connected {
		t.Errorf("%d addresses kept, want the connected one and the new one", len(c.peers))
	}
	delete(c.peers, "one more")
	for len(c.peers) < peersMax {
		c.peers[strconv.Itoa(len(c.peers))] = &peer{client: c, dialing: &dial{}}
	}
	if _, err := c.Call(within(t, soon), "too many:1", OpNodeStatus, nil); !errors.Is(err, ErrUnreached) || !errors.Is(err, errTooMany) {
		t.Errorf("got %v", err)
	}
}

// TestPeerBoundWhileDialling: making room looks at every peer, and waits for none: one that
// is about to dial holds its own lock and asks for the client's.
func TestPeerBoundWhileDialling(t *testing.T) {
	c := dialler(t, nil)
	for i := range peersMax {
		addr := "nowhere:" + strconv.Itoa(i+1)
		c.peers[addr] = newPeer(c, addr)
	}
	busy := c.peers["nowhere:1"]
	busy.mu.Lock()
	defer busy.mu.Unlock()
	made := make(chan error, 1)
	go func() {
		_, err := c.peer("one more:1")
		made <- err
	}()
	if err := receive(t, made, "room for one more"); err != nil {
		t.Error(err)
	}
	if c.peers["nowhere:1"] != busy {
		t.Error("the one that is busy was forgotten")
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, b := serve(t, nil), newBlocker()
	metrics := NewMetrics(reg)
	c := dialler(t, func(o *ClientOptions) { o.Metrics = metrics })
	other := dialler(t, func(o *ClientOptions) { o.Metrics, o.Name = NewMetrics(reg), "transfer" })
	for op, status := range map[Op]int{OpAck: 204, OpNack: 410, OpExtendAck: 503} {
		s.Handle(op, func(context.Context, []byte) Response { return Response{Status: status} }, nil)
		if _, err := c.Call(within(t, soon), s.Addr(), op, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Call(within(t, soon), s.Addr(), OpAck, nil); err != nil {
		t.Fatal(err)
	}
	s.Handle(OpConsume, b.handle, nil)
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	if _, err := c.Call(ctx, s.Addr(), OpConsume, nil); err == nil {
		t.Fatal("no timeout")
	}
	if _, err := c.Call(within(t, soon), "nowhere", OpAckBatch, nil); err == nil {
		t.Fatal("no error")
	}
	got := gathered(t, reg)
	for _, want := range []string{
		"narad_cluster_rpc_requests_total{op=ack,outcome=ok} 2", "narad_cluster_rpc_requests_total{op=ack,outcome=error} 0",
		"narad_cluster_rpc_requests_total{op=nack,outcome=rejected} 1", "narad_cluster_rpc_requests_total{op=extend_ack,outcome=failed} 1",
		"narad_cluster_rpc_requests_total{op=consume,outcome=timeout} 1", "narad_cluster_rpc_requests_total{op=ack_batch,outcome=error} 1",
		"narad_cluster_rpc_request_seconds{op=ack} 2", "narad_cluster_rpc_request_seconds{op=ack_batch} 1",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
