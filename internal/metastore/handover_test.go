package metastore

import (
	"context"
	"errors"
	"testing"
	"time"
)

var errNotYet = errors.New("not yet")

// TestHandOverSkipsTheDead: leadership is handed to a voter that answers, whichever of the
// others is gone. Raft by itself would wait for one of these, and leave an election.
func TestHandOverSkipsTheDead(t *testing.T) {
	for _, first := range []bool{true, false} {
		c := newCluster(t, 3, func(_ int, o *Options) { o.Tune = nil }) // the library's timeouts, as in production
		leader := c.waitLeader()
		others := []int{(leader + 1) % 3, (leader + 2) % 3}
		if (others[0] < others[1]) != first {
			others[0], others[1] = others[1], others[0]
		}
		gone, heir := others[0], others[1]
		s := c.nodes[leader].store
		c.eventually(func() error { return s.Writable() }, "the leader takes writes")
		c.kill(gone)
		dead := Server{ID: c.nodes[gone].id, Addr: c.addr(gone), Voter: true}
		c.eventually(func() error {
			if s.Answered(dead, time.Now().Add(-answeredLately)) {
				return errNotYet
			}
			return nil
		}, "the dead one answers no more")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := s.TransferLeadership(ctx)
		cancel()
		if err != nil {
			t.Errorf("with node %d gone: %v", gone, err)
			continue
		}
		c.eventually(func() error {
			if id, _ := s.Leader(); id != c.nodes[heir].id {
				return errNotYet
			}
			return nil
		}, "the other one leads")
	}
}
