package metastore

import (
	"net"
	"sync"
)

// tracker is a listener that closes what it accepted: Raft's transport leaves open
// connections, and the goroutines that read them, to its peers.
type tracker struct {
	net.Listener
	mu     sync.Mutex // guards all below
	open   map[*tracked]struct{}
	closed bool
}

func newTracker(l net.Listener) *tracker { return &tracker{Listener: l, open: map[*tracked]struct{}{}} }

// tracked is one accepted connection.
type tracked struct {
	net.Conn
	t *tracker
}

// Accept implements net.Listener.
func (t *tracker) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &tracked{Conn: conn, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close() // nobody will read it
		return nil, net.ErrClosed
	}
	t.open[c] = struct{}{}
	return c, nil
}

// Close implements net.Conn.
func (c *tracked) Close() error {
	c.t.mu.Lock()
	delete(c.t.open, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}

// Close implements net.Listener.
func (t *tracker) Close() error {
	t.mu.Lock()
	open := t.open
	t.open, t.closed = map[*tracked]struct{}{}, true
	t.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // ends its reader; there is nothing to lose
	}
	return t.Listener.Close()
}
