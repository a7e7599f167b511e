package metastore

import (
	"context"
	"log/slog"
	"net"
)

// warnOfAddress says when the Raft configuration has this node at another address
// than it advertises: peers dial the recorded one, which only the leader can change
// (spec/cluster-and-network section 1.2). A node alone on loopback has no peers to
// miss it.
func (s *Store) warnOfAddress() {
	recorded, others := "", 0
	for _, server := range s.Servers() {
		if server.ID == s.self.NodeID {
			recorded = server.Addr
		} else {
			others++
		}
	}
	if recorded == "" || recorded == s.stream.advertise {
		return
	}
	level := slog.LevelError
	if others == 0 && isLoopback(s.stream.advertise) {
		level = slog.LevelInfo
	}
	s.log.LogAttrs(context.Background(), level,
		"raft configuration records this node at an address other than the one it advertises; peers dial the recorded one",
		slog.String("node", s.self.NodeID), slog.String("recorded_addr", recorded),
		slog.String("advertise_addr", s.stream.advertise), slog.Int("other_servers", others))
}

// Listening is the host:port Raft's listener is bound to; peers dial the advertised one.
func (s *Store) Listening() string { return s.stream.Listener.Addr().String() }

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
