package cluster

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

const (
	quietParts = 3
	quietDelay = 2 * time.Second
	quietWave  = 60 // messages between two changes
)

// quiet is a cluster in which nothing fails: what a child holds is known exactly.
type quiet struct {
	c       *cluster
	outside *node // owns no partition of the parent and does not lead
	next    atomic.Int64
	sent    []string // everything produced to the parent
}

// newQuiet forms four nodes and makes a parent of three partitions, until one node has
// nothing to do with it.
func newQuiet(t *testing.T, env ...string) *quiet {
	q := &quiet{c: form(t, 4, env...)}
	c := q.c
	cl := c.living()[0].client()
	for try := 0; q.outside == nil; try++ {
		if try == 8 {
			t.Fatal("every topic has partitions on all nodes that do not lead")
		}
		if try > 0 {
			if err := cl.DeleteTopic(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			c.family(client.CreateTopic{Name: fmt.Sprint("turn-", try)}) // owners are dealt in turn
		}
		c.family(client.CreateTopic{Name: "p", Partitions: quietParts})
		owners := c.owners("p")
		for _, n := range c.followers() {
			if !slices.Contains(owners, n) {
				q.outside = n
			}
		}
	}
	for _, in := range []client.CreateTopic{{Name: "wide", Partitions: quietParts}, {Name: "other", Partitions: 5}, {Name: "late", Partitions: quietParts}} {
		if _, err := q.outside.client().CreateTopic(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	c.agree()
	return q
}

// wave produces through all nodes in turn and waits until the parent has it.
func (q *quiet) wave() (payloads []string) {
	q.c.t.Helper()
	for i, n := range q.c.living() {
		ms, sent := numbered(n.ID, &q.next, quietWave/4)
		if i == 0 { // bytes that are no JSON, and a key that is no text
			raw := []byte{0, 0xff, 0xfe, byte(q.next.Add(1)), '"'}
			ms = append(ms, client.Message{Key: []byte{0xff, 0}, Payload: raw})
			sent = append(sent, `"`+base64.StdEncoding.EncodeToString(raw)+`"`)
		}
		if err := n.client().ProduceBatch(q.c.t.Context(), "p", ms); err != nil {
			q.c.t.Fatalf("produce through %s: %v", n.ID, err)
		}
		payloads = append(payloads, sent...)
	}
	q.sent = append(q.sent, payloads...)
	q.c.dispatched("p", q.sent)
	return payloads
}

// attach attaches through the node that has nothing to do with the parent, and checks
// that the child's copy begins where the parent ends now.
func (q *quiet) attach(child string, delay time.Duration) (at contents) {
	t := q.c.t
	t.Helper()
	at = q.outside.contentsOf("p")
	if _, err := q.outside.client().Attach(t.Context(), "p", child, delay); err != nil {
		t.Fatalf("attach %s through %s: %v", child, q.outside.ID, err)
	}
	d, err := q.outside.client().DescribeTopic(t.Context(), child)
	if err != nil {
		t.Fatal(err)
	}
	for p, offset := range d.AttachOffsets {
		if want := len(at.part(p)); offset != int64(want) {
			t.Errorf("%s is attached at %d of partition %d, which ends at %d", child, offset, p, want)
		}
	}
	q.c.agree()
	return at
}

// copied checks that a child holds exactly these records of its parent, byte for byte.
func (q *quiet) copied(child string, parent contents, delay time.Duration, repeats int) {
	t := q.c.t
	t.Helper()
	has := q.c.living()[q.c.rng.IntN(4)].contentsOf(child)
	judgeCopy(t, child, parent, has, delay, repeats)
	if len(has) < len(parent) {
		t.Errorf("%s has %d records, want %d", child, len(has), len(parent))
	}
	keys := map[string]string{}
	for _, s := range parent {
		keys[s.raw] = s.key
	}
	for _, s := range has {
		if keys[s.raw] != s.key {
			t.Errorf("%s has %.60s with key %q, its parent with %q", child, s.raw, s.key, keys[s.raw])
		}
	}
}

// since is what a topic got after an earlier look.
func since(now, before contents) (out contents) {
	for _, s := range now {
		if len(before.part(s.partition)) <= int(s.offset) {
			out = append(out, s)
		}
	}
	return out
}

// cursorFile is the file of a cursor on the node that runs it.
func cursorFile(n *node, partition int, child string) string {
	return filepath.Join(n.Dir, "topics", "p", fmt.Sprintf("p%05d", partition), "fanout-"+child+".offset")
}

// O7: nothing fails, and the children of a parent on three nodes are exactly what was
// committed from the attach on, attached through a fourth. What came while one was
// detached never comes, partitions made later are copied from their first record, and
// every node lists every child as complete.
func TestO7FanoutExactAcrossNodes(t *testing.T) {
	q := newQuiet(t)
	c := q.c
	q.wave() // before any attach: nobody gets it
	wide, other, late := q.attach("wide", 0), q.attach("other", 0), q.attach("late", quietDelay)
	q.wave()
	c.settled("p", "wide", "other", "late")
	now := q.outside.contentsOf("p")
	q.copied("wide", since(now, wide), 0, 0)
	q.copied("other", since(now, other), 0, 0)
	q.copied("late", since(now, late), quietDelay, 0)

	first := since(now, wide)
	if err := q.outside.client().Detach(t.Context(), "p", "wide"); err != nil {
		t.Fatal(err)
	}
	c.agree()
	q.wave() // while detached
	wide = q.attach("wide", 0)
	q.wave()
	c.settled("p", "other", "late", "wide")
	now = q.outside.contentsOf("p")
	q.copied("wide", append(first, since(now, wide)...), 0, 0)
	q.copied("other", since(now, other), 0, 0)

	more := quietParts + 2
	if _, err := q.outside.client().AlterTopic(t.Context(), "p", client.AlterTopic{Partitions: &more}); err != nil {
		t.Fatal(err)
	}
	var early []string
	for p := quietParts; p < more; p++ { // before any cursor runs there
		ms, sent := numbered("new", &q.next, 20)
		for i := range ms {
			ms[i].Key, ms[i].Pin = nil, client.Partition(p)
		}
		testutil.Eventually(t, patience, func() bool { return q.outside.client().ProduceBatch(t.Context(), "p", ms) == nil }, "a new partition")
		early = append(early, sent...)
	}
	q.sent = append(q.sent, early...)
	q.wave()
	c.settled("p", "other", "late", "wide")
	now = q.outside.contentsOf("p")
	for p := quietParts; p < more; p++ {
		if len(now.part(p)) < 20 {
			t.Errorf("partition %d has %d records", p, len(now.part(p)))
		}
	}
	q.copied("wide", append(first, since(now, wide)...), 0, 0)
	q.copied("other", since(now, other), 0, 0)
	q.copied("late", since(now, late), quietDelay, 0)
}

// A8: a cursor whose file is lost or damaged copies from the attach point again. The
// child gets the records since then once more, and nothing from before.
func TestA8LostCursorFilesReplayFromTheAttach(t *testing.T) {
	q := newQuiet(t)
	c := q.c
	q.wave()
	wide, other := q.attach("wide", 0), q.attach("other", 0)
	q.wave()
	c.settled("p", "wide", "other")
	now := q.outside.contentsOf("p")
	owners := c.owners("p")
	harm := map[int]func(name string) error{
		0: os.Remove,
		1: func(name string) error {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			b[30] ^= 1
			return os.WriteFile(name, b, 0o600)
		},
	}
	for p, f := range harm {
		over := c.stop(owners[p])
		if err := f(cursorFile(owners[p], p, "wide")); err != nil {
			t.Fatal(err)
		}
		c.revive(over, owners[p])
	}
	again := len(since(now, wide).part(0)) + len(since(now, wide).part(1))
	testutil.Eventually(t, patience, func() bool {
		return len(q.outside.contentsOf("wide")) >= len(since(now, wide))+again
	}, "the records since the attach to come again")
	q.wave()
	c.settled("p", "wide", "other")
	now = q.outside.contentsOf("p")
	q.copied("wide", since(now, wide), 0, again)
	q.copied("other", since(now, other), 0, 0)
}
