package topics

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/schema"
)

// loadedBytesMax bounds the documents whose compiled form a node keeps, each counted
// with loadedEach on top. Past it any other one is forgotten for a new one, which costs
// that topic one reload.
const (
	loadedBytesMax = 32 << 20
	loadedEach     = 4 << 10
)

// errUnfinished is what those who wait are told when a load panicked.
var errUnfinished = errors.New("the load did not finish")

// SchemaSource is where schemas are loaded from: the local replica.
type SchemaSource interface {
	Topic(name string) (*model.TopicView, bool)
	// LatestSchema is the newest version of a topic's schema; version 0 = none.
	LatestSchema(topic string) (doc []byte, version int, err error)
}

// Schemas holds payloads against the schema of their topic, compiled once for each
// version. A loaded schema is good while the schema counter of the topic's view
// stands: a version registered anywhere, a topic recreated under the name and a
// history adopted from a parent all move it (spec/storage-and-produce section 15.1).
// Safe for concurrent use.
type Schemas struct {
	source    SchemaSource
	validator *schema.Validator

	mu    sync.Mutex               // guards the rest; held for map operations only
	known map[string]*loadedSchema // by topic
	bytes int                      // of the documents in known
}

// loadedSchema is one load, shared by all who wait for it.
type loadedSchema struct {
	counter uint64        // of the view that was read before the document
	done    chan struct{} // closed once the rest is set
	schema  *schema.Schema
	size    int
	err     error
}

// NewSchemas returns a checker over the local replica.
func NewSchemas(s SchemaSource, v *schema.Validator) *Schemas {
	return &Schemas{source: s, validator: v, known: map[string]*loadedSchema{}}
}

// Check holds a payload against the newest schema of a topic that this node knows,
// or a newer one than the view's. A refusal is model.ErrInvalid with the report
// (SV-8), model.ErrSchemaBusy, or the error of ctx.
func (c *Schemas) Check(ctx context.Context, view *model.TopicView, payload []byte) error {
	s, err := c.load(ctx, view)
	if err != nil {
		return err
	}
	return c.validator.Check(ctx, s, payload)
}

// load returns the compiled schema, nil for none. A load that raced with a newer
// version is of no use to whoever saw that one: it loads again.
func (c *Schemas) load(ctx context.Context, view *model.TopicView) (*schema.Schema, error) {
	c.mu.Lock()
	l := c.known[view.Name]
	if l == nil || l.counter < view.Versions.Schema {
		l = c.begin(view)
		c.mu.Unlock()
		c.finish(view.Name, l)
		return l.schema, l.err
	}
	c.mu.Unlock()
	select {
	case <-l.done:
		return l.schema, l.err
	default:
	}
	select {
	case <-l.done:
		return l.schema, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the schema of %q: %w", view.Name, ctx.Err())
	}
}

// begin enters a load in place of an older one; caller holds mu. The counter is read
// before the document, so that the document is at least as new as it.
func (c *Schemas) begin(view *model.TopicView) *loadedSchema {
	l := &loadedSchema{counter: view.Versions.Schema, done: make(chan struct{})}
	if now, ok := c.source.Topic(view.Name); ok {
		l.counter = max(l.counter, now.Versions.Schema)
	}
	c.remove(view.Name)
	c.known[view.Name] = l
	return l
}

// finish loads, on the goroutine of the first who asked. It is not that one's request
// that the others wait for, so its context plays no part.
func (c *Schemas) finish(topic string, l *loadedSchema) {
	size := loadedEach
	l.err = fmt.Errorf("schema of %q: %w", topic, errUnfinished)
	defer func() { c.settle(topic, l, size) }()
	doc, version, err := c.source.LatestSchema(topic)
	size += len(doc)
	if err == nil && version > 0 {
		l.schema, err = schema.Compile(topic, version, doc)
	}
	l.err = err
}

// settle lets those who wait go on, and makes room for what was loaded. A failed load
// is forgotten: the next request tries again.
func (c *Schemas) settle(topic string, l *loadedSchema, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(l.done)
	if c.known[topic] != l {
		return // deleted or replaced meanwhile
	}
	if l.err != nil {
		delete(c.known, topic)
		return
	}
	l.size = size
	c.bytes += size
	for name, other := range c.known {
		if c.bytes <= loadedBytesMax {
			break
		}
		if other != l && other.size > 0 {
			c.remove(name)
		}
	}
}

// remove forgets a topic; caller holds mu.
func (c *Schemas) remove(topic string) {
	if l := c.known[topic]; l != nil {
		c.bytes -= l.size
		delete(c.known, topic)
	}
}

// TopicChanged forgets the schema of a topic that is gone (v nil) or has none; see
// metastore.Store.Subscribe.
func (c *Schemas) TopicChanged(name string, v *model.TopicView) {
	if v != nil && v.SchemaVersion != 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name)
}
