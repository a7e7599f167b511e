// Package ledger judges a run of the real binary by what its clients were told: the
// oracles O1 (no loss), O2 (no invention), O3 (acks stick), O4 (one lease) and O5 (an
// offset is never used twice) of the reliability specification, and that nothing is
// stored twice without a fault that explains it.
//
// A test notes every produce before it is sent and every answer it got, every delivery,
// every ack answered 204, and every fault it caused. What a client was not told is
// unknown: it may have happened or not, and is held against nobody.
package ledger

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/narad-mq/narad/client"
)

// problemsMax is how many problems are kept; a broken run has thousands.
const problemsMax = 20

// Windows are what a fault may cost, and when.
type Windows struct {
	// Ack: an ack that was answered this long before its partition's owner died may be
	// forgotten.
	Ack time.Duration
	// Copy: a message sent from this long before a fault until this long after its end
	// may be stored twice; 0 = the ledger does not judge copies.
	Copy time.Duration
	// Lease: a message that was handed out is handed out to nobody else for this long,
	// unless something happened to its partition's owner; 0 = the ledger does not judge
	// leases.
	Lease time.Duration
}

// Fault is something a test did to one node, or to all.
type Fault struct {
	Kind  string
	Node  string    // "" = any, or not one node's
	Start time.Time // at the latest when the fault began to be felt
	End   time.Time // zero while it lasts
	// Kills: the fault ends processes, so that owners forget what they held in memory.
	Kills bool
}

// entry is what the ledger knows of one message.
type entry struct {
	size      int       // of its body
	sent      time.Time // when its produce was about to be sent
	answered  time.Time // when the answer was noted; zero = none yet
	accepted  bool      // answered 202
	refused   bool      // answered, for certain, that it was not stored
	delivered int
	copies    int    // places it was delivered from
	acked     bool   // one of its stored copies was acked with 204
	perhaps   bool   // an ack got no answer: it may have been applied
	steps     []step // deliveries and acks, for the check of histories
}

// Place names one stored copy of a message. A produce without an answer, or a dispatch
// that a crash interrupted, may store two; each has its own lease and its own ack.
type Place struct {
	Partition int
	Offset    int64
}

// stored is what was seen of one copy.
type stored struct {
	id    string
	taken time.Time // when the consume that brought it last was sent
	sent  time.Time // when the ack that got a 204 was sent
	acked time.Time // when that 204 was noted; zero = never
}

// Ledger records every answer the clients of one topic got. Safe for concurrent use.
type Ledger struct {
	windows Windows

	mu       sync.Mutex // guards everything below
	messages map[string]*entry
	copies   map[Place]*stored
	owners   map[int]string // by partition; none = any node's fault counts
	faults   []*Fault
	problems []string
	late     int // redeliveries after an ack, inside the promised window
}

// New makes an empty ledger.
func New(w Windows) *Ledger {
	return &Ledger{windows: w, messages: map[string]*entry{}, copies: map[Place]*stored{}, owners: map[int]string{}}
}

// Owns tells which node's death may cost the partition its acks.
func (l *Ledger) Owns(partition int, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners[partition] = node
}

// Sending notes that a produce of id is about to be sent: from here on it may exist.
// It returns the payload, with a body of this size in bytes.
func (l *Ledger) Sending(id string, size int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[id] = &entry{size: size, sent: time.Now()}
	return Payload(id, size)
}

// Answered notes how the produce of ids ended.
func (l *Ledger) Answered(err error, ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, id := range ids {
		e := l.messages[id]
		e.answered, e.accepted, e.refused = now, err == nil, err != nil && !client.Uncertain(err)
	}
}

// Killed notes that the only node is surely dead at this time.
func (l *Ledger) Killed(at time.Time) {
	l.Begin(Fault{Kind: "kill", Start: at, End: at, Kills: true})
}

// Begin notes a fault; the returned function notes its end. A fault that kills is noted
// once its processes are surely dead.
func (l *Ledger) Begin(f Fault) (end func(at time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, &f)
	return func(at time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.End = at
	}
}

