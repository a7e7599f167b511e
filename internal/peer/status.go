package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// NodeStatus is what a node knows of itself alone (spec/cluster-and-network section 14.2).
type NodeStatus struct {
	Node            string     `json:"node"`
	Draining        bool       `json:"draining"` // its own view
	ProduceInFlight int        `json:"produce_in_flight"`
	DispatchBacklog int64      `json:"dispatch_backlog"` // records
	Quarantine      Quarantine `json:"quarantine"`
	Moves           []Move     `json:"moves"`
}

// Quarantine is what a node has set aside and never serves.
type Quarantine struct {
	Copies int              `json:"copies"`
	Bytes  int64            `json:"bytes"`
	List   []QuarantineCopy `json:"list"` // at most QuarantineListMax
}

// QuarantineListMax bounds the copies a status lists.
const QuarantineListMax = 100

// QuarantineCopy is one directory set aside.
type QuarantineCopy struct {
	Kind      string    `json:"kind"` // partition, staging, topic_incarnation
	Topic     string    `json:"topic"`
	Partition int       `json:"partition"` // -1 = the whole topic
	Dir       string    `json:"dir"`
	Bytes     int64     `json:"bytes"`
	ModTime   time.Time `json:"mod_time"`
}

// Move is a partition a node is taking over.
type Move struct {
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

// Status reports on this node.
type Status interface {
	NodeStatus(ctx context.Context) NodeStatus
}

// NodeStatus asks a node about itself. ErrUnsupported from one of an older release.
func (c *Client) NodeStatus(ctx context.Context, addr string) (NodeStatus, error) {
	var s NodeStatus
	err := c.ask(ctx, addr, noderpc.OpNodeStatus, statusBudget, nil, &s)
	return s, err
}

// ServeStatus serves op 33.
func ServeStatus(s Server, level model.ReleaseLevel, n Status) {
	if !knows(level, featureStatus) {
		without(s, noderpc.OpNodeStatus)
		return
	}
	serve(s, noderpc.OpNodeStatus, nil, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		if err := d.Done(); err != nil {
			return noderpc.Response{}, err
		}
		st := n.NodeStatus(ctx)
		st.Quarantine.List = st.Quarantine.List[:min(len(st.Quarantine.List), QuarantineListMax)]
		if st.Quarantine.List == nil {
			st.Quarantine.List = []QuarantineCopy{}
		}
		if st.Moves == nil {
			st.Moves = []Move{}
		}
		return jsonResponse(http.StatusOK, st), nil
	})
}
