package noderpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/narad-mq/narad/internal/clock"
)

// Bounds of the calling side.
const (
	fallbackBudget = 5 * time.Second // of a caller without a deadline
	peersMax       = 4096            // addresses a client keeps anything about
	attemptsMax    = 2               // of a request of which nothing was written, as its connection had ended
)

// ErrUnreached: nothing of a request can have been delivered, so it may be sent again
// without a thought. After any other error of Call its outcome is unknown.
var ErrUnreached = errors.New("node not reached")

// Ends of a call. The first two come with ErrUnreached.
var (
	errClosed   = errors.New("node RPC client is closed")
	errTooMany  = errors.New("too many peer addresses")
	errLostConn = errors.New("connection lost")
)

// ProtocolError is a peer's failure to make sense of a request, or of this end to make
// sense of its answer. The outcome is unknown.
type ProtocolError struct{ Text string }

func (e *ProtocolError) Error() string { return "cluster rpc: " + e.Text }

// ClientOptions are those of a Client.
type ClientOptions struct {
	// Name tells a node's clients apart in log lines: main, transfer.
	Name string
	// Secret is the cluster secret; empty sends no proofs, which Secured refuses.
	Secret  []byte
	Secured bool
	// AllowLegacy falls back to what releases before the proofs ask for.
	AllowLegacy bool
	Clock       clock.Clock
	Logger      *slog.Logger
	// Metrics counts the calls; nil counts nowhere.
	Metrics *Metrics
}

// Client calls other nodes, over one connection to each, from a UDP socket of its own
// that it opens on first use. All methods are safe for concurrent use.
type Client struct {
	security security
	log      *slog.Logger
	clk      clock.Clock
	metrics  *Metrics
	buffers  buffers

	ctx     context.Context // of dials and connections; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // dials, stream opens, readers, pings

	mu        sync.RWMutex // guards the rest
	peers     map[string]*peer
	transport *quic.Transport // nil before the first dial
	closed    bool
}

// NewClient returns a client that has opened nothing yet. A secured node without a secret
// is refused with ErrNoSecret.
func NewClient(o ClientOptions) (*Client, error) {
	sec, err := newSecurity(o.Secret, o.Secured, o.AllowLegacy)
	if err != nil {
		return nil, err
	}
	metrics := o.Metrics
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	c := &Client{security: sec, log: o.Logger.With("rpc_client", o.Name), clk: o.Clock, metrics: metrics, peers: map[string]*peer{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Call sends op with its fields, body, to the node at addr, host:port, and waits for the
// answer: until ctx ends, or for 5 s if it has no deadline. It does not keep body; the
// answer belongs to the caller. Any status is an answer, not an error.
func (c *Client) Call(ctx context.Context, addr string, op Op, body []byte) (Response, error) {
	start := c.clk.Now()
	if _, ok := ctx.Deadline(); !ok {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, fallbackBudget)
		defer stop()
	}
	res, err := c.call(ctx, addr, op, body)
	if err != nil {
		err = fmt.Errorf("%s to %s: %w", op, addr, err)
	}
	c.metrics.observe(op, res, err, c.clk.Now().Sub(start))
	return res, err
}

func (c *Client) call(ctx context.Context, addr string, op Op, body []byte) (Response, error) {
	if 1+len(body) > bodyMax {
		return Response{}, fmt.Errorf("%w: %w: %d bytes, at most %d", ErrUnreached, ErrFrameTooLarge, len(body), bodyMax-1)
	}
	p, err := c.peer(addr)
	if err != nil {
		return Response{}, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	for attempt := 1; ; attempt++ {
		st, err := p.stream(ctx, laneOf(op))
		if err == nil {
			var res Response
			if res, err = st.call(ctx, op, body); !errors.Is(err, errUnwritten) {
				return res, err
			}
		}
		if ctx.Err() != nil || attempt == attemptsMax || !errors.Is(err, errUnwritten) {
			return Response{}, fmt.Errorf("%w: %w", ErrUnreached, err)
		}
	}
}

// peer returns what is known about an address, making room for a new one by forgetting
// those without a connection.
func (c *Client) peer(addr string) (*peer, error) {
	c.mu.RLock()
	p, closed := c.peers[addr], c.closed
	c.mu.RUnlock()
	if p != nil && !closed {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if p := c.peers[addr]; p != nil {
		return p, nil
	}
	if len(c.peers) >= peersMax {
		for a, p := range c.peers {
			if p.idle() {
				delete(c.peers, a)
			}
		}
	}
	if len(c.peers) >= peersMax {
		return nil, fmt.Errorf("%w: %d", errTooMany, peersMax)
	}
	p = newPeer(c, addr)
	c.peers[addr] = p
	return p, nil
}

// socket returns the client's transport, opening its socket the first time.
func (c *Client) socket() (*quic.Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.transport == nil {
		socket, err := net.ListenUDP("udp", nil)
		if err != nil {
			return nil, fmt.Errorf("open the UDP socket of node RPC: %w", err)
		}
		c.transport = &quic.Transport{Conn: socket, ConnectionIDLength: connectionIDLength}
	}
	return c.transport, nil
}

// start runs f, which ends soon after the client's context, on a goroutine Close waits
// for. It reports false once the client is closed.
func (c *Client) start(f func()) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return false
	}
	c.running.Go(f)
	return true
}

// Close fails every call, closes the connections and the socket, and waits.
func (c *Client) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	peers, transport := c.peers, c.transport
	c.mu.Unlock()
	c.cancel()
	if already {
		c.running.Wait()
		return nil
	}
	for _, p := range peers {
		p.close()
	}
	c.running.Wait()
	if transport == nil {
		return nil
	}
	return errors.Join(transport.Close(), transport.Conn.Close())
}
