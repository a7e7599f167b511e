package topics

import (
	"context"
	"fmt"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/schema"
)

// AlterRequest changes a topic (spec/http-api section 8.4); nil fields stay. A cap
// of 0 sets the server's default, partitions of 0 count as absent.
type AlterRequest struct {
	RetentionMS   *int64
	MaxInFlight   *int
	MaxAckedAhead *int
	Partitions    *int
	Schema        []byte // the next version of its JSON Schema; nil = none
	SchemaBase    *int   // the version Schema was made from; 0 = there is none
	Caller        string // username; "" with security off
}

// group is one step of an alter: it commits on its own.
type group func(ctx context.Context, v *model.TopicView, r AlterRequest) error

// Alter applies retention, caps, partitions and schema, in this order, each its own
// commit: the first failure answers and the earlier groups stay (TA-15). It returns
// the topic after the change.
func (m *Manager) Alter(ctx context.Context, name string, r AlterRequest) (*model.TopicView, error) {
	unlock, err := m.locks.lock(ctx, foldName(name))
	if err != nil {
		return nil, err
	}
	defer unlock()
	groups := m.groups(r)
	if len(groups) == 0 {
		if _, ok := m.store.Topic(name); !ok {
			return nil, model.ErrTopicNotFound
		}
		return nil, invalid("no field to change")
	}
	for _, apply := range groups {
		err := m.compareAndSet(name, r.Caller, func(v *model.TopicView) error { return apply(ctx, v, r) })
		if err != nil {
			return nil, err
		}
	}
	v, ok := m.store.Topic(name)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	return v, nil
}

func (m *Manager) groups(r AlterRequest) (groups []group) {
	if r.RetentionMS != nil {
		groups = append(groups, m.alterRetention)
	}
	if r.MaxInFlight != nil || r.MaxAckedAhead != nil {
		groups = append(groups, m.alterCaps)
	}
	if r.Partitions != nil && *r.Partitions != 0 {
		groups = append(groups, m.alterPartitions)
	}
	if r.Schema != nil {
		groups = append(groups, m.alterSchema)
	}
	return groups
}

func (m *Manager) alterRetention(ctx context.Context, v *model.TopicView, r AlterRequest) error {
	if err := checkRetention(*r.RetentionMS); err != nil {
		return err
	}
	if err := m.checkChildren(v, *r.RetentionMS); err != nil {
		return err
	}
	return m.propose(ctx, metastore.AlterTopic{Name: v.Name, ID: v.ID, RetentionMS: r.RetentionMS})
}

func (m *Manager) alterCaps(ctx context.Context, v *model.TopicView, r AlterRequest) error {
	update := metastore.AlterTopic{Name: v.Name, ID: v.ID}
	if r.MaxInFlight != nil {
		n := orDefault(*r.MaxInFlight, m.defaults.MaxInFlight)
		if err := checkCap("max_in_flight_per_partition", n); err != nil {
			return err
		}
		update.MaxInFlight = &n
	}
	if r.MaxAckedAhead != nil {
		n := orDefault(*r.MaxAckedAhead, m.defaults.MaxAckedAhead)
		if err := checkCap("max_acked_ahead_per_partition", n); err != nil {
			return err
		}
		update.MaxAckedAhead = &n
	}
	return m.propose(ctx, update)
}

func (m *Manager) alterPartitions(ctx context.Context, v *model.TopicView, r AlterRequest) error {
	n := *r.Partitions
	if n <= v.Partitions {
		return invalid("partitions %d, must be greater than the current %d", n, v.Partitions)
	}
	if err := checkRange("partitions", n, model.PartitionsMin, m.defaults.MaxPartitions); err != nil {
		return err
	}
	owners, done, err := m.place(ctx, v.Name, n-v.Partitions, m.parentOwners(v), grownUnplaced)
	if err != nil {
		return err
	}
	defer done()
	return m.propose(ctx, metastore.AlterTopic{
		Name: v.Name, ID: v.ID, Partitions: &n, PartitionsFrom: v.Partitions, Owners: owners,
	})
}

// parentOwners are the owners of the parent's partitions past the ones a child has, nil
// for a topic without parent.
func (m *Manager) parentOwners(v *model.TopicView) []string {
	if v.Parent == "" {
		return nil
	}
	parent, ok := m.store.Topic(v.Parent)
	if !ok || parent.Partitions <= v.Partitions {
		return nil
	}
	return parent.Owners[v.Partitions:]
}

// alterSchema registers the next version (spec/http-api sections 9.3 and 9.4). What
// says the same as the current one is no new version (TA-6).
func (m *Manager) alterSchema(ctx context.Context, v *model.TopicView, r AlterRequest) error {
	if v.Parent != "" {
		return fmt.Errorf("%w: the schema of %q is that of its parent %q", model.ErrConflict, v.Name, v.Parent)
	}
	current, version, err := m.store.LatestSchema(v.Name)
	if err != nil {
		return err
	}
	if r.SchemaBase != nil && *r.SchemaBase != version {
		return fmt.Errorf("%w: schema_base_version %d does not match the current version %d of %q", model.ErrSchemaVersion, *r.SchemaBase, version, v.Name)
	}
	_, doc, err := schema.Register(v.Name, version+1, r.Schema)
	if err != nil {
		return err
	}
	if version > 0 {
		if schema.SameMeaning(current, doc) {
			return nil
		}
		if err := schema.Compatible(current, doc); err != nil {
			return err
		}
	}
	return m.propose(ctx, metastore.PutSchemaVersion{Topic: v.Name, ID: v.ID, Version: version + 1, Schema: doc})
}

func (m *Manager) propose(ctx context.Context, c metastore.Command) error {
	_, err := m.store.Accept(ctx, c)
	return err
}
