package metastore

import (
	"net"
	"sync"
)

// connections are the open ones of one direction. Raft's transport closes neither those
// it accepted nor those it waits on, and its shutdown waits with it.
type connections struct {
	mu     sync.Mutex // guards all below
	open   map[*tracked]struct{}
	closed bool
}

// tracked is one open connection.
type tracked struct {
	net.Conn
	in *connections
}

// add has a connection closed with the others; net.ErrClosed once they are.
func (c *connections) add(conn net.Conn) (net.Conn, error) {
	t := &tracked{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close() // nobody will read it
		return nil, net.ErrClosed
	}
	if c.open == nil {
		c.open = map[*tracked]struct{}{}
	}
	c.open[t] = struct{}{}
	return t, nil
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.in.mu.Lock()
	delete(t.in.open, t)
	t.in.mu.Unlock()
	return t.Conn.Close()
}

// close closes every connection, for good.
func (c *connections) close() {
	c.mu.Lock()
	open := c.open
	c.open, c.closed = nil, true
	c.mu.Unlock()
	for t := range open {
		_ = t.Conn.Close() // ends its reader; there is nothing to lose
	}
}

// tracker is a listener that closes what it accepted: Raft's transport leaves open
// connections, and the goroutines that read them, to its peers.
type tracker struct {
	net.Listener
	accepted connections
}

func newTracker(l net.Listener) *tracker { return &tracker{Listener: l} }

// Accept implements net.Listener.
func (t *tracker) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return t.accepted.add(conn)
}

// Close implements net.Listener.
func (t *tracker) Close() error {
	t.accepted.close()
	return t.Listener.Close()
}
