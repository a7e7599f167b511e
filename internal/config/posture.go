package config

import (
	"errors"
	"net"
)

// CheckPosture refuses settings that are right one by one and unsafe or unusable
// together: the rows of spec/operations section 2.5 that need nothing but the
// settings. Every problem is reported, one per line.
func (c *Config) CheckPosture() error {
	var p problems
	cl := &c.Cluster
	p.check(!c.Security.Enabled || c.Security.AllowPlaintextRaft || loopback(cl.Addr),
		"security is enabled and the raft transport has no TLS, but cluster.addr %s is not a loopback address: "+
			"bind it to 127.0.0.1, or fence the port and set security.allow_plaintext_raft (NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true)", cl.Addr)
	p.check(cl.AdvertiseAddr != "" || !wildcard(cl.Addr),
		"cluster.addr %s: local bind address is not advertisable: give it a host, or set cluster.advertise_addr", cl.Addr)
	return errors.Join(p.errs...)
}

// PlaintextReason says why CheckPosture lets a Raft transport without TLS pass, for the
// line that tells of it at start (spec/operations section 7.2).
func (c *Config) PlaintextReason() string {
	switch {
	case !c.Security.Enabled:
		return "security.enabled is off"
	case loopback(c.Cluster.Addr):
		return "cluster.addr is a loopback address"
	}
	return "security.allow_plaintext_raft is set"
}

// loopback reports whether addr can be reached from this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// wildcard reports whether addr names a port on every address.
func wildcard(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == "" || net.ParseIP(host).IsUnspecified())
}
