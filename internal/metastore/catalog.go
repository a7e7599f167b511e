package metastore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// shardCount spreads the topics over copy-on-write maps small enough to copy on
// every change: about 10 topics each at 10,000.
const shardCount = 1024

type topicMap = map[string]*model.TopicView

// catalog holds the replica's topics and members as immutable values in memory.
// One goroutine writes (the state machine's); any number reads without a lock.
type catalog struct {
	seed    maphash.Seed
	shards  [shardCount]atomic.Pointer[topicMap] // a map is never written once stored
	version atomic.Uint64                        // moves after every change is visible
	members atomic.Pointer[[]model.Member]       // ascending by id
	// usersVersion moves after every change of a user is visible.
	usersVersion atomic.Uint64
	names        atomic.Pointer[nameIndex]

	mu    sync.RWMutex        // guards folds and owned
	folds map[string][]string // lower-cased name -> the names that fold to it
	owned map[string]int      // member id -> partitions it owns

	ids    map[string]string // interned member ids; writer only
	notify *notifier
}

// nameIndex is the sorted list of names at one version, rebuilt when a listing
// finds the version moved.
type nameIndex struct {
	version uint64
	names   []string
}

// changes is what one transaction did to the catalog: views by name, nil = deleted.
type changes struct {
	topics     topicMap
	members    []model.Member
	hasMembers bool
	hasUsers   bool // users are read from the database; only their version moves
}

func newCatalog() *catalog {
	c := &catalog{
		seed: maphash.MakeSeed(), folds: map[string][]string{}, owned: map[string]int{},
		ids: map[string]string{}, notify: newNotifier(),
	}
	c.members.Store(&[]model.Member{})
	return c
}

func (c *catalog) shard(name string) *atomic.Pointer[topicMap] {
	return &c.shards[maphash.String(c.seed, name)%shardCount]
}

func (c *catalog) topic(name string) (*model.TopicView, bool) {
	m := c.shard(name).Load()
	if m == nil {
		return nil, false
	}
	v, ok := (*m)[name]
	return v, ok
}

// forEach calls f with every topic, in no order, until it returns false.
func (c *catalog) forEach(f func(*model.TopicView) bool) {
	for i := range c.shards {
		m := c.shards[i].Load()
		if m == nil {
			continue
		}
		for _, v := range *m {
			if !f(v) {
				return
			}
		}
	}
}

// sortedNames is the sorted list of names as of some version at or after the call.
func (c *catalog) sortedNames() []string {
	version := c.version.Load()
	if idx := c.names.Load(); idx != nil && idx.version == version {
		return idx.names
	}
	var names []string
	c.forEach(func(v *model.TopicView) bool {
		names = append(names, v.Name)
		return true
	})
	slices.Sort(names)
	c.names.Store(&nameIndex{version: version, names: names})
	return names
}

// publish makes changes visible, then moves the version, then tells subscribers.
// Writer only.
func (c *catalog) publish(ch changes) {
	if ch.hasMembers {
		c.members.Store(&ch.members)
	}
	if ch.hasUsers {
		c.usersVersion.Add(1)
	}
	if len(ch.topics) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(ch.topics))
	c.mu.Lock()
	for _, name := range names {
		c.replace(name, ch.topics[name])
	}
	c.mu.Unlock()
	c.version.Add(1)
	c.notify.push(names)
}

// replace swaps one topic; caller holds mu.
func (c *catalog) replace(name string, v *model.TopicView) {
	shard := c.shard(name)
	next := topicMap{}
	if m := shard.Load(); m != nil {
		next = maps.Clone(*m)
	}
	old := next[name]
	switch {
	case v != nil:
		next[name] = v
	case old == nil:
		return
	default:
		delete(next, name)
	}
	if old != nil {
		c.count(old.Owners, -1)
	}
	if v != nil {
		c.count(v.Owners, 1)
	}
	if (old == nil) != (v == nil) {
		c.fold(name, v != nil)
	}
	shard.Store(&next)
}

func (c *catalog) count(owners []string, by int) {
	for _, id := range owners {
		if id == "" {
			continue
		}
		if c.owned[id] += by; c.owned[id] == 0 {
			delete(c.owned, id)
		}
	}
}

func (c *catalog) fold(name string, add bool) {
	key := strings.ToLower(name)
	if add {
		c.folds[key] = append(c.folds[key], name)
		return
	}
	rest := slices.DeleteFunc(slices.Clone(c.folds[key]), func(n string) bool { return n == name })
	if len(rest) == 0 {
		delete(c.folds, key)
		return
	}
	c.folds[key] = rest
}

