package ingress

import (
	"log/slog"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// scheduler decides what happens to every record between the checkpoint and the
// frontier. It does no I/O, starts nothing and never looks at a clock: the
// dispatcher feeds it records, results and the time, and asks what to do next.
// One goroutine owns it, so it has no locks.
type scheduler struct {
	surroundings
	laneTable
	dueQueues
	track   *tracker
	confirm *confirmations
	scan    scan
	load    load
	note    *notes
	topics  map[string]*topicState
	owners  map[string]*owner

	sweepAt time.Time
	frozen  bool // a record does not decode: nothing more is read
}

// surroundings are the lookups the scheduler may make: from memory, never waiting.
type surroundings struct {
	dir   Directory
	where Placement
	node  string // this node; commits to it have no byte bound and are paced
}

// laneTable is every destination seen.
type laneTable struct {
	lanes     []*destination // by lane; nil = free
	freeLanes []uint32
	parked    []*destination // lanes with records left in the WAL
}

// dueQueues are the destinations with records queued and no commit in flight.
type dueQueues struct {
	lingering dueHeap  // ready ones
	waiting   dueHeap  // failing and unresolved ones
	crowds    []*owner // owners that due ones wait for
}

// load is what the dispatcher has in its hands.
type load struct {
	records int       // held, commits in flight included, hung ones not
	bytes   int64     // held, hung commits included
	slots   int       // commits in flight, hung ones not
	flights []*flight // in flight, hung ones included
	next    time.Time // earliest time a flight turns hung or out of budget; zero = none
	free    []*flight // landed, to be used again
}

func newScheduler(dir Directory, where Placement, node string, first uint64, m *metrics, log *slog.Logger) *scheduler {
	return &scheduler{
		surroundings: surroundings{dir: dir, where: where, node: node},
		track:        newTracker(first),
		confirm:      newConfirmations(),
		note:         newNotes(m, log),
		topics:       map[string]*topicState{},
		owners:       map[string]*owner{},
	}
}

// topic returns the state of a topic name, its view as of now.
func (s *scheduler) topic(name string) *topicState {
	t := s.topics[name]
	if t == nil {
		t = &topicState{name: name}
		t.version = s.dir.TopicsVersion()
		t.view, _ = s.dir.Topic(name)
		s.topics[name] = t
		return t
	}
	s.refresh(t)
	return t
}

// refresh re-reads the topic's view when any topic changed. The version is read
// first, so that a change between the two reads is seen next time.
func (s *scheduler) refresh(t *topicState) {
	if v := s.dir.TopicsVersion(); v != t.version {
		t.version = v
		t.view, _ = s.dir.Topic(t.name)
	}
}

// lane returns the destination a record names.
func (s *scheduler) lane(t *topicState, partition int32) *destination {
	if partition < farPartition {
		if int(partition) < len(t.destinations) {
			if d := t.destinations[partition]; d != nil {
				return d
			}
		}
	} else if d := t.far[partition]; d != nil {
		return d
	}
	return s.addLane(t, partition)
}

func (s *scheduler) addLane(t *topicState, partition int32) *destination {
	d := &destination{topic: t, partition: partition}
	if n := len(s.freeLanes); n > 0 {
		d.lane = s.freeLanes[n-1]
		s.freeLanes = s.freeLanes[:n-1]
		s.lanes[d.lane] = d
	} else {
		d.lane = uint32(len(s.lanes))
		s.lanes = append(s.lanes, d)
	}
	if partition >= farPartition {
		if t.far == nil {
			t.far = map[int32]*destination{}
		}
		t.far[partition] = d
		return d
	}
	for int(partition) >= len(t.destinations) {
		t.destinations = append(t.destinations, nil)
	}
	t.destinations[partition] = d
	return d
}

// destinations is how many the dispatcher has seen, deleted topics' forgotten.
func (s *scheduler) destinations() int { return len(s.lanes) - len(s.freeLanes) }

// home is the destination an item names.
func (s *scheduler) home(it item) *destination {
	return s.lane(s.topic(it.rec.topic), it.rec.partition)
}

// ownerOf returns what is known of a member.
func (s *scheduler) ownerOf(node string) *owner {
	o := s.owners[node]
	if o == nil {
		o = &owner{node: node, local: node == s.node}
		s.owners[node] = o
	}
	return o
}

// room reports whether another record may be held.
func (s *scheduler) room() bool { return !s.frozen && s.load.records < heldMax(s.destinations()) }

// mayRead reports whether another fresh record may be taken on.
func (s *scheduler) mayRead() bool { return s.room() && s.track.span() < lookaheadRecords }

// sweep forgets deleted topics that have no record left.
func (s *scheduler) sweep(now time.Time) {
	if now.Before(s.sweepAt) {
		return
	}
	s.sweepAt = now.Add(sweepEvery)
	for name, t := range s.topics {
		if s.refresh(t); t.view == nil && s.forget(t) {
			delete(s.topics, name)
			s.note.metrics.forget(name)
		}
	}
}

// forget frees the topic's lanes if nothing of it is left.
func (s *scheduler) forget(t *topicState) bool {
	idle := true
	each := func(f func(d *destination)) {
		for _, d := range t.destinations {
			if d != nil {
				f(d)
			}
		}
		for _, d := range t.far {
			f(d)
		}
	}
	each(func(d *destination) {
		idle = idle && d.flight == nil && len(d.queue) == 0 && d.skipped == 0
	})
	if !idle {
		return false
	}
	each(func(d *destination) {
		s.lanes[d.lane] = nil
		s.freeLanes = append(s.freeLanes, d.lane)
	})
	return true
}

// unblock lets the topic's lanes be looked at again after a confirmation.
func (s *scheduler) unblock(name string, now time.Time) {
	t := s.topics[name]
	if t == nil {
		return
	}
	for _, d := range t.destinations {
		if d != nil {
			d.block(time.Time{})
		}
	}
	for _, d := range t.far {
		d.block(time.Time{})
	}
	s.scan.want(now)
}

// answered takes the leader's answer about an identity.
func (s *scheduler) answered(k identity, isGone bool, now time.Time) {
	s.confirm.answered(k, isGone, now)
	if isGone {
		s.unblock(k.topic, now)
	}
}

// lawful is what may be done with a record as far as its incarnation goes.
func (s *scheduler) lawful(t *topicState, id model.Incarnation, now time.Time) (alive bool, v verdict) {
	if t.view != nil && !id.Differs(t.view.ID) {
		return true, wait
	}
	return false, s.confirm.verdict(identity{t.name, id}, now)
}
