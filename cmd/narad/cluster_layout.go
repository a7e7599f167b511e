package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// devNode is one node of a playground cluster. Its addresses are part of what the
// cluster remembers, so they stay what they were at its first start.
type devNode struct {
	ID       string `json:"id"`
	APIPort  int    `json:"api_port"` // TCP and UDP
	RaftPort int    `json:"raft_port"`
}

func (n devNode) api() string  { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.APIPort)) }
func (n devNode) raft() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.RaftPort)) }

// devLayout is which nodes a directory holds: its file cluster.json. The first ones
// formed the cluster; later ones joined.
type devLayout struct {
	Initial int       `json:"initial"`
	Nodes   []devNode `json:"nodes"`
}

const layoutFile = "cluster.json"

// openLayout reads the layout of o.dir and grows it to o.nodes, or makes a new one.
func openLayout(o devOptions) (devLayout, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return devLayout{}, err
	}
	l, err := readLayout(o.dir)
	if err != nil {
		return devLayout{}, err
	}
	had := len(l.Nodes)
	want := max(o.nodes, had)
	switch {
	case o.nodes != 0 && o.nodes < had:
		return devLayout{}, usageError{fmt.Errorf("--nodes %d: %s holds a cluster of %d; the nodes left out would count as dead", o.nodes, o.dir, had)}
	case had > 0 && o.basePort != 0 && o.basePort != l.Nodes[0].APIPort:
		return devLayout{}, usageError{fmt.Errorf("--base-port %d: the cluster in %s began on port %d, which its nodes know each other by", o.basePort, o.dir, l.Nodes[0].APIPort)}
	case had == 0:
		want = max(want, devNodesMin)
		l.Initial = want
	}
	ports, err := choosePorts(l.ports(), 2*(want-had), o.basePort)
	if err != nil {
		return devLayout{}, err
	}
	for i := had; i < want; i++ {
		at := 2 * (i - had)
		l.Nodes = append(l.Nodes, devNode{ID: "n" + strconv.Itoa(i+1), APIPort: ports[at], RaftPort: ports[at+1]})
	}
	return l, l.write(o.dir)
}

func readLayout(dir string) (l devLayout, err error) {
	b, err := os.ReadFile(filepath.Join(dir, layoutFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("%s: %w", filepath.Join(dir, layoutFile), err)
	}
	if len(l.Nodes) < devNodesMin || len(l.Nodes) > devNodesMax || l.Initial < devNodesMin || l.Initial > len(l.Nodes) {
		return l, fmt.Errorf("%s lists %d nodes, of which %d formed the cluster: no cluster of this command", filepath.Join(dir, layoutFile), len(l.Nodes), l.Initial)
	}
	return l, nil
}

// write replaces the file whole: a start that was cut short leaves the old one.
func (l *devLayout) write(dir string) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, layoutFile)
	if err := os.WriteFile(name+".tmp", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

// ports are the ports the nodes have, the API port of each before its Raft port.
func (l *devLayout) ports() []int {
	var out []int
	for _, n := range l.Nodes {
		out = append(out, n.APIPort, n.RaftPort)
	}
	return out
}

// choosePorts checks that the ports held are free, and returns more of them: those from
// base on, or with base 0 the ones after the default server's, or any that are free. All
// are bound at once before any is given back, so that none is chosen twice.
func choosePorts(held []int, more, base int) (chosen []int, err error) {
	var bound portSet
	defer bound.release()
	for _, p := range held {
		if _, err := bound.take(p); err != nil {
			return nil, fmt.Errorf("port %d, which a node of this cluster has: %w", p, err)
		}
	}
	from := base
	if from == 0 {
		from = defaultAPIPort
	}
	if len(held) == 0 {
		if chosen, err = bound.takeFrom(from, more); err == nil || base != 0 {
			return chosen, err
		}
	}
	for chosen = nil; len(chosen) < more; {
		p, err := bound.take(0)
		if err != nil {
			return nil, fmt.Errorf("choose a port: %w", err)
		}
		chosen = append(chosen, p)
	}
	return chosen, nil
}

// defaultAPIPort is where the client verbs look for a node.
const defaultAPIPort = 7942

// portSet holds ports of loopback, TCP and UDP of each.
type portSet struct{ closers []interface{ Close() error } }

// takeFrom takes n ports in a row, all or none.
func (s *portSet) takeFrom(port, n int) ([]int, error) {
	var own portSet
	var out []int
	for i := range n {
		p, err := own.take(port + i)
		if err != nil {
			own.release()
			return nil, fmt.Errorf("port %d: %w", port+i, err)
		}
		out = append(out, p)
	}
	s.closers = append(s.closers, own.closers...)
	return out, nil
}

// udpAttempts bounds the search for a port that is free for both TCP and UDP.
const udpAttempts = 16

// take takes a port; 0 = any.
func (s *portSet) take(port int) (int, error) {
	for attempt := 1; ; attempt++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return 0, err
		}
		addr, _ := l.Addr().(*net.TCPAddr)
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: addr.IP, Port: addr.Port})
		if err == nil {
			s.closers = append(s.closers, l, u)
			return addr.Port, nil
		}
		l.Close()
		if port != 0 || attempt == udpAttempts {
			return 0, err
		}
	}
}

func (s *portSet) release() {
	for _, c := range s.closers {
		c.Close()
	}
	s.closers = nil
}
