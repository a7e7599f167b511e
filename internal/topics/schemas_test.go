package topics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/schema"
	"github.com/narad-mq/narad/internal/testutil"
)

// replica is a SchemaSource that counts loads and can be made to wait or fail.
type replica struct {
	mu    sync.Mutex // guards views and docs
	views map[string]*model.TopicView
	docs  map[string][]byte

	loads atomic.Int64
	gate  chan struct{} // nil = loads do not wait
	fail  atomic.Pointer[error]
}

func newReplica() *replica {
	return &replica{views: map[string]*model.TopicView{}, docs: map[string][]byte{}}
}

// put registers the next version of a topic's schema and returns the view.
func (r *replica) put(topic, doc string) *model.TopicView {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &model.TopicView{Topic: model.Topic{Name: topic}}
	if old := r.views[topic]; old != nil {
		*v = *old
	}
	v.SchemaVersion++
	v.Versions.Schema++
	r.views[topic], r.docs[topic] = v, []byte(doc)
	return v
}

func (r *replica) Topic(name string) (*model.TopicView, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.views[name]
	return v, ok
}

func (r *replica) LatestSchema(topic string) ([]byte, int, error) {
	r.mu.Lock()
	doc, version := r.docs[topic], r.views[topic].SchemaVersion
	r.mu.Unlock()
	r.loads.Add(1)
	if r.gate != nil {
		<-r.gate // what was read is old by now
	}
	if err := r.fail.Load(); err != nil {
		return nil, 0, *err
	}
	return doc, version, nil
}

func newSchemas(r *replica) *Schemas {
	return NewSchemas(r, schema.NewValidator(2, clock.Real(), nil))
}

func (c *Schemas) check(v *model.TopicView, payload string) error {
	return c.Check(context.Background(), v, []byte(payload))
}

func TestSchemasLoadOncePerVersion(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	first := r.put("t", `{"maxLength":2}`)
	for range 3 {
		must(t, c.check(first, `"ab"`))
		if err := c.check(first, `"abc"`); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), "narad://schema/t/1#") {
			t.Fatalf("%v", err)
		}
	}
	if n := r.loads.Load(); n != 1 {
		t.Errorf("%d loads of one version", n)
	}
	second := r.put("t", `{"maxLength":3}`)
	must(t, c.check(second, `"abc"`))
	if n := r.loads.Load(); n != 2 {
		t.Errorf("%d loads of two versions", n)
	}
	// A request that still holds the old view is checked against the newest schema and
	// does not bring the old one back.
	must(t, c.check(first, `"abc"`))
	must(t, c.check(second, `"abc"`))
	if n := r.loads.Load(); n != 2 {
		t.Errorf("%d loads after an old view came along", n)
	}
}

// A version that is registered while one is loaded is loaded as well: the counter was
// read before the document.
func TestSchemasLoadThatRacedANewerVersion(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	first := r.put("t", `{"maxLength":2}`)
	r.gate = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- c.check(first, `"abc"`) }()
	testutil.Eventually(t, 5*time.Second, func() bool { return r.loads.Load() == 1 }, "the load")
	second := r.put("t", `{"maxLength":3}`)
	close(r.gate)
	<-done // checked against either
	must(t, c.check(second, `"abc"`))
}

func TestSchemasShareOneLoad(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	v := r.put("t", `{"maxLength":2}`)
	r.gate = make(chan struct{})
	const n = 16
	done := make(chan error, n)
	for range n {
		go func() { done <- c.check(v, `"ab"`) }()
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return r.loads.Load() == 1 }, "the load")
	// One that leaves goes alone.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Check(ctx, v, []byte(`"ab"`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that left: %v", err)
	}
	close(r.gate)
	for range n {
		must(t, <-done)
	}
	if got := r.loads.Load(); got != 1 {
		t.Errorf("%d loads for %d requests", got, n)
	}
}

func TestSchemasFailedLoadIsTriedAgain(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	v := r.put("t", `true`)
	broken := errors.New("bbolt is gone")
	r.fail.Store(&broken)
	if err := c.check(v, `1`); !errors.Is(err, broken) {
		t.Fatalf("%v", err)
	}
	r.fail.Store(nil)
	must(t, c.check(v, `1`))
	// A document that does not compile is no verdict on the payload.
	v = r.put("t", `{`)
	if err := c.check(v, `1`); err == nil || errors.Is(err, model.ErrInvalid) && strings.Contains(err.Error(), "validation failed") {
		t.Errorf("%v", err)
	}
}

// panicking is a replica that breaks.
type panicking struct{ *replica }

func (panicking) LatestSchema(string) ([]byte, int, error) { panic("kaboom") }

func TestSchemasPanicLetsTheOthersGo(t *testing.T) {
	r := newReplica()
	c := NewSchemas(panicking{r}, schema.NewValidator(2, clock.Real(), nil))
	v := r.put("t", `{"maxLength":2}`)
	func() {
		defer func() { _ = recover() }()
		_ = c.check(v, `"ab"`)
	}()
	c.source = r
	must(t, c.check(v, `"ab"`))
	if err := c.check(v, `"abc"`); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("a load that broke passes for no schema: %v", err)
	}
}

