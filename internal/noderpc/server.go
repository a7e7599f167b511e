package noderpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Bounds of the serving side.
const (
	handshakeTimeout = 5 * time.Second
	proofWait        = 5 * time.Second  // for the proof, on either side, and for the first stream to show one
	connsMax         = 1024             // connections, of all peers
	unprovenMax      = 128              // of them, those on which no stream has shown a proof yet
	rejectLogPeriod  = 10 * time.Second // between two lines about one peer's host
)

// Handler serves one operation. body is the operation's fields, valid until it returns;
// ctx ends when the requester gives up, its stream ends, or the server closes. A consume
// whose requester gave up while it waited for a gate still reaches its handler, with ctx
// ended, so that the hold of a claim ends (spec/cluster-and-network section 6).
type Handler func(ctx context.Context, body []byte) Response

// ServerOptions are those of a Server.
type ServerOptions struct {
	// Addr is the UDP address to bind, host:port.
	Addr string
	// Secret is the cluster secret; empty leaves the streams open, which Secured refuses.
	Secret  []byte
	Secured bool
	// AllowLegacy also accepts what releases before the proofs show.
	AllowLegacy bool
	Clock       clock.Clock
	Logger      *slog.Logger
	// Registry counts panics of handlers in narad_errors_total; nil counts nowhere.
	Registry prometheus.Registerer
}

// route is how an operation is served.
type route struct {
	handle Handler
	gate   func(body []byte) Gate // nil is GateNone
}

// Server answers the requests of other nodes. All methods are safe for concurrent use.
type Server struct {
	security security
	log      *slog.Logger
	rejects  *telemetry.Limiter
	panics   prometheus.Counter
	routes   [256]atomic.Pointer[route] // by operation
	ready    atomic.Bool
	gates    *gates
	buffers  buffers
	clk      clock.Clock
	unproven atomic.Int32

	transport *quic.Transport
	listener  *quic.Listener
	ctx       context.Context // of every request; ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup // the accept loop and everything it starts

	mu     sync.Mutex // guards conns and closed
	conns  int        // connections held
	closed bool
}

// Listen binds and serves at once; operations come by Handle. A secured node without a
// secret is refused with ErrNoSecret before anything is bound.
func Listen(o ServerOptions) (*Server, error) {
	sec, err := newSecurity(o.Secret, o.Secured, o.AllowLegacy)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := sec.serverTLS(o.Clock.Now())
	if err != nil {
		return nil, err
	}
	socket, err := listenUDP(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("node RPC: listen on udp %s: %w", o.Addr, err)
	}
	transport := &quic.Transport{Conn: socket, ConnectionIDLength: connectionIDLength, StatelessResetKey: sec.resetKey()}
	listener, err := transport.Listen(tlsConfig, quicConfig(incomingStreams))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node RPC: listen on udp %s: %w", o.Addr, err), transport.Close(), socket.Close())
	}
	s := &Server{
		security: sec, log: o.Logger, clk: o.Clock,
		rejects:   telemetry.NewLimiter(o.Clock, rejectLogPeriod),
		panics:    telemetry.Errors(o.Registry).WithLabelValues("rpc", "panic"),
		gates:     newGates(),
		transport: transport, listener: listener,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.accept)
	return s, nil
}

func listenUDP(addr string) (net.PacketConn, error) {
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	return net.ListenUDP("udp", udp)
}

// Handle serves op by h from now on. gate says through which gate a request goes, by its
// body; nil is GateNone.
func (s *Server) Handle(op Op, h Handler, gate func(body []byte) Gate) {
	s.routes[op].Store(&route{handle: h, gate: gate})
}

// Ready ends the time in which an operation without a handler may still get one: until
// then it is answered 503, from now on 400.
func (s *Server) Ready() { s.ready.Store(true) }

// Logger is the logger of the node's RPC, for handlers that fail in a way their requester
// is not told.
func (s *Server) Logger() *slog.Logger { return s.log }

