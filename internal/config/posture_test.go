package config

import (
	"strings"
	"testing"
)

// The rows of spec/operations section 2.5 that apply to one node.
func TestCheckPosture(t *testing.T) {
	const plaintext = "config: security is enabled and the raft transport has no TLS, but cluster.addr %s is not a loopback address"
	const unadvertised = "local bind address is not advertisable"
	for _, tc := range []struct {
		name               string
		secured, allow     bool
		addr, advertise    string
		refusals, allowing []string
	}{
		{name: "default", secured: true, addr: ":7943", refusals: []string{plaintext, unadvertised}},
		{name: "loopback v4", secured: true, addr: "127.0.0.1:7943", allowing: []string{plaintext, unadvertised}},
		{name: "loopback v4, another", secured: true, addr: "127.9.9.9:7943", allowing: []string{plaintext}},
		{name: "loopback v6", secured: true, addr: "[::1]:7943", allowing: []string{plaintext, unadvertised}},
		{name: "localhost", secured: true, addr: "localhost:7943", allowing: []string{plaintext, unadvertised}},
		{name: "routable", secured: true, addr: "10.0.0.7:7943", refusals: []string{plaintext}, allowing: []string{unadvertised}},
		{name: "host name", secured: true, addr: "narad-0.narad:7943", refusals: []string{plaintext}},
		{name: "routable, fenced", secured: true, allow: true, addr: "10.0.0.7:7943", allowing: []string{plaintext, unadvertised}},
		{name: "wildcard, fenced", secured: true, allow: true, addr: "0.0.0.0:7943", refusals: []string{unadvertised}, allowing: []string{plaintext}},
		{name: "wildcard v6, fenced", secured: true, allow: true, addr: "[::]:7943", refusals: []string{unadvertised}},
		{name: "wildcard, advertised, fenced", secured: true, allow: true, addr: ":7943", advertise: "10.0.0.7:7943", allowing: []string{plaintext, unadvertised}},
		{name: "security off", addr: "10.0.0.7:7943", allowing: []string{plaintext, unadvertised}},
		{name: "security off, wildcard", addr: ":7943", refusals: []string{unadvertised}, allowing: []string{plaintext}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			c.Security = Security{Enabled: tc.secured, AllowPlaintextRaft: tc.allow}
			c.Cluster.Addr, c.Cluster.AdvertiseAddr = tc.addr, tc.advertise
			got := ""
			if err := c.CheckPosture(false); err != nil {
				got = err.Error()
			}
			for _, want := range tc.refusals {
				if !strings.Contains(got, strings.ReplaceAll(want, "%s", tc.addr)) {
					t.Errorf("%q lacks %q", got, want)
				}
			}
			for _, not := range tc.allowing {
				if strings.Contains(got, strings.ReplaceAll(not, "%s", tc.addr)) {
					t.Errorf("%q has %q", got, not)
				}
			}
		})
	}
}

func TestCheckPostureOfRaftTLS(t *testing.T) {
	for files, want := range map[int]string{0: "the raft transport has no TLS", 1: "go together: 1 of 3 are set", 2: "go together: 2 of 3 are set", 3: ""} {
		c := Default()
		c.Cluster.Addr = "10.0.0.7:7943"
		for i, f := range []*string{&c.Security.ClusterTLSCertFile, &c.Security.ClusterTLSKeyFile, &c.Security.ClusterTLSCAFile} {
			if i < files {
				*f = "file.pem"
			}
		}
		err := c.CheckPosture(false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d files: got %v, want %q", files, err, want)
		}
	}
}

func TestPlaintextReason(t *testing.T) {
	for _, tc := range []struct {
		security Security
		addr     string
		want     string
	}{
		{Security{}, "127.0.0.1:1", "security.enabled is off"},
		{Security{Enabled: true}, "127.0.0.1:1", "cluster.addr is a loopback address"},
		{Security{Enabled: true, AllowPlaintextRaft: true}, "10.0.0.7:1", "security.allow_plaintext_raft is set"},
	} {
		c := Default()
		c.Security, c.Cluster.Addr = tc.security, tc.addr
		if got := c.PlaintextReason(); got != tc.want {
			t.Errorf("%+v at %s: %q, want %q", tc.security, tc.addr, got, tc.want)
		}
	}
}
