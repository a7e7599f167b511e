package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// three is a configuration of n1 in a cluster of three.
func three(t *testing.T) Config {
	t.Helper()
	c := Default()
	c.Cluster.NodeID = "n1"
	if err := c.Set("cluster.peers", "n1@10.0.0.1:7943, n2@10.0.0.2:7943/8042 ,n3@[::1]:7943"); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPeersTakeOverTheAPIPort(t *testing.T) {
	c := three(t)
	before := c
	c.HTTP.Addr = "127.0.0.1:9000"
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []Peer{{"n1", "10.0.0.1:7943", "10.0.0.1:9000"}, {"n2", "10.0.0.2:7943", "10.0.0.2:8042"}, {"n3", "[::1]:7943", "[::1]:9000"}}
	if !slices.Equal(c.Cluster.Peers, want) {
		t.Errorf("got %v, want %v", c.Cluster.Peers, want)
	}
	if got := before.Cluster.Peers[0].APIAddr; got != "" {
		t.Errorf("a copy taken before was changed: %q", got)
	}
	if got := c.Cluster.Peers[1].String(); got != "n2@10.0.0.2:7943/8042" {
		t.Errorf("String: %q", got)
	}
}

func TestValidatePeers(t *testing.T) {
	set := func(t *testing.T, c *Config, name, v string) {
		t.Helper()
		if err := c.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, peers, initial, advertise, http, want string
	}{
		{name: "two", peers: "n1@h:1,n2@h:2", want: "cluster.peers has 2 entries, want none or 3 to 64"},
		{name: "too many", peers: list(65), want: "cluster.peers has 65 entries, want none or 3 to 64"},
		{name: "most", peers: list(64)},
		{name: "id twice", peers: "n1@h:1/11,n1@h:2/12,n3@h:3/13", want: `cluster.peers names "n1" twice`},
		{name: "raft address twice", peers: "n1@h:1/11,n2@h:1/12,n3@h:3/13", want: `cluster.peers: h:1 of "n2" is also an address of "n1"`},
		{name: "API address twice", peers: "n1@h:1,n2@h:2,n3@i:3", want: `cluster.peers: h:7942 of "n2" is also an address of "n1"`},
		{name: "raft address is an API address", peers: "n1@h:1/2,n2@h:2/3,n3@i:3/1", want: `cluster.peers: h:2 of "n2" is also an address of "n1"`},
		{name: "bad id", peers: "n1@h:1,n 2@i:2,n3@j:3", want: `cluster.peers: id "n 2": want 1 to 128`},
		{name: "no host", peers: "n1@h:1,n2@:2,n3@j:3", want: `cluster.peers: addr of n2 ":2" cannot be dialled`},
		{name: "port 0", peers: "n1@h:1,n2@i:0,n3@j:3", want: `cluster.peers: addr of n2 "i:0" cannot be dialled`},
		{name: "no port", peers: "n1@h:1,n2@i,n3@j:3", want: `cluster.peers: addr of n2 "i" cannot be dialled`},
		{name: "no API port to take over", peers: "n1@h:1,n2@i:2,n3@j:3", http: "127.0.0.1:0", want: `cluster.peers: "n1" has no API port, and http.addr (127.0.0.1:0) gives none`},
		{name: "not listed", peers: "n4@h:1,n2@i:2,n3@j:3", want: `cluster.node_id "n1" is not in cluster.peers: set cluster.advertise_addr`},
		{name: "not listed, advertised", peers: "n4@h:1,n2@i:2,n3@j:3", advertise: "10.0.0.9:7943"},
		{name: "initial member unknown", peers: "n1@h:1,n2@i:2,n3@j:3", initial: "n1,n4", want: `cluster.initial_members names "n4", which is not in cluster.peers`},
		{name: "initial member twice", peers: "n1@h:1,n2@i:2,n3@j:3", initial: "n1,n1", want: `cluster.initial_members names "n1" twice`},
		{name: "initial members alone", initial: "n2", want: `cluster.initial_members [n2] does not name this node "n1", and there are no cluster.peers to join`},
		{name: "initial member alone", initial: "n1"},
		{name: "advertise without host", advertise: ":7943", want: `cluster.advertise_addr ":7943" cannot be dialled`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			c.Cluster.NodeID, c.Cluster.AdvertiseAddr = "n1", tc.advertise
			if tc.http != "" {
				c.HTTP.Addr = tc.http
			}
			if tc.peers != "" {
				set(t, &c, "cluster.peers", tc.peers)
			}
			if tc.initial != "" {
				set(t, &c, "cluster.initial_members", tc.initial)
			}
			err := c.Validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// list is n peers on hosts of their own.
func list(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("n%d@h%d:1", i+1, i+1))
	}
	return strings.Join(out, ",")
}

func TestPeerText(t *testing.T) {
	for text, want := range map[string]string{
		"n1":            `"n1" is not id@host:port`,
		"n1@h:1/x":      `API port "x" is not a number`,
		"n1@h:1/0":      `API port 0 must be 1 to 65535`,
		"n1@h:1/65536":  `API port 65536 must be 1 to 65535`,
		"n1@h/1":        `"h" is not host:port`,
		"n1@h:1,,n2@h2": "has an empty item",
		"n1@h:1/65535":  "",
	} {
		c := Default()
		err := c.Set("cluster.peers", text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// Where the others find this node, and whether it may start a cluster.
func TestOwnPlaceInACluster(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		change                func(*Config)
		bound, advertise, api string
		bootstraps            bool
		initial               []string
	}{
		{name: "listed", bound: "[::]:7942", advertise: "10.0.0.1:7943", api: "10.0.0.1:7942", bootstraps: true, initial: []string{"n1", "n2", "n3"}},
		{name: "listed, port bound", bound: "[::]:5555", advertise: "10.0.0.1:7943", api: "10.0.0.1:5555", bootstraps: true, initial: []string{"n1", "n2", "n3"}},
		{name: "own host", change: func(c *Config) { c.HTTP.Addr = "10.9.9.9:7942" }, bound: "10.9.9.9:7942",
			advertise: "10.0.0.1:7943", api: "10.9.9.9:7942", bootstraps: true, initial: []string{"n1", "n2", "n3"}},
		{name: "wildcard host", change: func(c *Config) { c.HTTP.Addr = "0.0.0.0:7942" }, bound: "0.0.0.0:7942",
			advertise: "10.0.0.1:7943", api: "10.0.0.1:7942", bootstraps: true, initial: []string{"n1", "n2", "n3"}},
		{name: "advertised", change: func(c *Config) { c.Cluster.AdvertiseAddr = "a.example:1" }, bound: "[::]:7942",
			advertise: "a.example:1", api: "a.example:7942", bootstraps: true, initial: []string{"n1", "n2", "n3"}},
		{name: "not listed", change: func(c *Config) { c.Cluster.NodeID, c.Cluster.AdvertiseAddr = "n4", "d:1" }, bound: "[::]:7942",
			advertise: "d:1", api: "d:7942", initial: []string{"n1", "n2", "n3"}},
		{name: "listed, no initial member", change: func(c *Config) { c.Cluster.InitialMembers = []string{"n2", "n3"} }, bound: "[::]:7942",
			advertise: "10.0.0.1:7943", api: "10.0.0.1:7942", initial: []string{"n2", "n3"}},
		{name: "initial member", change: func(c *Config) { c.Cluster.InitialMembers = []string{"n1"} }, bound: "[::]:7942",
			advertise: "10.0.0.1:7943", api: "10.0.0.1:7942", bootstraps: true, initial: []string{"n1"}},
		{name: "of its own", change: func(c *Config) { c.Cluster.Peers = nil }, bound: "127.0.0.1:7942", api: "127.0.0.1:7942", bootstraps: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := three(t)
			if tc.change != nil {
				tc.change(&c)
			}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := c.Cluster.Advertise(); got != tc.advertise {
				t.Errorf("Advertise: %q, want %q", got, tc.advertise)
			}
			if got := c.AdvertiseAPI(tc.bound); got != tc.api {
				t.Errorf("AdvertiseAPI: %q, want %q", got, tc.api)
			}
			if got := c.Cluster.MayBootstrap(); got != tc.bootstraps {
				t.Errorf("MayBootstrap: %v, want %v", got, tc.bootstraps)
			}
			var ids []string
			for _, p := range c.Cluster.InitialPeers() {
				ids = append(ids, p.ID)
			}
			if !slices.Equal(ids, tc.initial) {
				t.Errorf("InitialPeers: %v, want %v", ids, tc.initial)
			}
		})
	}
}

// The rows of spec/operations section 2.5 for several nodes.
func TestCheckPostureOfSeveralNodes(t *testing.T) {
	const (
		noSecret  = "security is enabled and cluster.peers has 3 nodes, but NARAD_CLUSTER_SECRET is not set"
		plaintext = "security is enabled and the raft transport has no TLS, but cluster.peers has 3 nodes"
		insecure  = "security is off and cluster.peers has 3 nodes"
	)
	all := []string{noSecret, plaintext, insecure, "local bind address is not advertisable"}
	for _, tc := range []struct {
		name   string
		sec    Security
		secret bool
		addr   string
		want   []string
	}{
		{name: "secured, nothing set", sec: Security{Enabled: true}, want: []string{noSecret, plaintext}},
		{name: "secured, loopback Raft", sec: Security{Enabled: true}, secret: true, addr: "127.0.0.1:7943", want: []string{plaintext}},
		{name: "secured, fenced", sec: Security{Enabled: true, AllowPlaintextRaft: true}, want: []string{noSecret}},
		{name: "secured, TLS and secret", sec: Security{Enabled: true, ClusterTLSCertFile: "a", ClusterTLSKeyFile: "b", ClusterTLSCAFile: "c"}, secret: true},
		{name: "open", want: []string{insecure}},
		{name: "open with a secret", secret: true, want: []string{insecure}},
		{name: "open, allowed", sec: Security{AllowInsecureCluster: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := three(t)
			c.Security = tc.sec
			if tc.addr != "" {
				c.Cluster.Addr = tc.addr
			}
			got := fmt.Sprint(c.CheckPosture(tc.secret))
			for _, text := range all {
				if want := slices.Contains(tc.want, text); strings.Contains(got, text) != want {
					t.Errorf("%q: refused %v, want %v, in %s", text, !want, want, got)
				}
			}
		})
	}
	c := three(t)
	c.Security = Security{Enabled: true, AllowPlaintextRaft: true}
	c.Cluster.Addr = "127.0.0.1:7943"
	if got, want := c.PlaintextReason(), "security.allow_plaintext_raft is set"; got != want {
		t.Errorf("reason with peers: %q, want %q", got, want)
	}
}