// Deliver judges one delivery. began is when the consume that brought it was sent. It
// returns the message's id, "" if it is none of ours.
func (l *Ledger) Deliver(d client.Delivery, began time.Time) (id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var m Message
	if err := json.Unmarshal(d.Payload, &m); err != nil {
		l.problem("O2: delivered bytes are no message of ours: %.100q", d.Payload)
		return ""
	}
	e := l.messages[m.ID]
	switch {
	case e == nil:
		l.problem("O2: delivered %.100s, which was never produced", m.ID)
		return ""
	case m.Body != Body(m.ID, e.size):
		l.problem("O2: delivered %s with %d bytes of body that are not its own %d", m.ID, len(m.Body), e.size)
		return ""
	case e.refused:
		l.problem("O2: delivered %s, whose produce was refused", m.ID)
	}
	e.delivered++
	excused := false // it may have been acked before
	at := Place{d.Partition, d.Offset}
	c := l.copies[at]
	switch {
	case c == nil:
		l.copies[at] = &stored{id: m.ID, taken: began}
		e.copies++
		excused = e.copies > 1
		if e.copies > 1 && l.windows.Copy > 0 && !l.repeatable(e) {
			excused = false
			l.problem("%s is stored %d times, no fault within %v of its produce", m.ID, e.copies, l.windows.Copy)
		}
	case c.id != m.ID:
		l.problem("O5: partition %d offset %d held %s and now holds %s", d.Partition, d.Offset, c.id, m.ID)
	case !c.acked.IsZero() && began.After(c.acked) && l.forgivable(c, d.Partition):
		l.late++
		excused = true
	case !c.acked.IsZero() && began.After(c.acked):
		l.problem("O3: %s at partition %d offset %d delivered again %v after its ack, no crash of its owner within %v of it",
			m.ID, d.Partition, d.Offset, began.Sub(c.acked), l.windows.Ack)
	}
	if c != nil {
		excused = excused || c.acked.IsZero() && e.copies > 1
		l.judgeLease(c, d.Partition)
		c.taken = began
	}
	what := delivered
	if excused {
		what = repeated
	}
	e.steps = append(e.steps, step{what, began, time.Now()})
	return m.ID
}

// judgeLease: the lease before this delivery was granted when its consume was sent, at
// the earliest.
func (l *Ledger) judgeLease(c *stored, partition int) {
	held := time.Since(c.taken)
	if held >= l.windows.Lease || !c.acked.IsZero() {
		return
	}
	owner := l.owners[partition]
	for _, f := range l.faults {
		if (owner == "" || f.Node == "" || f.Node == owner) && (f.End.IsZero() || f.End.After(c.taken)) {
			return
		}
	}
	l.problem("O4: %s of partition %d was handed out again after %v, within its lease of %v", c.id, partition, held, l.windows.Lease)
}

// forgivable reports whether the owner died while the ack was under way or within the
// window after it.
func (l *Ledger) forgivable(c *stored, partition int) bool {
	owner := l.owners[partition]
	for _, f := range l.faults {
		if f.Kills && (owner == "" || f.Node == "" || f.Node == owner) && f.Start.After(c.sent) && f.Start.Sub(c.acked) <= l.windows.Ack {
			return true
		}
	}
	return false
}

// repeatable reports whether a fault may have had the message stored twice.
func (l *Ledger) repeatable(e *entry) bool {
	for _, f := range l.faults {
		if e.sent.After(f.Start.Add(-l.windows.Copy)) && (f.End.IsZero() || e.sent.Before(f.End.Add(l.windows.Copy))) {
			return true
		}
	}
	return false
}

// Acked notes that the ack of d, sent at the given time, was answered 204.
func (l *Ledger) Acked(id string, d client.Delivery, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.messages[id]
	e.acked = true
	e.steps = append(e.steps, step{acked, sent, time.Now()})
	if c := l.copies[Place{d.Partition, d.Offset}]; c != nil {
		c.sent, c.acked = sent, time.Now()
	}
}

// AckFailed notes that an ack of id ended with this error: what is not told to be unacked
// may be acked, and need not come again.
func (l *Ledger) AckFailed(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if client.Uncertain(err) {
		l.messages[id].perhaps = true
	}
}

func (l *Ledger) problem(format string, args ...any) {
	if len(l.problems) < problemsMax {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// Problem adds what a test itself found wrong.
func (l *Ledger) Problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem(format, args...)
}

// Problems are the verdicts so far; a run with any has failed.
func (l *Ledger) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.problems...)
}

// Undelivered are accepted messages nobody was given yet.
func (l *Ledger) Undelivered() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.messages {
		if e.accepted && e.delivered == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Unacked counts accepted messages without an acked delivery, those aside that may have
// been acked.
func (l *Ledger) Unacked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.messages {
		if e.accepted && !e.acked && !e.perhaps {
			n++
		}
	}
	return n
}

// Counts are the sums of a ledger.
type Counts struct {
	Sent, Accepted, Delivered, Acked int
	Repeated                         int // stored copies beyond the first of each message
	Late                             int // redeliveries after an ack that a fault explains
}

// Counts sums the ledger up for the report.
func (l *Ledger) Counts() (c Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Late = l.late
	for _, e := range l.messages {
		c.Sent++
		c.Delivered += e.delivered
		c.Repeated += max(0, e.copies-1)
		if e.accepted {
			c.Accepted++
		}
		if e.acked {
			c.Acked++
		}
	}
	return c
}
