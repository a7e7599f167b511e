package config

import (
	"errors"
	"net"
)

// CheckPosture refuses settings that are right one by one and unsafe or unusable
// together: the rows of spec/operations section 2.5 that need nothing but the
// settings, and whether there is a cluster secret, which is none. Every problem is
// reported, one per line.
func (c *Config) CheckPosture(secret bool) error {
	var p problems
	cl, sec := &c.Cluster, &c.Security
	several := len(cl.Peers) > 0
	files := 0
	for _, f := range []string{sec.ClusterTLSCertFile, sec.ClusterTLSKeyFile, sec.ClusterTLSCAFile} {
		if f != "" {
			files++
		}
	}
	p.check(files == 0 || files == 3, "security.cluster_tls_cert_file, security.cluster_tls_key_file and security.cluster_tls_ca_file "+
		"go together: %d of 3 are set", files)
	if sec.Enabled {
		fenced := c.RaftTLS() || sec.AllowPlaintextRaft
		p.check(fenced || several || loopback(cl.Addr),
			"security is enabled and the raft transport has no TLS, but cluster.addr %s is not a loopback address: "+
				"set the security.cluster_tls files, bind it to 127.0.0.1, or fence the port and set security.allow_plaintext_raft (NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true)", cl.Addr)
		p.check(fenced || !several,
			"security is enabled and the raft transport has no TLS, but cluster.peers has %d nodes: "+
				"set the security.cluster_tls files, or fence the port and set security.allow_plaintext_raft (NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true)", len(cl.Peers))
		p.check(secret || !several, "security is enabled and cluster.peers has %d nodes, but NARAD_CLUSTER_SECRET is not set: "+
			"give every node the same secret", len(cl.Peers))
	} else {
		p.check(!several || sec.AllowInsecureCluster, "security is off and cluster.peers has %d nodes: "+
			"turn security.enabled on, or set security.allow_insecure_cluster (NARAD_SECURITY_ALLOW_INSECURE_CLUSTER=true)", len(cl.Peers))
	}
	p.check(cl.Advertise() != "" || !wildcard(cl.Addr),
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
	case loopback(c.Cluster.Addr) && len(c.Cluster.Peers) == 0:
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
