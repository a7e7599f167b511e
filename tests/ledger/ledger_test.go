package ledger

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// story is a history told to a ledger, step by step, on times of its own.
type story struct {
	*Ledger
	now time.Time
}

func newStory() *story {
	return &story{New(Windows{Ack: time.Second, Copy: 2 * time.Second}), time.Now()}
}

// sent is a produce that was answered.
func (s *story) sent(id string, err error) {
	s.Sending(id, BodyMin)
	s.messages[id].sent = s.now
	s.Answered(err, id)
}

// got is a delivery of id from a place.
func (s *story) got(id string, partition int, offset int64) client.Delivery {
	d := client.Delivery{Payload: Payload(id, BodyMin), Partition: partition, Offset: offset}
	s.Deliver(d, s.now)
	return d
}

// acked is a delivery of id whose ack was answered at once.
func (s *story) acked(id string, partition int, offset int64) {
	s.Acked(id, s.got(id, partition, offset), s.now)
	s.copies[Place{partition, offset}].acked = s.now
}

// later lets time pass.
func (s *story) later(d time.Duration) { s.now = s.now.Add(d) }

// fault is one that began d from now and lasted so long.
func (s *story) fault(node string, d, lasted time.Duration, kills bool) {
	s.Begin(Fault{Kind: "test", Node: node, Start: s.now.Add(d), Kills: kills})(s.now.Add(d + lasted))
}

// refusedProduce is a refusal that says for certain that nothing was stored,
// lostProduce an answer that never came: errors as the client makes them.
func produceErrors(t *testing.T) (refused, lost error) {
	t.Helper()
	var full atomic.Bool // until then no answer comes
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !full.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":"full","code":"too_many_in_flight"}`)
	}))
	defer srv.Close()
	produce := func() error {
		c, err := client.New(srv.URL, client.WithRetries(1))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Produce(context.Background(), "t", client.Message{Payload: []byte("1")})
	}
	lost = produce()
	full.Store(true)
	refused = produce()
	if !client.Uncertain(lost) || client.Uncertain(refused) || refused == nil {
		t.Fatalf("lost: %v; refused: %v", lost, refused)
	}
	return refused, lost
}

// A good history, with everything a fault may cost, has no problems.
func TestGoodHistory(t *testing.T) {
	refused, lost := produceErrors(t)
	s := newStory()
	s.Owns(0, "n1")
	s.sent("plain", nil)
	s.acked("plain", 0, 0)
	s.sent("unknown", lost) // stored all the same
	s.acked("unknown", 0, 1)
	s.sent("never", lost)   // not stored
	s.sent("full", refused) // not stored
	s.sent("lease", nil)    // handed out twice, acked once
	s.got("lease", 1, 0)
	s.later(time.Minute)
	s.acked("lease", 1, 0)
	s.later(time.Minute)

	s.sent("forgotten", nil) // its owner died with the ack unwritten
	s.acked("forgotten", 0, 2)
	s.fault("n1", time.Second, time.Second, true)
	s.later(time.Minute)
	s.acked("forgotten", 0, 2)

	s.later(time.Minute)
	s.sent("twice", nil) // dispatched again after the fault
	s.fault("n2", 2*time.Second-time.Millisecond, time.Second, false)
	s.acked("twice", 0, 3)
	s.acked("twice", 0, 4)
	if p := s.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
	if ids := s.Undelivered(); len(ids) > 0 {
		t.Errorf("undelivered: %v", ids)
	}
	if n := s.Unacked(); n != 0 {
		t.Errorf("%d unacked", n)
	}
	want := Counts{Sent: 7, Accepted: 4, Delivered: 8, Acked: 5, Repeated: 1, Late: 1}
	if got := s.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// Every bad history has its problem.
func TestBadHistories(t *testing.T) {
	refused, _ := produceErrors(t)
	for name, c := range map[string]struct {
		tell func(s *story)
		want string
	}{
		"foreign bytes": {func(s *story) {
			s.Deliver(client.Delivery{Payload: []byte("x")}, s.now)
		}, "O2: delivered bytes are no message"},
		"never produced": {func(s *story) { s.got("a", 0, 0) }, "O2: delivered a, which was never produced"},
		"another body": {func(s *story) {
			s.sent("a", nil)
			s.sent("b", nil)
			mixed := strings.Replace(string(Payload("a", BodyMin)), `"a"`, `"b"`, 1)
			s.Deliver(client.Delivery{Payload: []byte(mixed)}, s.now)
		}, "not its own"},
		"short body": {func(s *story) {
			s.Sending("a", 2*BodyMin)
			s.got("a", 0, 0)
		}, "not its own"},
		"refused and stored": {func(s *story) {
			s.sent("a", refused)
			s.got("a", 0, 0)
		}, "whose produce was refused"},
		"offset used twice": {func(s *story) {
			s.sent("a", nil)
			s.sent("b", nil)
			s.got("a", 0, 0)
			s.got("b", 0, 0)
		}, "O5"},
		"redelivered after an ack": {func(s *story) {
			s.sent("a", nil)
			s.acked("a", 0, 0)
			s.later(time.Millisecond)
			s.got("a", 0, 0)
		}, "O3"},
		"redelivered, another node died": {func(s *story) {
			s.Owns(0, "n1")
			s.sent("a", nil)
			s.acked("a", 0, 0)
			s.fault("n2", time.Millisecond, 0, true)
			s.later(time.Second)
			s.got("a", 0, 0)
		}, "O3"},
		"redelivered, the owner died long after": {func(s *story) {
			s.sent("a", nil)
			s.acked("a", 0, 0)
			s.fault("", time.Second+time.Millisecond, 0, true)
			s.later(time.Minute)
			s.got("a", 0, 0)
		}, "O3"},
		"redelivered, the owner died before": {func(s *story) {
			s.fault("", 0, 0, true)
			s.later(time.Millisecond)
			s.sent("a", nil)
			s.acked("a", 0, 0)
			s.later(time.Millisecond)
			s.got("a", 0, 0)
		}, "O3"},
		"redelivered, the owner was only cut off": {func(s *story) {
			s.sent("a", nil)
			s.acked("a", 0, 0)
			s.fault("", time.Millisecond, 0, false)
			s.later(time.Minute)
			s.got("a", 0, 0)
		}, "O3"},
		"stored twice without a fault": {func(s *story) {
			s.sent("a", nil)
			s.got("a", 0, 0)
			s.got("a", 0, 1)
		}, "stored 2 times"},
		"stored twice long before a fault": {func(s *story) {
			s.sent("a", nil)
			s.fault("", 2*time.Second, time.Second, true)
			s.got("a", 0, 0)
			s.got("a", 0, 1)
		}, "stored 2 times"},
		"stored twice long after a fault": {func(s *story) {
			s.fault("", 0, time.Second, true)
			s.later(3 * time.Second)
			s.sent("a", nil)
			s.got("a", 0, 0)
			s.got("a", 0, 1)
		}, "stored 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			c.tell(s)
			if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], c.want) {
				t.Errorf("problems %q, want one with %q", p, c.want)
			}
		})
	}
}