func TestSchemasForget(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	v := r.put("t", `true`)
	must(t, c.check(v, `1`))
	c.TopicChanged("t", v)
	if len(c.known) != 1 {
		t.Error("a change of another kind forgot the schema")
	}
	c.TopicChanged("t", nil)
	c.TopicChanged("unknown", nil)
	if len(c.known) != 0 || c.bytes != 0 {
		t.Errorf("%d topics, %d bytes after the topic went", len(c.known), c.bytes)
	}
}

// The bound: what is kept fits loadedBytesMax, whatever was asked for.
func TestSchemasBound(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	doc := `{"description":"` + strings.Repeat("x", 255<<10) + `"}`
	fit := loadedBytesMax / (len(doc) + loadedEach)
	for i := range fit + 10 {
		must(t, c.check(r.put(fmt.Sprint("t", i), doc), `1`))
		if c.bytes > loadedBytesMax {
			t.Fatalf("%d bytes kept after %d topics, at most %d", c.bytes, i+1, loadedBytesMax)
		}
	}
	if len(c.known) != fit {
		t.Errorf("%d topics kept, %d fit", len(c.known), fit)
	}
	last := fmt.Sprint("t", fit+9)
	if c.known[last] == nil {
		t.Error("the newest one was forgotten for an older one")
	}
	sum := 0
	for _, l := range c.known {
		sum += l.size
	}
	if sum != c.bytes {
		t.Errorf("%d bytes counted, %d kept", c.bytes, sum)
	}
}

// A topic with a cached schema costs one short lock and no allocation before its
// validation.
func TestSchemasAllocateNothing(t *testing.T) {
	r := newReplica()
	c := newSchemas(r)
	v := r.put("t", `{"type":"object"}`)
	payload := []byte(`{"id":1}`)
	must(t, c.Check(context.Background(), v, payload))
	if n := testing.AllocsPerRun(100, func() { _, _ = c.load(context.Background(), v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSchemasCheck(b *testing.B) {
	r := newReplica()
	c := newSchemas(r)
	v := r.put("t", `{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string","maxLength":40}},"required":["id"]}`)
	payload := []byte(`{"id":17,"name":"a name of some length","total":12.5}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Check(b.Context(), v, payload); err != nil {
			b.Fatal(err)
		}
	}
}

// stale answers with a schema version that is not the newest.
type stale struct {
	*metastore.Store
	version int
	doc     []byte
	reads   atomic.Int64
}

func (s *stale) LatestSchema(topic string) ([]byte, int, error) {
	if s.reads.Add(1) == 1 || s.version > 1 {
		return s.doc, s.version, nil
	}
	return s.Store.LatestSchema(topic)
}

// RT-8, TA-12: a version that another leader registered meanwhile is read, and the
// change made once more on top of it.
func TestAlterSchemaVersionRace(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	_, err := g.Create(ctx, CreateRequest{Name: "t", Schema: []byte(`{"maxLength":1}`)})
	must(t, err)
	s := &stale{Store: g.store} // says that there is none yet
	_, err = g.over(s).Alter(ctx, "t", AlterRequest{Schema: []byte(`{"maxLength":2}`)})
	must(t, err)
	if doc, version, err := g.store.LatestSchema("t"); err != nil || version != 2 || string(doc) != `{"maxLength":2}` {
		t.Errorf("version %d %s, %v", version, doc, err)
	}
	if n := s.reads.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

// TA-8, SC-1: the 1,001st version.
func TestAlterSchemaHistoryFull(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	_, err := g.Create(ctx, CreateRequest{Name: "t", Schema: []byte(`{"maxLength":1}`)})
	must(t, err)
	full := g.over(&stale{Store: g.store, version: schema.VersionsMax, doc: []byte(`{"maxLength":1}`)})
	if _, err := full.Alter(ctx, "t", AlterRequest{Schema: []byte(`{"maxLength":2}`)}); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("%v", err)
	}
	// The same document again is no new version, full or not.
	_, err = full.Alter(ctx, "t", AlterRequest{Schema: json.RawMessage(`{"maxLength": 1}`)})
	must(t, err)
}

// TC-21: the topic and its schema are one entry; refused, neither is left.
func TestCreateWithSchemaIsOneEntry(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	before := g.store.Version(metastore.DomainTopics)
	v, err := g.Create(ctx, CreateRequest{Name: "t", Schema: []byte(`{ "maxLength" : 1 }`)})
	must(t, err)
	if got := g.store.Version(metastore.DomainTopics) - before; got != 1 {
		t.Errorf("the views moved %d times", got)
	}
	kept, _ := g.store.Topic("t")
	if kept.SchemaVersion != 1 || kept.ID != v.ID || len(kept.Owners) != 3 || kept.Owners[2] != node {
		t.Errorf("%+v", kept)
	}
	for _, name := range []string{"t", "T"} {
		if _, err := g.Create(ctx, CreateRequest{Name: name, Schema: []byte(`true`)}); !errors.Is(err, model.ErrTopicExists) && !errors.Is(err, model.ErrNameTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, version, err := g.store.LatestSchema("t"); err != nil || version != 1 {
		t.Errorf("a refused create left version %d, %v", version, err)
	}
}
