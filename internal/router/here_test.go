package router

import (
	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/peer"
)

// What the node puts together fits.
var (
	_ Peers           = (*peer.Client)(nil)
	_ broker.Notifier = (*peer.Client)(nil)
	_ Local           = (*broker.Broker)(nil)
	_ Stats           = (*broker.Broker)(nil)
	_ Directory       = (*metastore.Store)(nil)
	_ peer.Queue      = Here{}
	_ peer.Tokens     = Here{}
	_ peer.Describer  = Here{}
)
