package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// attachedAt is where a child's copy begins, by parent partition.
func (n *node) attachedAt(child string) []int64 {
	n.c.t.Helper()
	d, err := n.client().DescribeTopic(n.c.t.Context(), child)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return d.AttachOffsets
}

// from are the records at or past these offsets.
func (c contents) from(offsets []int64) (out contents) {
	for _, s := range c {
		if s.offset >= offsets[s.partition] {
			out = append(out, s)
		}
	}
	return out
}

// A2 with O7: children are attached in the middle of a load, through every node. Each gets
// what the parent has from its attach point on, exactly; the point is not past anything
// that was accepted after the attach was answered.
func TestO7AttachUnderLoad(t *testing.T) {
	c := form(t, 3)
	c.family(client.CreateTopic{Name: "p", Partitions: killParts})
	s := c.stream("p", 10*time.Millisecond, 0)
	s.flows("before", 100)
	var names []string
	later := map[string]int{} // how many were accepted when the attach was answered
	for i, n := range c.initial {
		created, attached := fmt.Sprint("created-", i), fmt.Sprint("attached-", i)
		if _, err := n.client().CreateTopic(t.Context(), client.CreateTopic{Name: created, Parent: "p"}); err != nil {
			t.Fatal(err)
		}
		later[created] = s.count()
		if _, err := n.client().CreateTopic(t.Context(), client.CreateTopic{Name: attached, Partitions: 4}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.client().Attach(t.Context(), "p", attached, 0); err != nil {
			t.Fatal(err)
		}
		later[attached] = s.count()
		names = append(names, created, attached)
		s.flows("attached", 50)
	}
	s.end()
	parent := c.dispatched("p", s.accepted)
	c.settled("p", names...)
	for i, name := range names {
		n := c.initial[i%3]
		child, at := n.contentsOf(name), n.attachedAt(name)
		judgeCopy(t, name, parent.from(at), child, 0, 0)
		has := child.times()
		for _, payload := range s.accepted[later[name]:] {
			// A batch is noted once it is answered: what was under way at the attach may be
			// noted after it, and be committed before.
			if has[payload] == 0 && !parent.before(at, payload) {
				t.Errorf("%s lacks %.60s, accepted after its attach", name, payload)
			}
		}
	}
}

// before reports whether a payload lies before these offsets.
func (c contents) before(offsets []int64, payload string) bool {
	for _, s := range c {
		if s.raw == payload && s.offset < offsets[s.partition] {
			return true
		}
	}
	return false
}

// A2: an attach whose attach point cannot be had, because an owner of the parent is dead,
// is answered 503 by every node and leaves no link; a listing meanwhile says that it is
// not complete, and topic wait does not end. With the owner back both are as they were.
func TestA2AttachNeedsEveryOwner(t *testing.T) {
	q := newQuiet(t)
	c := q.c
	q.wave()
	wide := q.attach("wide", 0)
	q.wave()
	c.settled("p", "wide")
	owner := c.owners("p")[1]
	over := c.kill(owner)
	for _, n := range c.living() {
		cl := n.client()
		_, err := cl.Attach(t.Context(), "p", "other", 0)
		var answer *client.Error
		if !errors.As(err, &answer) || answer.Status != 503 {
			t.Errorf("attach through %s without an owner: %v, want 503", n.ID, err)
		}
		list, err := cl.Children(t.Context(), "p")
		if err != nil || len(list.Children) != 1 || list.Children[0].LagComplete {
			t.Errorf("%s lists %+v, %v, want one child that is not complete", n.ID, list, err)
		}
		if n.waitLag("p", "wide", time.Second) == nil {
			t.Errorf("topic wait through %s calls a lag zero that an owner did not report", n.ID)
		}
	}
	c.revive(over, owner)
	if names := c.attached("p"); len(names) != 1 {
		t.Errorf("the parent's children are %v: an attach that was refused left a link", names)
	}
	other := q.attach("other", 0)
	q.wave()
	c.settled("p", "wide", "other")
	now := q.outside.contentsOf("p")
	q.copied("wide", since(now, wide), 0, 0)
	q.copied("other", since(now, other), 0, 0)
}

// span is a stretch of the parent's partitions.
type span struct{ from, to []int64 }

func (s span) has(r stored) bool {
	return r.offset >= s.from[r.partition] && r.offset < s.to[r.partition]
}

// ends is where each partition of a replayed topic ends.
func (c contents) ends(partitions int) []int64 {
	out := make([]int64, partitions)
	for _, s := range c {
		out[s.partition] = max(out[s.partition], s.offset+1)
	}
	return out
}

// O7: a child is detached and attached again and again, through random nodes, while
// leaders and owners are killed. It gets everything the parent has of the times it was
// attached, and nothing of the times it was not.
func TestO7ReattachUnderKills(t *testing.T) {
	c := form(t, 3, staleEnv()...)
	c.family(client.CreateTopic{Name: "p", Partitions: killParts}, client.CreateTopic{Name: "c", Partitions: killParts})
	produced := int64(0)
	var all []string
	wave := func() []int64 {
		t.Helper()
		s := c.stream("p", 5*time.Millisecond, produced)
		testutil.Eventually(t, patience, func() bool { return s.count() >= 100 }, "a wave")
		s.end()
		produced = s.next.Load()
		all = append(all, s.accepted...)
		return c.dispatched("p", all).ends(killParts)
	}
	try := func(parent string, do func(cl *client.Client) error) {
		t.Helper()
		testutil.Eventually(t, patience, func() bool {
			nodes := c.living()
			err := do(nodes[c.rng.IntN(len(nodes))].client())
			return err == nil || c.under("c", parent) // an answer may be lost
		}, fmt.Sprintf("the child to be under %q", parent))
	}
	var owed, open []span // what the child must have, and what it may have
	at := make([]int64, killParts)
	for i := range rounds(3, 12) {
		end := wave()
		if i%2 == 1 {
			c.settled("p", "c")
			owed = append(owed, span{at, end})
		} // else it is detached with records to copy: whether those come is open
		gone := c.leader()
		if i%3 == 1 {
			gone = c.owners("p")[c.rng.IntN(killParts)]
		}
		over := c.kill(gone)
		try("", func(cl *client.Client) error { return cl.Detach(context.Background(), "p", "c") })
		c.revive(over, gone)
		testutil.Eventually(t, patience, func() bool { return c.under("c", "") }, "every node to know of the detach")
		open = append(open, span{at, c.initial[0].contentsOf("p").ends(killParts)})
		wave() // while detached
		gone = c.leader()
		c.revive(c.kill(gone), gone)
		try("p", func(cl *client.Client) error {
			_, err := cl.Attach(context.Background(), "p", "c", 0)
			return err
		})
		testutil.Eventually(t, patience, func() bool { return c.under("c", "p") }, "every node to know of the attach")
		at = c.initial[c.rng.IntN(3)].attachedAt("c")
	}
	end := wave()
	c.settled("p", "c")
	owed, open = append(owed, span{at, end}), append(open, span{at, c.initial[0].contentsOf("p").ends(killParts)})
	judgeSpans(t, c.initial[0].contentsOf("p"), c.initial[1].contentsOf("c"), owed, open)
}

// under reports whether a topic has this parent, "" = none, as every node that is up
// knows it.
func (c *cluster) under(child, parent string) bool {
	for _, n := range c.living() {
		d, err := n.client().DescribeTopic(c.t.Context(), child)
		if err != nil || d.Parent != parent {
			return false
		}
	}
	return true
}

// judgeSpans holds a child to what it must and what it may have of its parent.
func judgeSpans(t *testing.T, parent, child contents, owed, open []span) {
	t.Helper()
	may, must := map[string]bool{}, map[string]bool{}
	for _, r := range parent {
		in := func(s span) bool { return s.has(r) }
		may[r.raw] = may[r.raw] || slices.ContainsFunc(open, in)
		must[r.raw] = must[r.raw] || slices.ContainsFunc(owed, in)
	}
	has := child.times()
	missing, foreign, required := 0, 0, 0
	for raw := range must {
		if must[raw] {
			required++
			if has[raw] == 0 {
				missing++
			}
		}
	}
	for raw := range has {
		if !may[raw] {
			foreign++
		}
	}
	if missing > 0 || foreign > 0 {
		t.Errorf("O7: the child lacks %d of the %d records of its times, and has %d of other times", missing, required, foreign)
	}
	t.Logf("parent %d records, child %d, of which %d are owed", len(parent), len(child), required)
}
