package metastore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Transport settings (spec/cluster-and-network section 9).
const (
	transportTimeout = 10 * time.Second // dial and I/O
	transportPool    = 3                // idle connections kept per peer
)

// errNotAdvertisable: the listener's own address is no address a peer could dial.
var errNotAdvertisable = errors.New("local bind address is not advertisable")

// stream is Raft's TCP listener and dialer. It advertises a host:port as given, so
// a host name stays a name.
type stream struct {
	net.Listener
	advertise string
	dial      func(addr string, timeout time.Duration) (net.Conn, error)
	tls       *raftTLS // nil = plaintext

	dialled connections
	ctx     context.Context // of dials; ends with hangUp
	cancel  context.CancelFunc
}

// newStream listens on the bind address. An empty advertise means the bound address.
func newStream(o Options) (*stream, error) {
	secure, err := loadTLS(o.TLS)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.BindAddr)
	if err != nil {
		return nil, fmt.Errorf("raft listener: %w", err)
	}
	advertise := o.Advertise
	if advertise == "" {
		if tcp, ok := l.Addr().(*net.TCPAddr); !ok || tcp.IP == nil || tcp.IP.IsUnspecified() {
			return nil, errors.Join(fmt.Errorf("raft listener %q: %w", o.BindAddr, errNotAdvertisable), l.Close())
		}
		advertise = l.Addr().String()
	}
	s := &stream{Listener: newTracker(l), advertise: advertise, dial: o.Dial, tls: secure}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.dial == nil {
		s.dial = func(addr string, timeout time.Duration) (net.Conn, error) {
			d := net.Dialer{Timeout: timeout}
			return d.DialContext(s.ctx, "tcp", addr)
		}
	}
	if secure != nil {
		s.Listener = tls.NewListener(s.Listener, secure.server)
	}
	return s, nil
}

// Addr is the address peers dial.
func (s *stream) Addr() net.Addr { return address(s.advertise) }

// Dial implements raft.StreamLayer.
func (s *stream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.dial(string(addr), timeout)
	if err == nil {
		conn, err = s.dialled.add(conn)
	}
	if err != nil || s.tls == nil {
		return conn, err
	}
	return s.tls.dial(conn, timeout)
}

// hangUp ends every dial, and closes what was dialled, for good. What Raft waits for then,
// it stops waiting for: a peer that is cut off, or stopped without a word, costs a
// shutdown nothing.
func (s *stream) hangUp() {
	s.cancel()
	s.dialled.close()
}

// Close implements net.Listener.
func (s *stream) Close() error {
	s.hangUp()
	return s.Listener.Close()
}

// self is an address this process reaches its own listener at, whatever it
// advertises.
func (s *stream) self() raft.ServerAddress {
	tcp, ok := s.Listener.Addr().(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return raft.ServerAddress(s.Listener.Addr().String())
	}
	loopback := net.IPv6loopback
	if tcp.IP.To4() != nil {
		loopback = net.IPv4(127, 0, 0, 1)
	}
	return raft.ServerAddress((&net.TCPAddr{IP: loopback, Port: tcp.Port}).String())
}

// address is a host:port that is not resolved.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }
