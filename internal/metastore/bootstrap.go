package metastore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// keyTerm is the name Raft stores its current term under.
var keyTerm = []byte("CurrentTerm")

// bootstrap gives a node without log and snapshot its first log entry, the initial
// configuration. A term alone is no state: a crash between the two writes below, or
// a vote given before the first entry arrived, leaves one behind. Peers that
// bootstrap the same configuration write the same entry, so it can be written
// whatever the term is. A node that joins is given its configuration by the leader.
func bootstrap(o Options, rd raftDisk, advertise string) error {
	if o.Join {
		return nil
	}
	last, err := rd.logs.LastIndex()
	if err != nil {
		return err
	}
	snaps, err := rd.snaps.List()
	if err != nil || last > 0 || len(snaps) > 0 {
		return err
	}
	initial, err := initialConfiguration(o, advertise)
	if err != nil {
		return err
	}
	term, err := rd.logs.GetUint64(keyTerm)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	if term == 0 {
		if err := rd.logs.SetUint64(keyTerm, 1); err != nil {
			return err
		}
	}
	return rd.logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(initial)})
}

// initialConfiguration is the voters a new cluster starts with, in an order every
// node agrees on.
func initialConfiguration(o Options, advertise string) (raft.Configuration, error) {
	servers := slices.Clone(o.Initial)
	if len(servers) == 0 {
		servers = []Server{{ID: o.NodeID, Addr: advertise}}
	}
	if !slices.ContainsFunc(servers, func(s Server) bool { return s.ID == o.NodeID }) {
		return raft.Configuration{}, fmt.Errorf("node %q is not among the %d initial servers", o.NodeID, len(servers))
	}
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.ID, b.ID) })
	var c raft.Configuration
	for _, s := range servers {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Addr)})
	}
	return c, nil
}
