package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Limits of the lists that name other nodes (spec/operations section 2.4).
const (
	peersMin = 3 // fewer cannot lose a node and keep a quorum
	peersMax = 64
)

// Peer is a node that this one knows before any cluster tells it of others: in the
// environment id@host:raftport[/apiport], in the file
// {"id":"n1","addr":"host:raftport","api_port":7942}.
type Peer struct {
	ID       string
	RaftAddr string // host:port of its Raft listener
	// APIAddr is where it answers its API (TCP) and the other nodes (UDP). Its host is
	// the one of RaftAddr; a peer named without an API port has this node's own, which
	// Validate fills in.
	APIAddr string
}

// String is the peer as the environment spells it.
func (p Peer) String() string {
	if _, port, err := net.SplitHostPort(p.APIAddr); err == nil {
		return p.ID + "@" + p.RaftAddr + "/" + port
	}
	return p.ID + "@" + p.RaftAddr
}

// parsePeer reads id@host:raftport[/apiport].
func parsePeer(s string) (Peer, error) {
	id, addr, ok := strings.Cut(s, "@")
	if !ok {
		return Peer{}, fmt.Errorf("%q is not id@host:port or id@host:port/apiport", s)
	}
	addr, api, hasAPI := strings.Cut(addr, "/")
	p := Peer{ID: id, RaftAddr: addr}
	if !hasAPI {
		return p, nil
	}
	port, err := strconv.Atoi(api)
	if err != nil {
		return Peer{}, fmt.Errorf("%q: API port %q is not a number", s, api)
	}
	return p, p.setAPIPort(port)
}

// setAPIPort gives the peer the API address that its Raft host and port spell.
func (p *Peer) setAPIPort(port int) error {
	host, _, err := net.SplitHostPort(p.RaftAddr)
	if err != nil {
		return fmt.Errorf("peer %q: %q is not host:port: %w", p.ID, p.RaftAddr, err)
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("peer %q: API port %d must be 1 to 65535", p.ID, port)
	}
	p.APIAddr = net.JoinHostPort(host, strconv.Itoa(port))
	return nil
}

