package ledger

import (
	"strings"
	"testing"
	"time"
)

// at is a moment of a history.
func at(n int) time.Time { return time.Unix(1_000, 0).Add(time.Duration(n) * time.Second) }

func on(op operation, call, ret int) step { return step{op, at(call), at(ret)} }

// Histories with an order a queue could have gone through, and histories without.
func TestHistories(t *testing.T) {
	accepted := entry{sent: at(1), answered: at(2), accepted: true}
	unknown := entry{sent: at(1), answered: at(9)}
	told := entry{sent: at(1), answered: at(2), refused: true}
	for name, c := range map[string]struct {
		produce entry
		steps   []step
		good    bool
	}{
		"delivered and acked":                     {accepted, []step{on(delivered, 3, 4), on(acked, 5, 6)}, true},
		"delivered before the produce's answer":   {accepted, []step{on(delivered, 0, 2), on(acked, 2, 3)}, true},
		"delivered before it was produced":        {accepted, []step{on(delivered, -2, 0)}, false},
		"delivered twice, the first lease lapsed": {accepted, []step{on(delivered, 3, 4), on(delivered, 5, 6), on(acked, 7, 8)}, true},
		"the consume was sent before the ack":     {accepted, []step{on(delivered, 3, 4), on(acked, 5, 6), on(delivered, 4, 7)}, true},
		"delivered after the ack":                 {accepted, []step{on(delivered, 3, 4), on(acked, 5, 6), on(delivered, 7, 8)}, false},
		"delivered after the ack and a fault":     {accepted, []step{on(delivered, 3, 4), on(acked, 5, 6), on(repeated, 7, 8), on(delivered, 9, 10), on(acked, 11, 12)}, true},
		"acked before it was delivered":           {accepted, []step{on(acked, 3, 4), on(delivered, 5, 6)}, false},
		"no answer, stored":                       {unknown, []step{on(delivered, 3, 4)}, true},
		"no answer, stored late":                  {unknown, []step{on(delivered, 30, 40)}, true},
		"refused, stored":                         {told, []step{on(delivered, 3, 4)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Windows{})
			e := c.produce
			e.steps, e.delivered = c.steps, 1
			l.messages["a"] = &e
			if n := l.Histories(); n != 1 {
				t.Errorf("judged %d messages, want 1", n)
			}
			p := l.Problems()
			if c.good && len(p) > 0 || !c.good && (len(p) != 1 || !strings.Contains(p[0], "no order of its operations")) {
				t.Errorf("problems %q, want none: %v", p, c.good)
			}
		})
	}
}

// A ledger writes down what the check of histories needs: a good run passes it, and a
// delivery the ledger itself refuses does not.
func TestLedgerKeepsHistories(t *testing.T) {
	for name, again := range map[string]bool{"good": false, "delivered after its ack": true} {
		t.Run(name, func(t *testing.T) {
			s := &story{New(Windows{}), time.Now()}
			s.Sending("a", BodyMin)
			s.Answered(nil, "a")
			d := s.got("a", 0, 0)
			s.Acked("a", d, time.Now())
			if again {
				s.now = time.Now()
				s.got("a", 0, 0)
			}
			before := len(s.Problems())
			s.Histories()
			if found := len(s.Problems()) > before; found != again {
				t.Errorf("problems %q", s.Problems())
			}
		})
	}
}
