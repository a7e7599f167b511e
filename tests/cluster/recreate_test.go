package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// reborn is the name that is deleted and made again.
const reborn = "reborn"

// briefly is added to the number of a life nobody consumes.
const briefly = 10_000

// lives is what is known of the topic's lives: every message names the one it was
// accepted in.
type lives struct {
	mu       sync.Mutex      // guards all below
	living   map[string]bool // accepted in the life that is on, and not delivered yet
	bad      []string
	past     int // messages of lives that are over, delivered or not
	received int
}

// lifeOf is the life a message belongs to.
func lifeOf(id string) (n int) {
	if _, err := fmt.Sscanf(id, "life-%d-", &n); err != nil {
		return -1
	}
	return n
}

// took judges one delivery to a consume that began while life n was the topic's.
func (p *lives) took(d client.Delivery, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var m ledger.Message
	if err := json.Unmarshal(d.Payload, &m); err != nil || m.Body != ledger.Body(m.ID, ledger.BodyMin) {
		p.bad = append(p.bad, fmt.Sprintf("O2: no message of ours: %.100q", d.Payload))
		return
	}
	p.received++
	if of := lifeOf(m.ID); of != n {
		p.bad = append(p.bad, fmt.Sprintf("C11: life %d was handed %s, of life %d", n, m.ID, of))
	}
	delete(p.living, m.ID)
}

func (p *lives) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.living)
}

// sendLife produces until n messages of the life were accepted through random nodes.
func (c *cluster) sendLife(p *lives, life, n int) {
	c.t.Helper()
	nodes := c.living()
	clients := map[*node]*client.Client{}
	for i := 0; n > 0; i++ {
		at := nodes[c.rng.IntN(len(nodes))]
		if clients[at] == nil {
			clients[at] = at.client()
		}
		id := fmt.Sprintf("life-%d-%d", life, i)
		err := clients[at].Produce(c.t.Context(), reborn, client.Message{Payload: ledger.Payload(id, ledger.BodyMin), Key: []byte(id)})
		if err != nil {
			c.t.Fatalf("life %d: produce through %s: %v", life, at.ID, err)
		}
		p.mu.Lock()
		p.living[id] = true
		p.mu.Unlock()
		n--
	}
}

// takeLife consumes through every node until all messages of the life have come, and
// acks some of them: positions of this life must not reach into the next.
func (c *cluster) takeLife(p *lives, life int, all bool) {
	c.t.Helper()
	nodes := c.living()
	clients := make([]*client.Client, len(nodes))
	for i, n := range nodes {
		clients[i] = n.client()
	}
	deadline := time.Now().Add(patience)
	for i := 0; p.left() > 0 && time.Now().Before(deadline); i++ {
		cl := clients[i%len(clients)]
		ds, err := cl.Receive(context.Background(), reborn, client.ReceiveOptions{Wait: 200 * time.Millisecond, Max: 20})
		if err != nil {
			continue
		}
		for k, d := range ds {
			p.took(d, life)
			if k%3 > 0 {
				_ = cl.Ack(context.Background(), reborn, d.Handle)
			}
		}
		if !all && i > len(clients) {
			return
		}
	}
	if n := p.left(); n > 0 {
		c.t.Errorf("O1: life %d: %d accepted messages did not come", life, n)
	}
}

// F47 C11 with O1 O2 O12 O13: a topic is deleted and made again while one of its owners
// is down, killed at a random moment. No life is ever handed a message of an earlier one,
// each gets all of its own, the directory that missed the delete is set aside, and in the
// end all space comes back.
func TestF47RecreatedWhileAnOwnerIsDown(t *testing.T) {
	c := form(t, 3)
	p := &lives{living: map[string]bool{}}
	c.makeAgain("")
	missed := 0
	for life := range rounds(20, 100) {
		p.living = map[string]bool{}
		c.sendLife(p, life, 12)
		c.takeLife(p, life, life%2 == 0) // every other life ends with messages left
		p.past += 12
		victim := c.owners(reborn)[c.rng.IntN(3)]
		old := marker(victim)
		if life%3 == 0 {
			// The kill falls at a random moment of the delete and the create.
			gone := make(chan func())
			wait := time.Duration(c.rng.IntN(60)) * time.Millisecond
			victim.setUp(false)
			go func() {
				<-time.After(wait)
				gone <- c.kill(victim)
			}()
			c.makeAgain(c.topicID())
			c.revive(<-gone, victim)
		} else {
			over := c.kill(victim)
			c.makeAgain(c.topicID())
			if old != "" && marker(victim) == old {
				missed++
			}
			if life%3 == 1 { // messages of the new life meet the owner's old directory
				c.sendLife(p, briefly+life, 6)
				p.living = map[string]bool{}
				p.past += 6
				c.makeAgain(c.topicID())
			}
			c.revive(over, victim)
		}
		c.forgets(victim, old)
		if t.Failed() {
			return
		}
	}
	for _, bad := range p.bad[:min(len(p.bad), 10)] {
		t.Error(bad)
	}
	reclaimed := 0
	for _, n := range c.nodes {
		reclaimed += len(n.LogLines("removed the data of a deleted topic", reborn+".stale-"))
	}
	t.Logf("%d messages delivered, %d of lives that ended; %d directories missed their delete, %d set aside were reclaimed", p.received, p.past, missed, reclaimed)
	if p.received == 0 || missed == 0 || reclaimed == 0 {
		t.Error("the run proves little")
	}
	c.allReclaimed()
}

