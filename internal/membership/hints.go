package membership

import (
	"net"
	"slices"
	"strconv"
)

// validHint reports whether an address somebody named can be dialled: host:port, at
// most 261 bytes, with a host and a port from 1 to 65535.
func validHint(addr string) bool {
	if len(addr) > hintBytesMax {
		return false
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// leaders are the addresses a node has learned of leaders, most recent first, at most
// leadersKept. Its owner is one goroutine.
type leaders []string

// remember puts an address in front.
func (l *leaders) remember(addr string) {
	kept := slices.DeleteFunc(*l, func(a string) bool { return a == addr })
	kept = slices.Insert(kept, 0, addr)
	*l = kept[:min(len(kept), leadersKept)]
}
