package fanout

// Where a cursor begins is decided from what its file holds and what the child's record
// says; see decide.

// origin says how a cursor comes to its first position.
type origin uint8

const (
	resumed  origin = iota // by its own file
	anchored               // by the attach point in the child's record
	observed               // by the parent's end at the first look: a link made before attach points were recorded
)

// beginning is where a cursor begins. Unless it is resumed, nothing may be copied and
// no file written before the leader has confirmed the epoch.
type beginning struct {
	from origin
	next int64 // unset for observed
}

// decide is the table "Start of a cursor" of spec/remote-replication section A8. have
// is nil when the file is missing or damaged.
func decide(have *record, l *link, partition int) beginning {
	switch {
	case have != nil && have.epoch == l.epoch:
		return beginning{resumed, have.next}
	case l.offsets == nil:
		return beginning{from: observed}
	case partition < len(l.offsets):
		return beginning{anchored, max(l.offsets[partition], 0)}
	}
	return beginning{anchored, 0} // added after the attach: it has no history to skip
}
