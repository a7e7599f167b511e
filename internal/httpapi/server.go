package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/config"
)

// headerTimeout is how long a client may take over the headers of a request.
const headerTimeout = 5 * time.Second

// headerSlop is what net/http reads past MaxHeaderBytes before it refuses.
const headerSlop = 4096

// NewServer makes the server of the API port. The read timeout bounds headers and
// body; net/http lifts it once the body is read, so a long poll may outlast it.
// The caller serves it on LimitListener and shuts it down.
func NewServer(a *API, cfg config.HTTP) *http.Server {
	return &http.Server{
		Handler:                      a.Handler(),
		ReadHeaderTimeout:            headerTimeout,
		ReadTimeout:                  cfg.ReadTimeout,
		WriteTimeout:                 cfg.WriteTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		MaxHeaderBytes:               max(cfg.MaxHeaderBytes-headerSlop, 1),
		DisableGeneralOptionsHandler: true, // OPTIONS * is a route nobody has
		ErrorLog:                     slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// LimitListener bounds the connections that are open at once; surplus clients
// wait in the accept backlog. 0 = no bound. The server that accepts from it owns
// it.
func LimitListener(l net.Listener, n int) net.Listener {
	if n <= 0 {
		return l
	}
	return &limitListener{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limitListener struct {
	net.Listener
	slots  chan struct{} // one per open connection
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a slot, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitConn{Conn: c, slots: l.slots}, nil
}

// Close ends a waiting Accept too.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitConn gives its slot back when it is closed.
type limitConn struct {
	net.Conn
	once  sync.Once
	slots chan struct{}
}

// Close closes the connection.
func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}

// CloseWrite is what net/http looks for to end an answer before the connection:
// a client that still sends its body reads the refusal instead of a reset.
func (c *limitConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
