package noderpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Liveness pings (spec/cluster-and-network section 3).
const (
	pingInterval = time.Second // least time between two of a connection
	pongWait     = time.Second
)

// link is a connection to a peer, with the streams of its lanes.
type link struct {
	peer  *peer
	conn  *quic.Conn
	lanes [laneCount]laneSlots
	// received counts what any stream of the connection received: while it moves, the
	// connection is not silent.
	received atomic.Uint64
	pinging  atomic.Bool
	waiting  atomic.Int64 // requests that wait for an answer
	watched  atomic.Bool  // watch runs

	mu       sync.Mutex // guards lastPing
	lastPing time.Time
}

// laneSlots are the streams of a lane, used in turn.
type laneSlots struct {
	next  atomic.Uint32
	slots []slot
}

// slot is the place of a stream.
type slot struct {
	stream atomic.Pointer[clientStream] // nil before the first use, and after its end

	mu      sync.Mutex // guards opening
	opening *open      // the one that runs, for all who wait
}

// open is the opening of a stream all callers share; err is set before done is closed.
type open struct {
	done   chan struct{}
	stream *clientStream
	err    error
}

func newLink(p *peer, conn *quic.Conn) *link {
	l := &link{peer: p, conn: conn}
	for i := range l.lanes {
		l.lanes[i].slots = make([]slot, laneStreams[i])
	}
	return l
}

func (l *link) close(code quic.ApplicationErrorCode, why string) {
	l.peer.link.CompareAndSwap(l, nil)
	// Its only error is that it was closed already.
	_ = l.conn.CloseWithError(code, why)
}

// stream returns the next stream of a lane, opening it if it must.
func (l *link) stream(ctx context.Context, ln lane) (*clientStream, error) {
	lane := &l.lanes[ln]
	s := &lane.slots[int(lane.next.Add(1)-1)%len(lane.slots)]
	if st := s.stream.Load(); st != nil {
		return st, nil
	}
	s.mu.Lock()
	if st := s.stream.Load(); st != nil {
		s.mu.Unlock()
		return st, nil
	}
	o := s.opening
	if o == nil {
		o = &open{done: make(chan struct{})}
		if !l.peer.client.start(func() { l.open(s, o) }) {
			s.mu.Unlock()
			return nil, errClosed
		}
		s.opening = o
	}
	s.mu.Unlock()
	select {
	case <-o.done:
		return o.stream, o.err
	case <-ctx.Done():
		if st := l.anyStream(); st != nil {
			st.overdue(ctx)
		}
		return nil, fmt.Errorf("while opening a stream: %w", ctx.Err())
	}
}

// anyStream is an open stream of the connection, nil while there is none.
func (l *link) anyStream() *clientStream {
	for i := range l.lanes {
		for j := range l.lanes[i].slots {
			if st := l.lanes[i].slots[j].stream.Load(); st != nil {
				return st
			}
		}
	}
	return nil
}

// open opens and authenticates the stream of a slot under the client's context, then
// reads it until it ends.
func (l *link) open(s *slot, o *open) {
	o.stream, o.err = l.authenticated()
	s.mu.Lock()
	s.opening = nil
	if o.err == nil {
		o.stream.slot = s
		s.stream.Store(o.stream)
	}
	s.mu.Unlock()
	close(o.done)
	if o.err == nil {
		o.stream.read()
	}
}

func (l *link) authenticated() (*clientStream, error) {
	ctx, stop := context.WithTimeout(l.peer.client.ctx, proofWait)
	defer stop()
	stream, err := l.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, l.openFailed(err)
	}
	release := interrupt(ctx, stream.SetDeadline)
	state := l.conn.ConnectionState().TLS
	err = l.peer.client.security.show(stream, &state)
	release()
	if err != nil {
		stream.CancelRead(streamDone)
		stream.CancelWrite(streamDone)
		return nil, l.openFailed(err)
	}
	l.peer.proved()
	return newClientStream(l, stream), nil
}

// openFailed ends a connection on which no stream can be opened. One that was merely
// lost is dialled again at once, but not a peer that does not prove the secret: that
// would go on in a loop.
func (l *link) openFailed(err error) error {
	lost := context.Cause(l.conn.Context())
	l.close(closeDone, "no stream")
	switch {
	case rejectsProof(lost):
		return fmt.Errorf("%w: %w: %w", ErrProof, err, lost)
	case refusesUs(lost):
		return fmt.Errorf("%w: %w", err, lost)
	case lost != nil:
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	l.peer.refused(err)
	return err
}

// guard starts the watch of a connection on which a request waits, unless it runs.
func (l *link) guard() {
	if l.watched.CompareAndSwap(false, true) && !l.peer.client.start(l.watch) {
		l.watched.Store(false)
	}
}

// watch suspects the connection after each second in which requests waited and nothing at
// all came: a peer that died does not say so, and a commit would wait for 30 s. It ends
// when nobody waits.
func (l *link) watch() {
	timer := l.peer.client.clk.NewTimer(pingInterval)
	defer timer.Stop()
	for {
		before := l.received.Load()
		select {
		case <-timer.C():
		case <-l.conn.Context().Done():
			return // whoever waits is told; the next request has another connection
		case <-l.peer.client.ctx.Done():
			return
		}
		if l.waiting.Load() == 0 {
			l.watched.Store(false)
			if l.waiting.Load() > 0 { // one began to wait in between
				l.guard()
			}
			return
		}
		if st := l.anyStream(); st != nil && l.received.Load() == before {
			l.suspect(st)
		}
		timer.Reset(pingInterval)
	}
}

// suspect pings the peer, off the caller's path: a connection on which nothing at all
// comes is closed, a slow one is left alone. It is called after a request ended on its
// deadline, and by watch.
func (l *link) suspect(st *clientStream) {
	if !l.pinging.CompareAndSwap(false, true) {
		return
	}
	now := l.peer.client.clk.Now()
	l.mu.Lock()
	early := !l.lastPing.IsZero() && now.Sub(l.lastPing) < pingInterval
	if !early {
		l.lastPing = now
	}
	l.mu.Unlock()
	if early || !l.peer.client.start(func() { l.ping(st) }) {
		l.pinging.Store(false)
	}
}

func (l *link) ping(st *clientStream) {
	defer l.pinging.Store(false)
	before := l.received.Load()
	ctx, stop := context.WithTimeout(l.peer.client.ctx, pongWait)
	defer stop()
	if st.ping(ctx) == nil || l.peer.client.ctx.Err() != nil || l.received.Load() != before {
		return
	}
	l.peer.client.log.Warn("cluster connection is silent; closing it", "peer", l.peer.addr)
	l.close(closeSilent, "no pong")
}
