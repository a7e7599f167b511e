package ingress

import "time"

// place decides about a record that was just read, fresh or from the file: it is
// held for a destination, discarded, or left in the WAL
// (spec/storage-and-produce section 16.3). A fresh record's seq is the frontier;
// a scanned one was skipped before.
func (s *scheduler) place(it item, scanned bool, now time.Time) {
	t := s.topic(it.rec.topic)
	home := s.lane(t, it.rec.partition)
	if !scanned && home.skipped > 0 {
		s.skip(it, home, now) // an earlier record of the lane is still in the WAL
		return
	}
	alive, v := s.lawful(t, it.rec.Incarnation, now)
	switch {
	case alive:
	case v == gone:
		s.discard(it, home, scanned, nil)
		return
	default:
		home.block(now.Add(unconfirmedFor))
		s.skip(it, home, now)
		return
	}
	if it.rec.Incarnation != "" && int(it.rec.partition) >= t.view.Partitions {
		home.block(now.Add(rescanBackstop)) // partitions never shrink: the local view is behind
		s.skip(it, home, now)
		return
	}
	to := s.target(home, now)
	if to == nil || !s.fits(to, home, scanned, now) {
		s.skip(it, home, now)
		return
	}
	s.hold(it, home, to, scanned, now)
}

// target is the destination that takes the records of home now; nil = none. A
// partition outside the topic's range, which only a record without an id may
// have, is taken modulo the count.
func (s *scheduler) target(home *destination, now time.Time) *destination {
	t := home.topic
	count := t.view.Partitions
	if count < 1 {
		return nil
	}
	if int(home.partition) >= count {
		home = s.lane(t, home.partition%int32(count))
	}
	if !home.rerouting(now) || home.wantsProbe(len(home.queue), now) {
		return home
	}
	if to := s.rerouted(home, now); to != nil {
		return to
	}
	return home
}

// rerouted returns where the records of a rerouting destination go, nil when no
// partition of the topic can take them. The choice holds for one instant.
func (s *scheduler) rerouted(from *destination, now time.Time) *destination {
	if from.routeAt.Equal(now) {
		return from.route
	}
	from.routeAt, from.route = now, nil
	t := from.topic
	p, ok := rerouteChoice(int(from.partition), t.view.Partitions, func(p int) bool {
		if p < len(t.destinations) && t.destinations[p] != nil {
			if st := t.destinations[p].state(); st == failing || st == hung {
				return false
			}
		}
		_, _, alive, err := s.where.Owner(t.name, p)
		return err == nil && alive
	})
	if ok {
		from.route = s.lane(t, int32(p))
	}
	return from.route
}

// fits reports whether to may queue one more record of home.
func (s *scheduler) fits(to, home *destination, scanned bool, now time.Time) bool {
	free := to.takes(len(to.queue), queueCap(s.destinations()), now)
	if s.load.bytes > heldBytesMax && (len(to.queue) > 0 || to.flight != nil) {
		free = false
	}
	if to != home && !scanned && to.skipped > 0 {
		free = false
	}
	if !free && to != home {
		to.wanted = true
	}
	return free
}

// hold queues a record.
func (s *scheduler) hold(it item, home, to *destination, scanned bool, now time.Time) {
	if scanned {
		s.unpark(home)
	}
	s.track.setHeld(it.seq)
	s.load.records++
	s.load.bytes += it.rec.memory()
	if len(to.queue) == 0 {
		to.queuedAt, to.placedView = now, to.topic.view
	} else if to.placedView != to.topic.view {
		to.placedView = nil // checked against different views: check again before leaving
	}
	to.queue = append(to.queue, it)
	if to.rerouteSource(home) {
		s.note.rerouted(home, to, now)
	}
	s.schedule(to)
}

// rerouteSource reports whether records of home reach d by a reroute: neither d
// is home, nor the place of a partition number outside the topic's range.
func (d *destination) rerouteSource(home *destination) bool {
	return d != home && int(home.partition) < home.topic.view.Partitions
}

// skip leaves a record in the WAL. A scanned one stays there, and its lane takes
// no further part in this pass.
func (s *scheduler) skip(it item, home *destination, now time.Time) {
	if it.seq < s.track.frontier && s.track.state(it.seq) >= laneBase {
		s.scan.closeLane(home)
		return
	}
	s.track.setSkipped(it.seq, home.lane)
	it.rec.release()
	home.skipped++
	if home.skipped == 1 {
		home.parkedPos = len(s.parked)
		s.parked = append(s.parked, home)
	}
	s.scan.due(now.Add(rescanBackstop))
}

// unpark notes that one record of the lane is in the WAL no more.
func (s *scheduler) unpark(home *destination) {
	home.skipped--
	if home.skipped > 0 {
		return
	}
	s.scan.closeLane(home)
	last := len(s.parked) - 1
	moved := s.parked[last]
	s.parked[home.parkedPos], moved.parkedPos = moved, home.parkedPos
	s.parked[last] = nil
	s.parked = s.parked[:last]
}

// unhold gives a held record's share of the load back.
func (s *scheduler) unhold(it item, fromHung bool) {
	if !fromHung {
		s.load.records--
	}
	s.load.bytes -= it.rec.memory()
}

// discard drops a record whose topic the leader confirmed gone
// (spec/storage-and-produce section 19). cause is the failed commit's error.
func (s *scheduler) discard(it item, home *destination, scanned bool, cause error) {
	if scanned {
		s.unpark(home)
	}
	s.track.setDone(it.seq)
	s.note.discarded(it, home.topic.view != nil, cause)
	it.rec.release()
}

// apply does what a transition of d asked for.
func (s *scheduler) apply(d *destination, act action, now time.Time) {
	if act&returnQueue != 0 {
		keep := 0
		if act&keepProbe != 0 {
			keep = min(1, len(d.queue))
		}
		for _, it := range d.queue[keep:] {
			s.unhold(it, false)
			s.skip(it, s.home(it), now)
		}
		clear(d.queue[keep:])
		d.queue = d.queue[:keep]
	}
	if act&rescan != 0 && (d.skipped > 0 || d.wanted) {
		d.wanted = false
		s.scan.want(now)
	}
	s.schedule(d)
}

// schedule puts d where it belongs after its queue, flight or health changed.
func (s *scheduler) schedule(d *destination) {
	if d.flight != nil || d.crowded || len(d.queue) == 0 {
		if d.heap != nil {
			d.heap.drop(d)
		}
		return
	}
	switch d.state() {
	case unresolved:
		s.waiting.set(d, d.lookAt)
	case failing:
		s.waiting.set(d, later(d.retryAt, d.lookAt))
	default:
		var latency time.Duration
		if d.owner != nil {
			latency = d.owner.latency
		}
		s.lingering.set(d, later(lingerUntil(d.queuedAt, len(d.queue), latency, false), d.blockedUntil))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