// Addr is the bound address, host:port.
func (s *Server) Addr() string { return s.transport.Conn.LocalAddr().String() }

// Close accepts no more, ends the context of every running request, waits for their
// handlers, and closes the connections.
func (s *Server) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if already {
		s.running.Wait()
		return nil
	}
	s.cancel() // each connection ends with the loop that accepts its streams
	err := s.listener.Close()
	s.running.Wait()
	return errors.Join(err, s.transport.Close(), s.transport.Conn.Close())
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Error("node RPC: the listener ended", "err", err)
			}
			return
		}
		s.running.Go(func() { s.serveConn(conn) })
	}
}

// admit counts a connection, unless the node holds as many as it may.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.conns >= connsMax || s.unproven.Load() >= unprovenMax {
		return false
	}
	s.conns++
	s.unproven.Add(1)
	return true
}

// serverConn is a connection a peer opened.
type serverConn struct {
	*Server
	conn   *quic.Conn
	once   sync.Once // of the first proof
	proved atomic.Bool
}

func (s *Server) serveConn(conn *quic.Conn) {
	if !s.admit() {
		_ = conn.CloseWithError(closeBusy, "too many connections")
		return
	}
	c := &serverConn{Server: s, conn: conn}
	limit, stop := context.WithTimeout(s.ctx, proofWait)
	unwatch := context.AfterFunc(limit, func() {
		if !c.proved.Load() {
			_ = conn.CloseWithError(closeRejected, "no stream showed a proof in time")
		}
	})
	defer func() {
		// Its only error is that it was closed already.
		_ = conn.CloseWithError(closeDone, "node is stopping")
		unwatch()
		stop()
		c.provenOnce(false)
		s.mu.Lock()
		s.conns--
		s.mu.Unlock()
	}()
	if conn.ConnectionState().TLS.NegotiatedProtocol == alpnV1 {
		s.log.Info("cluster connection of a peer with legacy auth", "component", "audit", "peer", conn.RemoteAddr().String())
	}
	for {
		stream, err := conn.AcceptStream(s.ctx)
		if err != nil {
			return
		}
		s.running.Go(func() { c.serveStream(stream) })
	}
}

// provenOnce ends the connection's place among the unproven, because a stream of it
// showed a proof or because it ended.
func (c *serverConn) provenOnce(proved bool) {
	if proved {
		c.proved.Store(true)
	}
	c.once.Do(func() { c.unproven.Add(-1) })
}

// authenticate holds a new stream to the secret, and closes the connection of one that
// does not know it. Where another stream showed it already, one that shows nothing ends
// alone.
func (c *serverConn) authenticate(stream *quic.Stream) error {
	timeout, stop := context.WithTimeout(c.ctx, proofWait)
	defer stop()
	release := interrupt(timeout, stream.SetDeadline)
	state := c.conn.ConnectionState().TLS
	err := c.security.accept(stream, &state)
	release()
	switch {
	case err == nil:
		c.provenOnce(true)
		return nil
	case c.proved.Load() && !errors.Is(err, ErrProof) && !errors.Is(err, errFrame):
		// The stream ended, or was slow: that tells nothing against a peer that has shown
		// the secret, and requests of its other streams are running.
		stream.CancelRead(streamDone)
		stream.CancelWrite(streamDone)
		return err
	}
	c.reject(err)
	return err
}

// reject closes a connection whose peer does not know the secret, or knows one where
// there is none.
func (c *serverConn) reject(err error) {
	if c.conn.Context().Err() == nil {
		c.rejects.Warn(c.log, c.host(), "cluster stream rejected: invalid auth", "component", "audit", "peer", c.conn.RemoteAddr().String(), "err", err)
	}
	_ = c.conn.CloseWithError(closeRejected, "invalid auth")
}

// host is the peer's, by which repeated lines about it are held back.
func (c *serverConn) host() string {
	if a, ok := c.conn.RemoteAddr().(*net.UDPAddr); ok {
		return a.IP.String()
	}
	return c.conn.RemoteAddr().String()
}
