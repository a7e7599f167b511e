package router

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// routesMax bounds the topics a table remembers the owners of; past it, it starts anew.
const routesMax = 1 << 16

// Directory is the local replica: package metastore.
type Directory interface {
	// Topic returns the current view; the same pointer until the topic changes.
	Topic(name string) (*model.TopicView, bool)
	Members() []model.Member
	Version(metastore.Domain) uint64
	// CaughtUp reports whether the replica has been current once since the start.
	CaughtUp() bool
}

// Target is a member as a place to send requests to.
type Target struct {
	ID    string
	Addr  string // API address, host:port; "" = no member record
	Alive bool   // by membership; this node always is
	Local bool   // this node
}

// Table says where partitions live, by the local replica alone. A lookup is one atomic
// load and a compare of versions; what a change made stale is built again by the first
// lookup after it. Heartbeats change nothing it holds.
type Table struct {
	node    string
	replica Directory

	mu   sync.Mutex // serialises replacing now
	view atomic.Pointer[members]
}

// members is what one version of the member records says, and the routes built on it.
type members struct {
	version atomic.Uint64
	list    []Target // ascending by id
	byID    map[string]Target

	routes sync.Map     // topic name -> *route
	size   atomic.Int64 // entries of routes, about
}

// route is where one topic lives.
type route struct {
	view   *model.TopicView // it holds for this view only
	local  bool             // this node owns a partition
	others []Target         // the other owners with an address, each once, ascending by id
}

// NewTable makes a table for the member node.
func NewTable(node string, replica Directory) *Table {
	return &Table{node: node, replica: replica}
}

// Owner is the member that owns a partition. Errors: ErrUnavailable until the replica was
// current once, and for a partition without an owner; ErrTopicNotFound; ErrInvalid for a
// partition out of range. A member without a record is neither alive nor has an address.
func (t *Table) Owner(topic string, p int) (Target, error) {
	v, err := t.topic(topic)
	if err != nil {
		return Target{}, err
	}
	if p < 0 || p >= v.Partitions {
		return Target{}, errPartitionRange()
	}
	owner := v.OwnerOf(p)
	if owner == "" {
		return Target{}, fmt.Errorf("%w: %s/%d has no owner", model.ErrUnavailable, topic, p)
	}
	return t.member(owner), nil
}

// Members are the members with a record, ascending by id; the slice is shared.
func (t *Table) Members() []Target { return t.members().list }

// topic is the view of a topic, once the replica's word counts.
func (t *Table) topic(name string) (*model.TopicView, error) {
	if !t.replica.CaughtUp() {
		return nil, fmt.Errorf("%w: replica has not caught up with the leader since start", model.ErrUnavailable)
	}
	v, ok := t.replica.Topic(name)
	if !ok {
		return nil, fmt.Errorf("%w: %q", model.ErrTopicNotFound, name)
	}
	return v, nil
}

func (t *Table) member(id string) Target {
	if m, ok := t.members().byID[id]; ok {
		return m
	}
	return Target{ID: id, Alive: id == t.node, Local: id == t.node}
}

// route is where v's partitions live now.
func (t *Table) route(v *model.TopicView) *route {
	m := t.members()
	known, ok := m.routes.Load(v.Name)
	if ok && known.(*route).view == v {
		return known.(*route)
	}
	r := &route{view: v}
	for _, owner := range v.Owners {
		if owner == t.node {
			r.local = true
		} else if o, ok := m.byID[owner]; ok && o.Addr != "" && !slices.Contains(r.others, o) {
			r.others = append(r.others, o)
		}
	}
	slices.SortFunc(r.others, byID)
	if !ok && m.size.Add(1) > routesMax {
		m.routes.Clear() // mostly topics that are gone
		m.size.Store(1)
	}
	m.routes.Store(v.Name, r)
	return r
}

// alive reports whether any other owner can be asked.
func (r *route) alive() bool {
	return slices.ContainsFunc(r.others, func(o Target) bool { return o.Alive })
}

// members is the snapshot of the current member records.
func (t *Table) members() *members {
	m := t.view.Load()
	if m != nil && m.version.Load() == t.replica.Version(metastore.DomainMembers) {
		return m
	}
	return t.renew()
}

// renew looks at the member records again. Records that differ only in what no route
// depends on leave the snapshot as it is.
func (t *Table) renew() *members {
	t.mu.Lock()
	defer t.mu.Unlock()
	version := t.replica.Version(metastore.DomainMembers) // first: what is read after is at least as new
	old := t.view.Load()
	if old != nil && old.version.Load() == version {
		return old
	}
	records := t.replica.Members()
	list := make([]Target, len(records))
	for i := range records {
		r := &records[i]
		local := r.ID == t.node
		list[i] = Target{ID: r.ID, Addr: r.Addr, Alive: local || r.Status == model.MemberAlive, Local: local}
	}
	slices.SortFunc(list, byID)
	if old != nil && slices.Equal(old.list, list) {
		old.version.Store(version)
		return old
	}
	m := &members{list: list, byID: make(map[string]Target, len(list))}
	for _, x := range list {
		m.byID[x.ID] = x
	}
	m.version.Store(version)
	t.view.Store(m)
	return m
}

func byID(a, b Target) int { return strings.Compare(a.ID, b.ID) }
