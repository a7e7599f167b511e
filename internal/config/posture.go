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
	files := 0
	for _, f := range []string{c.Security.ClusterTLSCertFile, c.Security.ClusterTLSKeyFile, c.Security.ClusterTLSCAFile} {
		if f != "" {
			files++
		}
	}
	p.check(files == 0 || files == 3, "security.cluster_tls_cert_file, security.cluster_tls_key_file and security.cluster_tls_ca_file "+
		"go together: %d of 3 are set", files)
	p.check(!c.Security.Enabled || c.RaftTLS() || c.Security.AllowPlaintextRaft || loopback(cl.Addr),
		"security is enabled and the raft transport has no TLS, but cluster.addr %s is not a loopback address: "+
			"set the security.cluster_tls files, bind it to 127.0.0.1, or fence the port and set security.allow_plaintext_raft (NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true)", cl.Addr)
	p.check(cl.AdvertiseAddr != "" || !wildcard(cl.Addr),
		"cluster.addr %s: local bind address is not advertisable: give it a host, or set cluster.advertise_addr", cl.Addr)
	return errors.Join(p.errs...)
}

// RaftTLS reports whether Raft's transport is to run mutual TLS.
func (c *Config) RaftTLS() bool { return c.Security.ClusterTLSCertFile != "" }

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
