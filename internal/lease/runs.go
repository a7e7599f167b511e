package lease

import (
	"math"
	"slices"
	"sort"

	"github.com/narad-mq/narad/internal/model"
)

// runs is a set of offsets as ascending, non-adjacent runs. It is consumed from
// the front, so the first live run is found by index instead of being moved there.
type runs struct {
	buf  []model.Run
	head int   // buf[:head] is free
	size int64 // offsets in the set
}

func (s *runs) live() []model.Run { return s.buf[s.head:] }

// append adds a run above all others.
func (s *runs) append(r model.Run) {
	s.buf = append(s.buf, r)
	s.size += r.End - r.Start
}

// after is the index in live of the first run that starts above offset.
func (s *runs) after(offset int64) int {
	live := s.live()
	return sort.Search(len(live), func(i int) bool { return live[i].Start > offset })
}

// skip returns the first offset from x on that is not in the set.
func (s *runs) skip(x int64) int64 {
	live := s.live()
	if len(live) == 0 || live[len(live)-1].End <= x || x < live[0].Start {
		return x
	}
	if i := s.after(x); i > 0 && live[i-1].End > x {
		return live[i-1].End
	}
	return x
}

// next is where the first run above x starts, MaxInt64 if there is none.
func (s *runs) next(x int64) int64 {
	if i := s.after(x); i < len(s.live()) {
		return s.live()[i].Start
	}
	return math.MaxInt64
}

// within counts the offsets of the set in [from, to).
func (s *runs) within(from, to int64) (n int64) {
	live := s.live()
	for i := len(live) - 1; i >= 0 && live[i].End > from; i-- {
		n += max(0, min(live[i].End, to)-max(live[i].Start, from))
	}
	return n
}

// add puts in an offset that is not in the set.
func (s *runs) add(offset int64) { s.addRun(model.Run{Start: offset, End: offset + 1}) }

// addRun puts in a run that shares no offset with the set.
func (s *runs) addRun(r model.Run) {
	s.size += r.End - r.Start
	i := s.after(r.Start)
	live := s.live()
	joinsPrev := i > 0 && live[i-1].End == r.Start
	joinsNext := i < len(live) && live[i].Start == r.End
	switch {
	case joinsPrev && joinsNext:
		live[i-1].End = live[i].End
		s.remove(i)
	case joinsPrev:
		live[i-1].End = r.End
	case joinsNext:
		live[i].Start = r.Start
	default:
		s.insert(i, r)
	}
}

// insert makes r the i-th live run, moving the shorter side when there is room
// for it, and never growing the buffer while there is room at its front.
func (s *runs) insert(i int, r model.Run) {
	live := s.live()
	if s.head > 0 && (i < len(live)/2 || len(s.buf) == cap(s.buf)) {
		s.head--
		copy(s.buf[s.head:], live[:i])
		s.buf[s.head+i] = r
		return
	}
	s.buf = slices.Insert(s.buf, s.head+i, r)
}

// remove takes out the i-th live run, moving the shorter side.
func (s *runs) remove(i int) {
	live := s.live()
	if i < len(live)/2 {
		copy(live[1:], live[:i])
		s.head++
		return
	}
	s.buf = slices.Delete(s.buf, s.head+i, s.head+i+1)
}

// trim takes out every offset below x.
func (s *runs) trim(x int64) {
	for s.head < len(s.buf) && s.buf[s.head].Start < x {
		r := &s.buf[s.head]
		if r.End > x {
			s.size -= x - r.Start
			r.Start = x
			return
		}
		s.size -= r.End - r.Start
		s.head++
	}
	if s.head == len(s.buf) {
		s.buf, s.head = s.buf[:0], 0
	}
}

// shrink gives back room that is well above what the live runs need.
func (s *runs) shrink() {
	if cap(s.buf) > 2*len(s.live())+keptEntries {
		s.buf, s.head = slices.Clone(s.live()), 0
	}
}