// nameTaken finds the topic that name equals, exactly or but for letter case.
func (c *catalog) nameTaken(name string) (string, bool) {
	if _, ok := c.topic(name); ok {
		return name, true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if names := c.folds[strings.ToLower(name)]; len(names) > 0 {
		return names[0], true
	}
	return "", false
}

func (c *catalog) ownedBy(id string) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.owned[id]
}

// intern returns the one copy of a member id that views share. Writer only; the
// ids of a cluster are few.
func (c *catalog) intern(id string) string {
	if kept, ok := c.ids[id]; ok {
		return kept
	}
	c.ids[id] = id
	return id
}

// changes reads back what the transaction touched.
func (t *txn) changes(intern func(string) string) (changes, error) {
	ch := changes{hasUsers: t.users}
	if len(t.touched) > 0 {
		ch.topics = make(topicMap, len(t.touched))
	}
	for name := range t.touched {
		v, err := t.readView(name, intern)
		if err != nil {
			return changes{}, err
		}
		ch.topics[name] = v
	}
	if t.members {
		var err error
		if ch.members, err = readMembers(t.tx); err != nil {
			return changes{}, err
		}
		ch.hasMembers = true
	}
	return ch, nil
}

// readView builds the view of one topic, nil when it does not exist.
func (t *txn) readView(name string, intern func(string) string) (*model.TopicView, error) {
	rec, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
	if err != nil || !ok {
		return nil, err
	}
	v := newView(rec)
	err = rows(t.tx, bucketAssignments, name, func(p int, key, value []byte) error {
		return setPlacement(v, p, key, value, intern)
	})
	return v, err
}

func newView(rec model.Topic) *model.TopicView {
	rec.Role = rec.LinkRole()
	return &model.TopicView{Topic: rec, Owners: make([]string, rec.Partitions)}
}

// setPlacement enters one assignment row; a row past the partition count belongs
// to no partition and is left out (spec/http-api TG-8).
func setPlacement(v *model.TopicView, p int, key, value []byte, intern func(string) string) error {
	var a placement
	if err := json.Unmarshal(value, &a); err != nil {
		return fmt.Errorf("fsm.db: assignment %q: %w: %w", key, model.ErrCorrupt, err)
	}
	if p >= len(v.Owners) {
		return nil
	}
	v.Owners[p] = intern(a.Owner)
	if a.Target != "" {
		if v.Targets == nil {
			v.Targets = make([]string, len(v.Owners))
		}
		v.Targets[p] = intern(a.Target)
	}
	return nil
}

func readMembers(tx *bbolt.Tx) ([]model.Member, error) {
	members := []model.Member{}
	err := tx.Bucket(bucketMembers).ForEach(func(k, v []byte) error {
		var m model.Member
		if err := json.Unmarshal(v, &m); err != nil {
			return fmt.Errorf("fsm.db: member %q: %w: %w", k, model.ErrCorrupt, err)
		}
		members = append(members, m)
		return nil
	})
	return members, err
}

// readAll builds every view in one pass over two cursors that run side by side:
// topics and assignments sort alike, since 0x00 sorts below every byte of a name.
func readAll(tx *bbolt.Tx, intern func(string) string) (changes, error) {
	ch := changes{topics: topicMap{}, hasMembers: true, hasUsers: true}
	var err error
	if ch.members, err = readMembers(tx); err != nil {
		return changes{}, err
	}
	at := tx.Bucket(bucketAssignments).Cursor()
	key, value := at.First()
	err = tx.Bucket(bucketTopics).ForEach(func(k, v []byte) error {
		var rec model.Topic
		if err := json.Unmarshal(v, &rec); err != nil {
			return fmt.Errorf("fsm.db: topic %q: %w: %w", k, model.ErrCorrupt, err)
		}
		if rec.Name != string(k) || rec.Partitions < 0 || rec.Partitions > partitionsStoredMax {
			return fmt.Errorf("fsm.db: topic %q holds the record of %q with %d partitions: %w", k, rec.Name, rec.Partitions, model.ErrCorrupt)
		}
		view := newView(rec)
		ch.topics[rec.Name] = view
		for ; key != nil; key, value = at.Next() {
			topic, p, ok := splitNumbered(key)
			if order := bytes.Compare(topic, k); !ok || order < 0 {
				continue // a row that belongs to no topic
			} else if order > 0 {
				break
			}
			if err := setPlacement(view, p, key, value, intern); err != nil {
				return err
			}
		}
		return nil
	})
	return ch, err
}