// marker is the id of the life whose directory the node has, "" = none.
func marker(n *node) string {
	b, err := os.ReadFile(filepath.Join(n.Dir, "topics", reborn, "incarnation"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// forgets waits until a node has nothing left of a life that is over: neither in place
// nor set aside.
func (c *cluster) forgets(n *node, old string) {
	c.t.Helper()
	if old == "" {
		return
	}
	testutil.Eventually(c.t, patience, func() bool {
		aside, err := filepath.Glob(filepath.Join(n.Dir, "topics", reborn+".stale-"+old+"*"))
		return err == nil && len(aside) == 0 && marker(n) != old
	}, n.ID+" to reclaim the life "+old)
}

// topicID is the id of the topic's present life.
func (c *cluster) topicID() (id string) {
	c.t.Helper()
	testutil.Eventually(c.t, patience, func() bool {
		id = idOf(c.living()[0].client())
		return id != ""
	}, "the topic's id")
	return id
}

// idOf is the id a node knows the topic by, "" = none. It asks no owner.
func idOf(cl *client.Client) string {
	for topic, err := range cl.Topics(context.Background()) {
		if err == nil && topic.Name == reborn {
			return topic.ID
		}
	}
	return ""
}

// makeAgain deletes the topic, unless its present life is none (""), and makes it again,
// each through a random node, until every node that is up shows the new life.
func (c *cluster) makeAgain(old string) {
	c.t.Helper()
	nodes := c.living()
	clients := make([]*client.Client, len(nodes))
	for i, n := range nodes {
		clients[i] = n.client()
	}
	any := func() *client.Client { return clients[c.rng.IntN(len(clients))] }
	if old != "" {
		testutil.Eventually(c.t, patience, func() bool {
			err := any().DeleteTopic(context.Background(), reborn)
			return err == nil || errors.Is(err, client.ErrNotFound)
		}, "the topic to be deleted")
	}
	testutil.Eventually(c.t, patience, func() bool {
		_, err := any().CreateTopic(context.Background(), client.CreateTopic{Name: reborn, VisibilityTimeoutMS: visibility.Milliseconds()})
		return err == nil || errors.Is(err, client.ErrExists)
	}, "the topic to be made again")
	var id string
	testutil.Eventually(c.t, patience, func() bool {
		for i, cl := range clients {
			is := idOf(cl)
			if is == "" || is == old || i > 0 && is != id {
				return false
			}
			id = is
		}
		return true
	}, "every node to show the new topic")
}

// allReclaimed deletes the topic for good and waits until no node holds anything of any
// of its lives: topics, quarantines, records in the WAL (O12).
func (c *cluster) allReclaimed() {
	c.t.Helper()
	if err := c.leader().client().DeleteTopic(c.t.Context(), reborn); err != nil {
		c.t.Fatal(err)
	}
	for _, n := range c.nodes { // the sweep at a start finds the rest
		c.revive(c.stop(n), n)
	}
	for _, n := range c.nodes {
		var left []string
		testutil.Eventually(c.t, patience, func() bool {
			left = nil
			entries, err := os.ReadDir(filepath.Join(n.Dir, "topics"))
			for _, e := range entries {
				left = append(left, e.Name())
			}
			return (err == nil || errors.Is(err, os.ErrNotExist)) && !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, reborn) })
		}, n.ID+" to have reclaimed the space of every life")
		testutil.Eventually(c.t, patience, func() bool {
			v, ok := n.metric("narad_ingress_dispatch_backlog_records")
			return ok && v == 0
		}, n.ID+" to drop the records of deleted topics from its WAL")
	}
}
