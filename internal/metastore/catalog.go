package metastore

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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
	members atomic.Pointer[[]model.Member]       // ascending by id
	names   atomic.Pointer[nameIndex]
	domains [domainCount]atomic.Uint64 // moves after a change of the domain is visible

	schemaBytes atomic.Int64 // what all schema versions add up to

	mu    sync.RWMutex        // guards folds, owned and stubs
	folds map[string][]string // lower-cased name -> the names that fold to it
	owned map[string]int      // member id -> partitions it owns
	stubs map[string]struct{} // names of remote children

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
	topics      topicMap
	members     []model.Member
	moved       [domainCount]bool // domains that changed
	schemaBytes int64             // what all schema versions add up to, afterwards
}

func newCatalog() *catalog {
	c := &catalog{
		seed: maphash.MakeSeed(), folds: map[string][]string{}, owned: map[string]int{}, stubs: map[string]struct{}{},
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
	version := c.domains[DomainTopics].Load()
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
	if ch.moved[DomainMembers] {
		c.members.Store(&ch.members)
	}
	c.schemaBytes.Store(ch.schemaBytes)
	c.publishTopics(ch.topics)
	for d, moved := range ch.moved {
		if moved {
			c.domains[d].Add(1)
		}
	}
	c.notify.push(slices.Sorted(maps.Keys(ch.topics)))
}

func (c *catalog) publishTopics(topics topicMap) {
	if len(topics) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, v := range topics {
		c.replace(name, v)
	}
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
	if v != nil && v.Remote != nil {
		c.stubs[name] = struct{}{}
	} else {
		delete(c.stubs, name)
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
	key := foldName(name)
	if add {
		c.folds[key] = append(slices.Clip(c.folds[key]), name)
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
	if names := c.foldsOf(foldName(name)); len(names) > 0 {
		return names[0], true
	}
	return "", false
}

// foldsOf is the names that fold to key; the slice is never written.
func (c *catalog) foldsOf(key string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.folds[key]
}

// stubNames is the names of the remote children, copied: they are few.
func (c *catalog) stubNames() map[string]struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.stubs)
}

// foldName maps A-Z to a-z and nothing else: names are ASCII, and every node must
// fold alike whatever its release knows of other letters.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, name)
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
