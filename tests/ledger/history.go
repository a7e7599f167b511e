package ledger

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// historyTimeout bounds the search for an order of one message's operations.
const historyTimeout = 10 * time.Second

// operation is what was done to a message.
type operation uint8

const (
	produced  operation = iota // stored, or perhaps: see step.ret
	refused                    // told, for certain, not to be stored
	delivered                  // handed out
	repeated                   // handed out although acked, which a fault explains
	acked                      // answered 204
)

// step is one operation on a message: it took effect at some moment between call and
// ret. A produce without an answer has no ret: it took effect at any moment, or never,
// which is the end of time.
type step struct {
	op        operation
	call, ret time.Time
}

// condition is what a message is in.
type condition uint8

const (
	absent condition = iota
	pending
	leased
	settled
)

// queue is the sequential queue every message's history is held against, message by
// message: absent, produced, handed out any number of times, settled by an ack.
var queue = porcupine.Model{
	Init: func() any { return absent },
	Step: func(state, input, _ any) (bool, any) {
		is := state.(condition)
		switch input.(operation) {
		case produced:
			return is == absent, pending
		case refused:
			return is == absent, is
		case delivered:
			return is == pending || is == leased, leased
		case repeated:
			return is != absent, leased
		case acked:
			return is == leased || is == settled, settled
		}
		return false, is
	},
}

// Histories searches, for each message, an order of its operations that a queue could
// have gone through while each took effect between its call and its answer. It returns
// how many messages it judged; those without such an order become problems.
func (l *Ledger) Histories() (judged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.messages {
		if e.delivered == 0 {
			continue // nothing contradicts anything
		}
		judged++
		steps := append([]step{{op: produced, call: e.sent}}, e.steps...)
		switch {
		case e.refused:
			steps[0] = step{refused, e.sent, e.answered}
		case e.accepted:
			steps[0].ret = e.answered
		}
		if verdict := porcupine.CheckOperationsTimeout(queue, operations(steps), historyTimeout); verdict != porcupine.Ok {
			l.problem("%s: no order of its operations is a queue's (%v): %s", id, verdict, tell(steps))
		}
	}
	return judged
}

func operations(steps []step) []porcupine.Operation {
	out := make([]porcupine.Operation, len(steps))
	for i, s := range steps {
		ret := int64(math.MaxInt64)
		if !s.ret.IsZero() {
			ret = s.ret.UnixNano()
		}
		out[i] = porcupine.Operation{ClientId: i, Input: s.op, Call: s.call.UnixNano(), Return: ret}
	}
	return out
}

// tell writes a history down, in times since its first call.
func tell(steps []step) (text string) {
	for _, s := range steps {
		name := [...]string{"produced", "refused", "delivered", "delivered again after a fault", "acked"}[s.op]
		from, to := s.call.Sub(steps[0].call), "?"
		if !s.ret.IsZero() {
			to = fmt.Sprint(s.ret.Sub(steps[0].call))
		}
		text += fmt.Sprintf("%s %v..%s; ", name, from, to)
	}
	return text
}
