// Package crash drives the real binary through crashes and judges what it did by a
// ledger of what clients were told: the oracles O1 (no loss), O2 (no invention), O3
// (acks stick) and O5 (an offset is never used twice) of the reliability specification.
package crash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/narad-mq/narad/client"
)

// message is what the tests produce: an id and a body that follows from it, so that a
// delivered body proves which message it is, and that all of it is there.
type message struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

// bodyMin is the body of a message whose size does not matter.
const bodyMin = 65

func newMessage(id string, size int) []byte {
	return []byte(`{"id":"` + id + `","body":"` + bodyOf(id, size) + `"}`)
}

// bodyOf repeats a hash of the id. The period, 65 bytes, divides no sector or page, so
// that a piece in the wrong place shows.
func bodyOf(id string, size int) string {
	sum := sha256.Sum256([]byte(id))
	period := hex.EncodeToString(sum[:]) + "-"
	return strings.Repeat(period, size/len(period)+1)[:size]
}

// entry is what the ledger knows of one message.
type entry struct {
	size      int  // of its body
	accepted  bool // answered 202
	refused   bool // answered, for certain, that it was not stored
	delivered int
	acked     bool // one of its stored copies was acked with 204
}

// place names one stored copy of a message. A produce without an answer, or a dispatch
// that a crash interrupted, may store two; each has its own lease and its own ack.
type place struct {
	partition int
	offset    int64
}

// stored is what was seen of one copy.
type stored struct {
	id    string
	sent  time.Time // when the ack that got a 204 was sent
	acked time.Time // when that 204 was noted; zero = never
}

// ledger records every answer clients got. Safe for concurrent use.
type ledger struct {
	mu       sync.Mutex // guards everything below
	messages map[string]*entry
	copies   map[place]*stored
	faults   []time.Time // when the node was surely dead
	problems []string
	late     int // redeliveries after an ack, inside the promised window
}

func newLedger() *ledger { return &ledger{messages: map[string]*entry{}, copies: map[place]*stored{}} }

// sending notes that a produce of id is about to be sent: from here on it may exist.
// It returns the payload, with a body of this size.
func (l *ledger) sending(id string, size int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[id] = &entry{size: size}
	return newMessage(id, size)
}

// answered notes how the produce of ids ended.
func (l *ledger) answered(err error, ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.messages[id].accepted = err == nil
		l.messages[id].refused = err != nil && !client.Uncertain(err)
	}
}

func (l *ledger) killed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, at)
}

// deliver judges one delivery. began is when the consume that brought it was sent;
// window is how long before a kill an ack may be forgotten. It returns the message's
// id, "" if it is none of ours.
func (l *ledger) deliver(d client.Delivery, began time.Time, window time.Duration) (id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var m message
	if err := json.Unmarshal(d.Payload, &m); err != nil {
		l.problem("O2: delivered bytes are no message of ours: %.100q", d.Payload)
		return ""
	}
	e := l.messages[m.ID]
	switch {
	case e == nil:
		l.problem("O2: delivered %.100s, which was never produced", m.ID)
		return ""
	case m.Body != bodyOf(m.ID, e.size):
		l.problem("O2: delivered %s with %d bytes of body that are not its own %d", m.ID, len(m.Body), e.size)
		return ""
	case e.refused:
		l.problem("O2: delivered %s, whose produce was refused", m.ID)
	}
	e.delivered++
	at := place{d.Partition, d.Offset}
	c := l.copies[at]
	switch {
	case c == nil:
		l.copies[at] = &stored{id: m.ID}
	case c.id != m.ID:
		l.problem("O5: partition %d offset %d held %s and now holds %s", d.Partition, d.Offset, c.id, m.ID)
	case !c.acked.IsZero() && began.After(c.acked) && l.forgivable(c, window):
		l.late++
	case !c.acked.IsZero() && began.After(c.acked):
		l.problem("O3: %s at partition %d offset %d delivered again %v after its ack, no crash within %v of it",
			m.ID, d.Partition, d.Offset, began.Sub(c.acked), window)
	}
	return m.ID
}

// forgivable reports whether a kill came while the ack was under way or within window
// after it.
func (l *ledger) forgivable(c *stored, window time.Duration) bool {
	for _, f := range l.faults {
		if f.After(c.sent) && f.Sub(c.acked) <= window {
			return true
		}
	}
	return false
}

// acked notes that the ack of d, sent at the given time, was answered 204.
func (l *ledger) acked(id string, d client.Delivery, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[id].acked = true
	if c := l.copies[place{d.Partition, d.Offset}]; c != nil {
		c.sent, c.acked = sent, time.Now()
	}
}

func (l *ledger) problem(format string, args ...any) {
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// undelivered are accepted messages nobody was given yet.
func (l *ledger) undelivered() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.messages {
		if e.accepted && e.delivered == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// unacked are accepted messages without an acked delivery.
func (l *ledger) unacked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.messages {
		if e.accepted && !e.acked {
			n++
		}
	}
	return n
}

// counts sums the ledger up for the report.
func (l *ledger) counts() (sent, accepted, delivered, acked, late int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.messages {
		sent++
		delivered += e.delivered
		if e.accepted {
			accepted++
		}
		if e.acked {
			acked++
		}
	}
	return sent, accepted, delivered, acked, l.late
}