// A message is leased to one consumer at a time, unless its owner lost its memory.
func TestOneLease(t *testing.T) {
	for name, c := range map[string]struct {
		lease time.Duration
		tell  func(s *story)
		bad   bool
	}{
		"handed out twice":          {time.Hour, func(*story) {}, true},
		"not judged":                {0, func(*story) {}, false},
		"after the lease":           {time.Nanosecond, func(*story) {}, false},
		"its owner died":            {time.Hour, func(s *story) { s.fault("n1", time.Millisecond, 0, true) }, false},
		"its owner is stopped":      {time.Hour, func(s *story) { s.Begin(Fault{Node: "n1", Start: s.now}) }, false},
		"another node died":         {time.Hour, func(s *story) { s.fault("n2", time.Millisecond, 0, true) }, true},
		"its owner had died before": {time.Hour, func(s *story) { s.fault("n1", -time.Second, time.Millisecond, true) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{New(Windows{Lease: c.lease}), time.Now()}
			s.Owns(0, "n1")
			s.sent("a", nil)
			s.got("a", 0, 0)
			c.tell(s)
			s.later(time.Millisecond)
			s.got("a", 0, 0)
			if p := s.Problems(); (len(p) == 1 && strings.HasPrefix(p[0], "O4")) != c.bad || len(p) > 1 {
				t.Errorf("problems %q, want one: %v", p, c.bad)
			}
		})
	}
}

// What was accepted and never came is named.
func TestLoss(t *testing.T) {
	refused, lost := produceErrors(t)
	s := newStory()
	s.sent("lost", nil)
	s.sent("unknown", lost)
	s.sent("unacked", nil)
	s.got("unacked", 0, 0)
	if ids := s.Undelivered(); len(ids) != 1 || ids[0] != "lost" {
		t.Errorf("undelivered %v, want only lost", ids)
	}
	if n := s.Unacked(); n != 2 {
		t.Errorf("%d unacked, want 2", n)
	}
	s.AckFailed("unacked", refused)
	if n := s.Unacked(); n != 2 {
		t.Errorf("%d unacked after a refused ack, want 2", n)
	}
	s.AckFailed("unacked", lost)
	if n := s.Unacked(); n != 1 {
		t.Errorf("%d unacked after an ack without an answer, want 1", n)
	}
}

// A broken run keeps its first problems only.
func TestProblemsAreBounded(t *testing.T) {
	s := newStory()
	for i := range problemsMax + 5 {
		s.Problem("number %d", i)
	}
	if p := s.Problems(); len(p) != problemsMax {
		t.Errorf("%d problems kept, want %d", len(p), problemsMax)
	}
}
