package ingress

import "time"

// One owner must not take every slot: a node that falls silent holds each for a second
// before it counts as hung, and it may own any number of partitions. So no more than a
// share of the slots goes to one other node, and few to one that is known to be in trouble;
// what is due beyond that waits in a crowd of its own.

// full reports whether one commit more to the owner has to wait. This node's own has no
// share: what holds it up holds up accepting too.
func (o *owner) full() bool {
	limit := ownerSlotsMax
	if o.hung > 0 || o.failing {
		limit = stuckSlotsMax
	}
	return !o.local && o.inFlight >= limit
}

// crowd has a due destination wait for its owner.
func (s *scheduler) crowd(d *destination) {
	if len(d.owner.crowd) == 0 {
		s.crowds = append(s.crowds, d.owner)
	}
	d.owner.crowd = append(d.owner.crowd, d)
	d.crowded = true
	s.schedule(d)
}

// turnNow returns a destination whose owner has room again and that is still due, those
// that came first first.
func (s *scheduler) turnNow(now time.Time) *destination {
	for i := 0; i < len(s.crowds); {
		o := s.crowds[i]
		for len(o.crowd) > 0 && !o.full() {
			d := o.crowd[0]
			o.crowd[0] = nil
			o.crowd = o.crowd[1:]
			d.crowded = false
			if s.schedule(d); d.heap != nil && !d.heapDue.After(now) {
				return d
			}
		}
		if len(o.crowd) > 0 {
			s.bury(o, now)
			i++
			continue
		}
		last := len(s.crowds) - 1
		s.crowds[i], s.crowds[last] = s.crowds[last], nil
		s.crowds = s.crowds[:last]
	}
	return nil
}

// bury has a crowd notice that membership reported its owner dead: their records go
// elsewhere now, not when their turn comes.
func (s *scheduler) bury(o *owner, now time.Time) {
	first := o.crowd[0]
	_, node, alive, err := s.where.Owner(first.topic.name, int(first.partition))
	if err != nil || node != o.node {
		return // it is asked again when its turn comes
	}
	if alive || o.buried {
		o.buried = !alive
		return
	}
	o.buried = true
	for _, d := range o.crowd {
		s.lookUp(d, now)
	}
}
