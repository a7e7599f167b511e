package metastore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// A write through a follower is visible there when it is answered, and everywhere
// soon after.
func TestClusterWriteOnAFollowerIsVisibleThereAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	i := c.follower()
	for n := range 20 {
		name := fmt.Sprintf("t%02d", n)
		c.propose(i, linked(name, idA, schema(1), nil))
		if v, ok := c.nodes[i].store.Topic(name); !ok || v.SchemaVersion != 1 {
			t.Fatalf("%s is %+v right after its create was answered", name, v)
		}
	}
	if _, err := c.nodes[i].store.Propose(context.Background(), linked("t00", idB, nil, nil)); !errors.Is(err, model.ErrTopicExists) {
		t.Errorf("a refusal came back as %v", err)
	}
	c.converge()
}

// A node started join-only bootstraps nothing, is staged, catches up and votes.
func TestClusterGrows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.propose(0, create("before"))
	i := c.grow()
	s := c.start(i, func(o *Options) { o.Join = true })
	if len(s.Servers()) != 0 || s.CaughtUp() {
		t.Errorf("a joiner made itself a cluster: %v", s.Servers())
	}
	if _, err := s.Assignment("before", 0); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("ownership before the first catch-up: %v", err)
	}
	c.admit(i)
	if a, err := s.Assignment("before", 0); err != nil || a.Owner != "narad-0" {
		t.Errorf("ownership after it: %+v, %v", a, err)
	}
	narad.Eventually(t, clusterWait, func() bool { servers := s.Servers(); return len(servers) == 2 && servers[1].Voter }, "the vote to be seen there")
	c.converge()
}
