package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// placement tells the dispatcher and fan-out who owns a partition, and how it is reached.
type placement struct{ n *node }

// Owner implements ingress.Placement.
func (p placement) Owner(topic string, partition int) (o ingress.Owner, node string, alive bool, err error) {
	t, err := p.n.net.table.Owner(topic, partition)
	switch {
	case err != nil:
		return nil, "", false, err
	case t.Local:
		return p.n.broker, t.ID, true, nil
	}
	return elsewhere{p.n.net.peers, t.Addr}, t.ID, t.Alive && t.Addr != "", nil
}

// elsewhere is another node as the owner of partitions.
type elsewhere struct {
	peers *peer.Client
	addr  string
}

// Commit implements ingress.Owner and fanout.Owner.
func (e elsewhere) Commit(ctx context.Context, topic string, partition int, recs []model.Record) (first int64, err error) {
	return e.peers.Commit(ctx, e.addr, topic, partition, recs)
}

// children tells fan-out who owns a child partition.
type children struct{ placement }

// Owner implements fanout.Placement.
func (c children) Owner(topic string, partition int) (fanout.Owner, error) {
	o, node, alive, err := c.placement.Owner(topic, partition)
	if err == nil && !alive {
		err = fmt.Errorf("%w: %s/%d is owned by %q", model.ErrOwnerDown, topic, partition, node)
	}
	return o, err
}

// cursors asks other nodes for the cursors they run: fanout.Peers.
type cursors struct{ n *node }

// Cursors implements fanout.Peers.
func (c cursors) Cursors(ctx context.Context, node, parent, child string) ([]peer.CursorLag, error) {
	for _, m := range c.n.net.table.Members() {
		if m.ID == node && m.Alive && m.Addr != "" {
			return c.n.net.peers.Cursors(ctx, m.Addr, parent, child)
		}
	}
	return nil, fmt.Errorf("%w: member %q", model.ErrOwnerDown, node)
}

// tails tells an attach where a parent partition ends: its owner's word, whichever node
// that is.
type tails struct{ n *node }

// HighWatermark implements topics.Tails.
func (t tails) HighWatermark(ctx context.Context, parent *model.TopicView, partition int) (int64, error) {
	o, err := t.n.net.table.Owner(parent.Name, partition)
	switch {
	case err != nil:
		return 0, err
	case o.Local:
		return t.n.broker.HighWatermark(parent.Name, parent.ID, partition)
	}
	return t.n.net.peers.HighWatermark(ctx, o.Addr, parent.Name, parent.ID, partition)
}

// vitals is what a node tells of itself: peer.Status.
type vitals struct{ n *node }

// NodeStatus implements peer.Status.
func (v vitals) NodeStatus(context.Context) peer.NodeStatus {
	s := peer.NodeStatus{
		Node: v.n.self.ID, ProduceInFlight: v.n.ingress.InFlight(), DispatchBacklog: int64(v.n.ingress.Backlog()),
		Quarantine: peer.Quarantine{List: []peer.QuarantineCopy{}}, Moves: []peer.Move{},
	}
	for _, m := range v.n.store.Members() {
		if m.ID == s.Node {
			s.Draining = m.Draining
		}
	}
	list, err := v.n.reclaimer.Quarantined()
	if err != nil {
		v.n.log.Warn("node status: cannot list what is set aside", "err", err)
	}
	for _, c := range list {
		s.Quarantine.Copies++
		s.Quarantine.Bytes += c.Bytes
		if len(s.Quarantine.List) < peer.QuarantineListMax {
			s.Quarantine.List = append(s.Quarantine.List, peer.QuarantineCopy{
				Kind: "topic_incarnation", Topic: c.Topic, Partition: -1, Dir: c.Dir, Bytes: c.Bytes, ModTime: c.ModTime,
			})
		}
	}
	return s
}

// confirmer narrows the leader's word to what the dispatcher asks.
type confirmer struct{ store *metastore.Store }

// ConfirmGone implements ingress.Confirmer.
func (c confirmer) ConfirmGone(ctx context.Context, name string, id model.Incarnation) (bool, error) {
	word, err := c.store.ConfirmGone(ctx, name, id)
	return word == metastore.Gone && err == nil, err
}

// Default share of the volume that is kept free (storage.reserve_bytes = -1).
const (
	reserveBytesMax = 64 << 20
	reservePercent  = 5
)

// reserveBytes is the free space below which produces are refused.
func reserveBytes(s config.Storage) (int64, error) {
	if s.ReserveBytes != config.ReserveAuto {
		return s.ReserveBytes, nil
	}
	room, err := disk.OS{}.Space(s.DataDir)
	if err != nil {
		return 0, err
	}
	return int64(min(reserveBytesMax, room.Total/100*reservePercent)), nil
}

// registerProcess adds what every Go service exports, and which build it is.
func registerProcess(reg *prometheus.Registry) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "narad_build_info", Help: "Constant 1, labelled by the build.",
	}, []string{"version", "commit", "goversion"})
	build.WithLabelValues(version(), commit(), runtime.Version()).Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// registerBoot adds the series that exist once the node has come up.
func registerBoot(reg prometheus.Registerer, took interface{ Seconds() float64 }, ready func() error) {
	boot := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "narad_boot_duration_seconds", Help: "Process start to \"http listening\", set once.",
	})
	boot.Set(took.Seconds())
	reg.MustRegister(boot, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "narad_ready", Help: "1 while /readyz would answer 200.",
	}, func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	}))
}

// startPoller reads what may hang on a sick volume, so that a scrape never does.
func (n *node) startPoller() *telemetry.Poller {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		g.Set(math.NaN())
		n.reg.MustRegister(g)
		return g
	}
	n.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "narad_topics_total", Help: "Topics in the cluster.",
	}, func() float64 {
		count := 0
		n.store.Range(func(*model.TopicView) bool { count++; return true })
		return float64(count)
	}))
	dir := n.cfg.Storage.DataDir
	return telemetry.NewPoller("vitals", n.clk, n.log, n.reg, telemetry.Source{
		Name: "data_dir", Into: gauge("narad_data_dir_available_bytes", "Free bytes on the data directory's file system."),
		Read: func() (float64, error) {
			s, err := disk.OS{}.Space(dir)
			return float64(s.Available), err
		},
	}, telemetry.Source{
		Name: "data_dir_size", Into: gauge("narad_data_dir_size_bytes", "Bytes of data: topics, copies set aside, ingress WAL and metastore."),
		Read: func() (float64, error) {
			files, err := treeBytes(filepath.Join(dir, "ingress"), filepath.Join(dir, "metastore"))
			return float64(files + n.broker.Bytes() + n.reclaimer.Bytes()), err
		},
	})
}

// treeBytes adds up the files below some directories that hold only a handful.
func treeBytes(dirs ...string) (n int64, err error) {
	for len(dirs) > 0 {
		entries, err := disk.OS{}.List(dirs[0])
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if e.IsDir {
				dirs = append(dirs, filepath.Join(dirs[0], e.Name))
			} else {
				n += e.Size
			}
		}
		dirs = dirs[1:]
	}
	return n, nil
}
