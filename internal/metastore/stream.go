package metastore

import (
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
}

// newStream listens on bind. An empty advertise means the bound address.
func newStream(bind, advertise string) (*stream, error) {
	l, err := net.Listen("tcp", bind)
	if err != nil {
		return nil, fmt.Errorf("raft listener: %w", err)
	}
	if advertise == "" {
		if tcp, ok := l.Addr().(*net.TCPAddr); !ok || tcp.IP == nil || tcp.IP.IsUnspecified() {
			return nil, errors.Join(fmt.Errorf("raft listener %q: %w", bind, errNotAdvertisable), l.Close())
		}
		advertise = l.Addr().String()
	}
	return &stream{Listener: l, advertise: advertise}, nil
}

// Addr is the address peers dial.
func (s *stream) Addr() net.Addr { return address(s.advertise) }

// Dial implements raft.StreamLayer.
func (s *stream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(addr), timeout)
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
