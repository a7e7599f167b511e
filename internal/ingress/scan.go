package ingress

import "time"

// scan is a pass over the records left in the WAL, in seq order, that ends as
// soon as no lane is left it could place for (spec/storage-and-produce section
// 16.3). A lane takes part while its pass number is the current one.
type scan struct {
	active    bool
	pass      uint32
	open      int // lanes that take part
	next, end uint64
	at        time.Time // when the next pass starts; zero = nothing to look for
}

// want asks for a pass as soon as possible.
func (c *scan) want(now time.Time) { c.due(now) }

// due asks for a pass at the given time, unless one is asked for earlier.
func (c *scan) due(at time.Time) {
	if c.at.IsZero() || at.Before(c.at) {
		c.at = at
	}
}

// closeLane takes a lane out of the running pass.
func (c *scan) closeLane(d *destination) {
	if c.active && d.pass == c.pass {
		d.pass = 0
		c.open--
	}
}

// nextScan returns the next record left in the WAL that could be placed now, and
// starts or ends a pass as it is due.
func (s *scheduler) nextScan(now time.Time) (seq uint64, ok bool) {
	c := &s.scan
	if !c.active && !s.startScan(now) {
		return 0, false
	}
	if c.open > 0 {
		seq, ok = s.track.nextSkipped(c.next, c.end, func(lane uint32) bool {
			return s.lanes[lane].pass == c.pass
		})
	}
	if !ok {
		c.active = false
		if len(s.parked) > 0 {
			c.due(now.Add(rescanBackstop))
		}
		return 0, false
	}
	c.next = seq + 1
	return seq, true
}

func (s *scheduler) startScan(now time.Time) bool {
	c := &s.scan
	if c.at.IsZero() || now.Before(c.at) {
		return false
	}
	c.at = time.Time{}
	if len(s.parked) == 0 {
		return false
	}
	c.pass++
	if c.pass == 0 {
		c.pass = 1
	}
	c.active, c.open = true, 0
	c.next, c.end = s.track.base, s.track.frontier
	for _, d := range s.parked {
		if s.placeable(d, now) {
			d.pass = c.pass
			c.open++
		}
	}
	return true
}

// placeable reports whether a record left on the lane might find a place now.
func (s *scheduler) placeable(d *destination, now time.Time) bool {
	if now.Before(d.blockedUntil) {
		return false
	}
	s.refresh(d.topic)
	if d.topic.view == nil {
		return true // to be confirmed or discarded, whatever the destination's state
	}
	if d.isHung {
		s.lookUp(d, now) // its owner may have died meanwhile
	}
	to := s.target(d, now)
	return to != nil && s.fits(to, d, true, now)
}

// lookUp asks for the owner of d and lets its state follow the answer.
func (s *scheduler) lookUp(d *destination, now time.Time) Owner {
	to, node, alive, err := s.where.Owner(d.topic.name, int(d.partition))
	if err != nil || to == nil {
		if d.isHung {
			return nil // a commit is under way: the owner is not in question
		}
		s.apply(d, d.unowned(now), now)
		return nil
	}
	d.owner = s.ownerOf(node)
	s.apply(d, d.owned(alive, now), now)
	return to
}
