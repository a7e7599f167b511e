package membership

import "github.com/narad-mq/narad/internal/peer"

// What the operations between nodes are served from.
var (
	_ peer.Members   = (*Membership)(nil)
	_ peer.Forgetter = (*Membership)(nil)
	_ Joiner         = (*peer.Client)(nil)
)
