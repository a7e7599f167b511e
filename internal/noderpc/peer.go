package noderpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Dialling (spec/cluster-and-network section 3).
const (
	dialTimeout = time.Second
	backoffMin  = 250 * time.Millisecond
	backoffMax  = 2 * time.Second
)

// Ends of a dial.
var (
	errBackoff  = errors.New("not dialled again yet") // one failed a moment ago
	errNoAnswer = errors.New("no answer to a handshake within 1s")
)

// peer is an address, and the connection to it while there is one.
type peer struct {
	client *Client
	addr   string
	tls    *tls.Config
	link   atomic.Pointer[link]

	mu      sync.Mutex // guards the rest
	dialing *dial      // the one that runs, for all who wait
	failed  error      // of the last dial; nil after one that succeeded
	backoff time.Duration
	retryAt time.Time // no dial before
}

// dial is an attempt all callers share; err is set before done is closed.
type dial struct {
	done chan struct{}
	link *link
	err  error
}

func newPeer(c *Client, addr string) *peer {
	return &peer{client: c, addr: addr, tls: c.security.clientTLS()}
}

// idle reports whether nothing would be lost with p but its backoff. It never waits: the
// caller holds the client's lock, which whoever holds p's may be waiting for.
func (p *peer) idle() bool {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	return p.dialing == nil && p.link.Load() == nil
}

func (p *peer) close() {
	if l := p.link.Load(); l != nil {
		l.close(closeDone, "client is closed")
	}
}

// stream returns the next stream of a lane, dialling and opening as it must. ctx bounds
// only the caller's wait: what it waits for goes on for others.
func (p *peer) stream(ctx context.Context, ln lane) (*clientStream, error) {
	l := p.link.Load()
	if l != nil && l.conn.Context().Err() != nil {
		p.link.CompareAndSwap(l, nil)
		l = nil
	}
	if l == nil {
		var err error
		if l, err = p.connect(ctx); err != nil {
			return nil, err
		}
	}
	return l.stream(ctx, ln)
}

// connect waits for the connection, starting the dial if none runs.
func (p *peer) connect(ctx context.Context) (*link, error) {
	p.mu.Lock()
	if l := p.link.Load(); l != nil {
		p.mu.Unlock()
		return l, nil
	}
	d := p.dialing
	if d == nil {
		if p.failed != nil && p.client.clk.Now().Before(p.retryAt) {
			err := p.failed
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: %w", errBackoff, err)
		}
		d = &dial{done: make(chan struct{})}
		if !p.client.start(func() { p.dial(d) }) {
			p.mu.Unlock()
			return nil, errClosed
		}
		p.dialing = d
	}
	p.mu.Unlock()
	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("while dialling: %w", ctx.Err())
	}
}

// dial connects under the client's context.
func (p *peer) dial(d *dial) {
	conn, err := p.handshake()
	if err == nil {
		d.link = newLink(p, conn)
		p.link.Store(d.link)
		context.AfterFunc(conn.Context(), func() { p.lost(d.link) })
	}
	d.err = err
	p.mu.Lock()
	p.dialing = nil
	if err != nil && p.client.ctx.Err() == nil {
		p.fail(err)
	}
	p.mu.Unlock()
	close(d.done)
}

// fail arms the backoff, longer with each failure in a row. Caller holds mu.
func (p *peer) fail(err error) {
	p.backoff = min(max(2*p.backoff, backoffMin), backoffMax)
	p.failed, p.retryAt = err, p.client.clk.Now().Add(p.backoff)
}

// proved clears the backoff: the peer answered, and knows the secret.
func (p *peer) proved() {
	p.mu.Lock()
	p.failed, p.backoff = nil, 0
	p.mu.Unlock()
}

// lost forgets a connection that ended.
func (p *peer) lost(l *link) {
	if cause := context.Cause(l.conn.Context()); refusesUs(cause) {
		p.refused(cause)
	}
	p.link.CompareAndSwap(l, nil)
}

// refusesUs reports whether the peer closed the connection because it takes no requests
// of this end. It has run none that came on a stream without a proof: a peer that wants
// none takes them all, one that wants one takes none. Of a stream with a proof it may have
// run some, for what it refused may be another stream.
func refusesUs(cause error) bool {
	var app *quic.ApplicationError
	return errors.As(cause, &app) && app.Remote && (app.ErrorCode == closeRejected || app.ErrorCode == closeBusy)
}

// rejectsProof reports whether the peer closed the connection because this end did not
// prove its cluster secret.
func rejectsProof(cause error) bool {
	var app *quic.ApplicationError
	return errors.As(cause, &app) && app.Remote && app.ErrorCode == closeRejected
}

// refused arms the backoff for a peer that answers but does not prove the secret, or that
// refuses the proof of this end: dialling it at once would end the same way.
func (p *peer) refused(err error) {
	p.mu.Lock()
	p.fail(err)
	p.mu.Unlock()
}

func (p *peer) handshake() (*quic.Conn, error) {
	ctx, stop := context.WithTimeout(p.client.ctx, dialTimeout)
	defer stop()
	addr, err := resolve(ctx, p.addr)
	if err != nil {
		return nil, err
	}
	transport, err := p.client.socket()
	if err != nil {
		return nil, err
	}
	conn, err := transport.Dial(ctx, addr, p.tls, quicConfig(-1))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		// The caller's own deadline is another matter.
		return nil, fmt.Errorf("dial %s: %w", addr, errNoAnswer)
	case err != nil:
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}

// resolve looks a host up, and like net.ResolveUDPAddr prefers an IPv4 address.
func resolve(ctx context.Context, addr string) (net.Addr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %q: %w", addr, err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		ip = ips[0]
		for _, candidate := range ips {
			if candidate.Unmap().Is4() {
				ip = candidate
				break
			}
		}
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip.Unmap(), uint16(number))), nil
}