// peersFromJSON reads the file's form of cluster.peers.
func peersFromJSON(raw json.RawMessage) ([]Peer, error) {
	var entries []json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, err
	}
	out := make([]Peer, 0, len(entries))
	for _, e := range entries {
		p, err := peerFromJSON(e)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func peerFromJSON(raw json.RawMessage) (Peer, error) {
	var p Peer
	var apiPort *int
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	err := eachField(dec, func(name string) error {
		switch name {
		case "id":
			return dec.Decode(&p.ID)
		case "addr":
			return dec.Decode(&p.RaftAddr)
		case "api_port":
			return dec.Decode(&apiPort)
		}
		return fmt.Errorf("json: unknown field %q", name)
	})
	if err != nil || apiPort == nil {
		return p, err
	}
	return p, p.setAPIPort(*apiPort)
}

// splitList cuts a comma-separated list; blanks around an item are not part of it.
func splitList(v string) ([]string, error) {
	items := strings.Split(v, ",")
	for i := range items {
		if items[i] = strings.TrimSpace(items[i]); items[i] == "" {
			return nil, fmt.Errorf("%q has an empty item", v)
		}
	}
	return items, nil
}

func (c *Config) validatePeers(p *problems) {
	cl := &c.Cluster
	if len(cl.Peers) == 0 {
		p.check(len(cl.InitialMembers) == 0 || slices.Contains(cl.InitialMembers, cl.NodeID),
			"cluster.initial_members %v does not name this node %q, and there are no cluster.peers to join", cl.InitialMembers, cl.NodeID)
		return
	}
	p.check(len(cl.Peers) >= peersMin && len(cl.Peers) <= peersMax,
		"cluster.peers has %d entries, want none or %d to %d", len(cl.Peers), peersMin, peersMax)
	c.fillAPIPorts(p)
	owner := map[string]string{} // address -> id
	seen := map[string]bool{}
	for _, peer := range cl.Peers {
		p.check(validNodeID(peer.ID), "cluster.peers: id %q: want 1 to %d of A-Z a-z 0-9 . _ -", peer.ID, nodeIDMax)
		p.check(!seen[peer.ID], "cluster.peers names %q twice", peer.ID)
		seen[peer.ID] = true
		checkDialable(p, "cluster.peers: addr of "+peer.ID, peer.RaftAddr)
		for _, addr := range []string{peer.RaftAddr, peer.APIAddr} {
			other, taken := owner[addr]
			p.check(!taken || addr == "", "cluster.peers: %s of %q is also an address of %q", addr, peer.ID, other)
			owner[addr] = peer.ID
		}
	}
	for i, id := range cl.InitialMembers {
		p.check(seen[id], "cluster.initial_members names %q, which is not in cluster.peers", id)
		p.check(!slices.Contains(cl.InitialMembers[:i], id), "cluster.initial_members names %q twice", id)
	}
	p.check(seen[cl.NodeID] || cl.AdvertiseAddr != "",
		"cluster.node_id %q is not in cluster.peers: set cluster.advertise_addr to the address the others dial", cl.NodeID)
}

// fillAPIPorts gives each peer that was named without an API port this node's own. It
// replaces the list, so that a Config copied before keeps what it had.
func (c *Config) fillAPIPorts(p *problems) {
	_, text, err := net.SplitHostPort(c.HTTP.Addr)
	if err != nil {
		return // reported as http.addr's problem
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		return
	}
	peers := slices.Clone(c.Cluster.Peers)
	for i := range peers {
		if peers[i].APIAddr != "" {
			continue
		}
		if _, _, err := net.SplitHostPort(peers[i].RaftAddr); err != nil {
			continue // reported as the address's problem
		}
		if err := peers[i].setAPIPort(port); err != nil {
			p.check(false, "cluster.peers: %q has no API port, and http.addr (%s) gives none to take over", peers[i].ID, c.HTTP.Addr)
		}
	}
	c.Cluster.Peers = peers
}

// checkDialable refuses an address that no other node can dial.
func checkDialable(p *problems, name, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || port == "0") {
		err = errors.New("want a host and a port")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	p.check(err == nil, "%s %q cannot be dialled: %w", name, addr, err)
}

// peer is this node's own entry in the list.
func (c *Cluster) peer() (Peer, bool) {
	for _, p := range c.Peers {
		if p.ID == c.NodeID {
			return p, true
		}
	}
	return Peer{}, false
}

// Advertise is the host:port other nodes dial for this node's Raft: cluster.advertise_addr,
// else this node's own entry in cluster.peers, else "" for whatever cluster.addr binds.
func (c *Cluster) Advertise() string {
	if c.AdvertiseAddr != "" {
		return c.AdvertiseAddr
	}
	own, _ := c.peer()
	return own.RaftAddr
}

// AdvertiseAPI is where other nodes and its member record say this node's API is: the
// host of http.addr when it names one, else the host that Raft advertises, else the one
// that was bound, each with the port that was bound (spec/operations section 2.4).
func (c *Config) AdvertiseAPI(bound string) string {
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return bound
	}
	switch own, _, err := net.SplitHostPort(c.HTTP.Addr); {
	case err == nil && own != "" && !net.ParseIP(own).IsUnspecified():
		host = own
	case c.Cluster.Advertise() != "":
		if raft, _, err := net.SplitHostPort(c.Cluster.Advertise()); err == nil {
			host = raft
		}
	}
	return net.JoinHostPort(host, port)
}

// MayBootstrap reports whether this node may start a cluster when it has no state. A
// node that is not an initial member, or not among the peers there are, joins only: it
// would start a cluster that the real one never contacts (spec/cluster-and-network
// section 20).
func (c *Cluster) MayBootstrap() bool {
	if len(c.InitialMembers) > 0 {
		return slices.Contains(c.InitialMembers, c.NodeID)
	}
	_, listed := c.peer()
	return listed || len(c.Peers) == 0
}

// InitialPeers are the peers that bootstrap the cluster together, this node included
// when it is one; none on a node without peers.
func (c *Cluster) InitialPeers() []Peer {
	if len(c.InitialMembers) == 0 {
		return c.Peers
	}
	var out []Peer
	for _, p := range c.Peers {
		if slices.Contains(c.InitialMembers, p.ID) {
			out = append(out, p)
		}
	}
	return out
}
