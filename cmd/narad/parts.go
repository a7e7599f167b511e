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
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/users"
)

// placement tells the dispatcher who owns a partition: on one node this one, or
// nobody yet.
type placement struct{ n *node }

// Owner implements ingress.Placement.
func (p placement) Owner(topic string, partition int) (o ingress.Owner, node string, alive bool, err error) {
	if !p.n.store.CaughtUp() {
		return nil, "", false, model.ErrUnavailable
	}
	v, ok := p.n.store.Topic(topic)
	if !ok {
		return nil, "", false, model.ErrTopicNotFound
	}
	self := p.n.cfg.Cluster.NodeID
	if v.OwnerOf(partition) != self {
		return nil, "", false, model.ErrUnavailable
	}
	return p.n.broker, self, true, nil
}

// children tells fan-out who owns a child partition.
type children struct{ placement }

// Owner implements fanout.Placement.
func (c children) Owner(topic string, partition int) (fanout.Owner, error) {
	o, _, _, err := c.placement.Owner(topic, partition)
	return o, err
}

// tails tells an attach where a parent partition ends: on one node this node's word, or
// nobody's.
type tails struct{ n *node }

// HighWatermark implements topics.Tails.
func (t tails) HighWatermark(_ context.Context, parent *model.TopicView, partition int) (int64, error) {
	if owner := parent.OwnerOf(partition); owner != t.n.cfg.Cluster.NodeID {
		return 0, fmt.Errorf("%w: owner %q of %s/%d cannot be asked", model.ErrUnavailable, owner, parent.Name, partition)
	}
	return t.n.broker.HighWatermark(parent.Name, parent.ID, partition)
}

// confirmer narrows the leader's word to what the dispatcher asks.
type confirmer struct{ store *metastore.Store }

// ConfirmGone implements ingress.Confirmer.
func (c confirmer) ConfirmGone(ctx context.Context, name string, id model.Incarnation) (bool, error) {
	word, err := c.store.ConfirmGone(ctx, name, id)
	return word == metastore.Gone && err == nil, err
}

// newUsers makes the manager of users; this node is the leader that decides.
func (n *node) newUsers() *users.Manager {
	return users.NewManager(n.store, n.auth, users.NewAuthority(users.AuthorityOptions{
		Store: n.store, Secured: n.cfg.Security.Enabled, Clock: n.clk,
	}))
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
