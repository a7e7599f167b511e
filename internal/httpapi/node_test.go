package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/controller"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/router"
	"github.com/narad-mq/narad/internal/schema"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/topics"
	"github.com/narad-mq/narad/internal/users"
)

// node is a server over the real parts of a node, on a directory of its own.
type node struct {
	*server
	dir    string
	store  *metastore.Store
	broker *broker.Broker
	fanout *fanout.Engine
	router *router.Router
	be     Backends
	stops  []func()
}

// close stops the node, the last part first. Idempotent.
func (n *node) close() {
	for len(n.stops) > 0 {
		last := len(n.stops) - 1
		n.stops[last]()
		n.stops = n.stops[:last]
	}
}

const nodeName = "n1"

// newNode starts a node; edit changes its HTTP settings.
func newNode(t testing.TB, edit func(*config.HTTP)) *node {
	t.Helper()
	return openNode(t, t.TempDir(), edit)
}

func openNode(t testing.TB, dir string, edit func(*config.HTTP)) *node {
	t.Helper()
	return openNodeWith(t, dir, edit, false)
}

func openNodeWith(t testing.TB, dir string, edit func(*config.HTTP), secured bool) *node {
	t.Helper()
	n := &node{dir: dir}
	t.Cleanup(n.close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log, reg := telemetry.Discard(), prometheus.NewRegistry()
	store, err := metastore.Open(t.Context(), metastore.Options{
		Dir: filepath.Join(dir, "metastore"), NodeID: nodeName, BindAddr: "127.0.0.1:0", Clock: clock.Real(), Logger: log,
	})
	must(err)
	n.stops = append(n.stops, func() { _ = store.Close() })
	ready, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must(store.WaitReady(ready))
	b, err := broker.Open(broker.Options{
		FS: disk.OS{}, DataDir: dir, Node: nodeName, Topics: store, Clock: clock.Real(), Logger: log,
	})
	must(err)
	n.stops = append(n.stops, func() { _ = b.Close() })
	n.stops = append(n.stops, store.Subscribe(b.TopicChanged))
	schemas := topics.NewSchemas(store, schema.NewValidator(2, clock.Real(), reg))
	n.stops = append(n.stops, store.Subscribe(schemas.TopicChanged))
	in, err := ingress.Open(ingress.Options{
		Schemas: schemas, Registry: reg,
		FS: disk.OS{}, Dir: filepath.Join(dir, "ingress", "produce"), Node: nodeName, Clock: clock.Real(), Logger: log,
		Directory: store, Placement: alone{b, store}, Confirmer: confirmer{store}, SegmentBytes: 4 << 20,
	})
	must(err)
	n.stops = append(n.stops, func() { _ = in.Close() })
	n.store, n.broker = store, b
	n.fanout, err = fanout.Open(fanout.Options{
		FS: disk.OS{}, DataDir: dir, Node: nodeName, Replica: store, Leader: store, Parents: b,
		Placement: alone{b, store}.children(), Clock: clock.Real(), Logger: log,
	})
	must(err)
	n.stops = append(n.stops, func() { _ = n.fanout.Close() })
	n.router = router.New(router.Options{
		Node: nodeName, Directory: store, Local: b, Stats: b, Clock: clock.Real(), Logger: log,
	})
	auth := access.New(access.Options{Users: store, Clock: clock.Real(), Logger: log, Cost: bcrypt.MinCost})
	n.stops = append(n.stops, func() { _ = auth.Close() })
	var callers access.Reader
	if secured {
		callers = store
	}
	n.server = serveWith(t, edit, secured)
	n.reg.MustRegister(reg)
	n.stops = append(n.stops, n.server.stop)
	duties := controller.New(controller.Options{Store: store, Self: nodeName, Logger: log})
	n.stops = append(n.stops, func() { _ = duties.Close() })
	duties.Start()
	manager := topics.New(topics.Options{
		Store: store, Placer: duties, Users: callers, Tails: tails{b}, Node: nodeName, Clock: clock.Real(), Logger: log,
		Defaults: topics.Defaults{Partitions: 3, MaxPartitions: 108, RetentionMS: 604_800_000, VisibilityMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024},
	})
	authority := users.NewAuthority(users.AuthorityOptions{Store: store, Secured: secured})
	n.be = Backends{
		Auth: auth, Schemas: store, Users: users.NewManager(store, auth, authority), Authority: authority,
		Directory: store, Router: n.router, Produce: in, Health: store, Members: store,
		Topics: manager, Links: manager, Children: n.fanout,
	}
	n.api.Begin(n.be)
	n.stops = append(n.stops, func() { b.ReleaseWaiters(); n.router.ReleaseWaiters() })
	return n
}

// alone places every partition on the node's own broker.
type alone struct {
	b     *broker.Broker
	store *metastore.Store
}

func (a alone) Owner(topic string, p int) (ingress.Owner, string, bool, error) {
	v, ok := a.store.Topic(topic)
	if !ok || v.OwnerOf(p) == "" {
		return nil, "", false, model.ErrUnavailable
	}
	return a.b, nodeName, true, nil
}

// children is the placement of child partitions.
func (a alone) children() fanout.Placement { return childOwners{a} }

type childOwners struct{ alone }

func (c childOwners) Owner(topic string, p int) (fanout.Owner, error) {
	o, _, _, err := c.alone.Owner(topic, p)
	return o, err
}

// tails reads where parents end off the node's own broker.
type tails struct{ b *broker.Broker }

func (t tails) HighWatermark(_ context.Context, parent *model.TopicView, p int) (int64, error) {
	return t.b.HighWatermark(parent.Name, parent.ID, p)
}

type confirmer struct{ store *metastore.Store }

func (c confirmer) ConfirmGone(ctx context.Context, name string, id model.Incarnation) (bool, error) {
	got, err := c.store.ConfirmGone(ctx, name, id)
	return got == metastore.Gone, err
}

// create makes a topic with 3 partitions.
func (n *node) create(t testing.TB, name string) {
	t.Helper()
	n.do(t, "POST", "/v1/topics", fmt.Sprintf(`{"name":%q}`, name)).expect(t, 201, name)
}

// message is a delivery as a client reads it.
type message struct {
	Topic           string          `json:"topic"`
	Partition       int             `json:"partition"`
	Offset          int64           `json:"offset"`
	Key             *string         `json:"key"`
	KeyEncoding     string          `json:"key_encoding"`
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payload_encoding"`
	Timestamp       int64           `json:"timestamp"`
	Handle          string          `json:"receipt_handle"`
	Count           int             `json:"delivery_count"`
}

// take consumes one message, waiting for it.
func (n *node) take(t testing.TB, topic, query string) message {
	t.Helper()
	a := n.do(t, "GET", "/v1/topics/"+topic+"/consume?wait=10s&"+query, "")
	a.expect(t, 200, "{")
	var m message
	if err := json.Unmarshal([]byte(a.body), &m); err != nil || !strings.HasSuffix(a.body, "}\n") {
		t.Fatalf("%q: %v", a.body, err)
	}
	return m
}

// settle acks, extends ("true") or nacks ("0") a handle.
func (n *node) settle(t testing.TB, topic, handle, extend string) answer {
	t.Helper()
	q := url.Values{"receipt_handle": {handle}}
	if extend != "" {
		q.Set("extend", extend)
	}
	return n.do(t, "POST", "/v1/topics/"+topic+"/ack?"+q.Encode(), "")
}

// corruptLogs flips a bit in the first quarter of every partition log of a topic.
func (n *node) corruptLogs(t testing.TB, topic string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(n.dir, "topics", topic, "*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs of %s: %v", topic, err)
	}
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			b[len(b)/4] ^= 1
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
