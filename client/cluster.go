package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Member is a node of the cluster, as the node that was asked knows it.
type Member struct {
	ID              string  `json:"id"`
	Addr            string  `json:"addr"`   // host:port of its API
	Status          string  `json:"status"` // alive or dead
	Draining        bool    `json:"draining"`
	OwnedPartitions int     `json:"owned_partitions"`
	OutboundMoves   int     `json:"outbound_moves"`
	Voter           bool    `json:"voter"`  // it counts toward the quorum
	Leader          bool    `json:"leader"` // of the metadata
	HeartbeatAge    float64 `json:"heartbeat_age_seconds"`
	// With detail one of these: what the member says of itself, or why it did not.
	NodeStatus  *NodeStatus `json:"node_status,omitempty"`
	StatusError string      `json:"status_error,omitempty"`
}

// NodeStatus is what only a node itself knows.
type NodeStatus struct {
	Node            string     `json:"node"`
	Draining        bool       `json:"draining"`
	ProduceInFlight int        `json:"produce_in_flight"`
	DispatchBacklog int64      `json:"dispatch_backlog"` // accepted records that no partition has yet
	Quarantine      Quarantine `json:"quarantine"`
	Moves           []Worker   `json:"moves"`
}

// Quarantine is what a node has set aside and does not serve.
type Quarantine struct {
	Copies int           `json:"copies"`
	Bytes  int64         `json:"bytes"`
	List   []Quarantined `json:"list"` // at most 100
}

// Quarantined is one directory set aside.
type Quarantined struct {
	Kind      string    `json:"kind"` // partition, topic_incarnation or staging
	Topic     string    `json:"topic"`
	Partition int       `json:"partition"` // -1 = the whole topic
	Dir       string    `json:"dir"`
	Bytes     int64     `json:"bytes"`
	ModTime   time.Time `json:"mod_time"`
}

// Worker is a partition that a node is taking over.
type Worker struct {
	Topic       string    `json:"topic"`
	Partition   int       `json:"partition"`
	Source      string    `json:"source"`
	Target      string    `json:"target"`
	StartedAt   time.Time `json:"started_at"`
	Phase       string    `json:"phase"`
	Attempts    int       `json:"attempts"`
	LastError   string    `json:"last_error,omitempty"`
	CopiedBytes int64     `json:"copied_bytes"`
	Blocked     string    `json:"blocked,omitempty"`
}

// Move is a partition on its way from one member to another.
type Move struct {
	Topic      string `json:"topic"`
	Partition  int    `json:"partition"`
	From       string `json:"from"`
	To         string `json:"to"`
	FromStatus string `json:"from_status"` // alive, dead, draining or not_a_member
	ToStatus   string `json:"to_status"`
	Blocked    string `json:"blocked,omitempty"` // source_dead, target_dead or target_not_member
}

// Members lists the cluster's members by id; with detail every one is asked about itself,
// which takes up to 2 s. Admins only.
func (c *Client) Members(ctx context.Context, detail bool) ([]Member, error) {
	var out struct {
		Members []Member `json:"members"`
	}
	r := &request{op: opRead, method: http.MethodGet, path: "/v1/cluster/members", query: detailQuery(detail), want: http.StatusOK}
	err := c.doJSON(ctx, r, nil, &out)
	return out.Members, err
}

// Moves lists the partitions that are on their way, by topic and partition. Admins only.
func (c *Client) Moves(ctx context.Context, detail bool) ([]Move, error) {
	var out struct {
		Moves []Move `json:"moves"`
	}
	r := &request{op: opRead, method: http.MethodGet, path: "/v1/cluster/moves", query: detailQuery(detail), want: http.StatusOK}
	err := c.doJSON(ctx, r, nil, &out)
	return out.Moves, err
}

// ForgetServer removes a Raft server that never became a member, and reports whether it
// counted toward the quorum. It touches no data: a server with a member record, or named
// by an assignment, is ErrConflict. Admins only.
func (c *Client) ForgetServer(ctx context.Context, id string) (voter bool, err error) {
	var out struct {
		Voter bool `json:"voter"`
	}
	r := &request{op: opChange, method: http.MethodPost, path: "/v1/cluster/members/" + url.PathEscape(id) + "/forget", want: http.StatusOK}
	err = c.doJSON(ctx, r, nil, &out)
	return out.Voter, err
}

func detailQuery(detail bool) url.Values {
	if !detail {
		return nil
	}
	return url.Values{"detail": {"true"}}
}
