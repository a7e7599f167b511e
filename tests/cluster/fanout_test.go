package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// drainLag is what children get to catch up after a fault.
const drainLag = 90 * time.Second

// stored is one record of a topic, as a replay shows it.
type stored struct {
	partition int
	offset    int64
	key, raw  string
	second    int64 // of the commit
}

// contents is everything a topic holds, by partition and offset.
type contents []stored

// contentsOf replays a topic through one node.
func (n *node) contentsOf(topic string) (out contents) {
	n.c.t.Helper()
	for m, err := range n.client().Replay(n.c.t.Context(), topic, client.ReplayOptions{}) {
		if err != nil {
			n.c.t.Fatalf("replay %s through %s: %v", topic, n.ID, err)
		}
		out = append(out, stored{m.Partition, m.Offset, string(m.Key), string(m.Raw), m.Timestamp.Unix()})
	}
	sort.Slice(out, func(i, k int) bool {
		a, b := out[i], out[k]
		return a.partition < b.partition || a.partition == b.partition && a.offset < b.offset
	})
	return out
}

// times is how often each payload is there.
func (c contents) times() map[string]int {
	n := map[string]int{}
	for _, s := range c {
		n[s.raw]++
	}
	return n
}

// part is what one partition holds, in order.
func (c contents) part(p int) (out contents) {
	for _, s := range c {
		if s.partition == p {
			out = append(out, s)
		}
	}
	return out
}

// judgeCopy holds a child to its parent: no gap, nothing else, at most so many repeated
// records, records of one key of one parent partition in their order, and none of them
// before the delay has passed.
func judgeCopy(t *testing.T, name string, parent, child contents, delay time.Duration, repeatsMax int) {
	t.Helper()
	judgeSet(t, name, parent, child, repeatsMax)
	judgeOrder(t, name, parent, child)
	first, early := child.first(), 0
	for raw, s := range parent.first() {
		if at, ok := first[raw]; ok && at.second < s.second+int64(delay/time.Second) {
			early++
		}
	}
	if early > 0 {
		t.Errorf("%s: %d records came before their delay of %v", name, early, delay)
	}
}

// first is where each payload is for the first time: of two places the one with the
// earlier commit, within a partition the smaller offset.
func (c contents) first() map[string]stored {
	at := map[string]stored{}
	for _, s := range c {
		if before, ok := at[s.raw]; !ok || s.second < before.second {
			at[s.raw] = s
		}
	}
	return at
}

// judgeSet holds a child to its parent: every record as often as there at least, no other
// record, and at most so many repetitions.
func judgeSet(t *testing.T, name string, parent, child contents, repeatsMax int) {
	t.Helper()
	has, should := child.times(), parent.times()
	gaps, foreign := 0, 0
	for raw, n := range should {
		if has[raw] < n {
			if gaps++; gaps <= 5 {
				t.Errorf("O7: %s has %.80s %d times, its parent %d times", name, raw, has[raw], n)
			}
		}
	}
	for raw := range has {
		if should[raw] == 0 {
			if foreign++; foreign <= 5 {
				t.Errorf("O2: %s has %.80s, its parent has not", name, raw)
			}
		}
	}
	if gaps > 5 || foreign > 5 {
		t.Errorf("%s: %d gaps, %d records that are not the parent's", name, gaps, foreign)
	}
	repeated := len(child) - len(parent)
	if repeated > repeatsMax {
		t.Errorf("%s repeats %d records, at most %d were in flight", name, repeated, repeatsMax)
	}
	t.Logf("%s: %d records, %d repeated (most %d)", name, len(child), repeated, repeatsMax)
}

// judgeOrder checks that records of one key of one parent partition are in one child
// partition, in their order.
func judgeOrder(t *testing.T, name string, parent, child contents) {
	t.Helper()
	type lane struct {
		partition int // of the parent
		key       string
	}
	first, times, last := child.first(), parent.times(), map[lane]stored{}
	ordered := 0
	for _, s := range parent {
		at, ok := first[s.raw]
		if s.key == "" || times[s.raw] > 1 || !ok {
			continue // the parent's own repetitions have no one place
		}
		in := lane{s.partition, s.key}
		if before, ok := last[in]; ok {
			ordered++
			if at.key != s.key || at.partition != before.partition || at.offset < before.offset {
				t.Errorf("%s: key %q: %.60s is at %d/%d, what its parent has before it at %d/%d",
					name, s.key, s.raw, at.partition, at.offset, before.partition, before.offset)
			}
		}
		last[in] = at
	}
	t.Logf("%s: %d pairs in order", name, ordered)
}

// stream is load on one topic from several nodes: batches of messages that differ, of
// few keys and of none.
type stream struct {
	c     *cluster
	topic string
	stop  chan struct{}
	wg    sync.WaitGroup
	next  atomic.Int64

	mu       sync.Mutex // guards accepted
	accepted []string   // payloads answered 202
}

const streamBatch, streamKeys = 10, 12

// stream starts load on a topic through every initial member, whether it is up or not.
// The messages have the numbers after first.
func (c *cluster) stream(topic string, every time.Duration, first int64) *stream {
	s := &stream{c: c, topic: topic, stop: make(chan struct{})}
	s.next.Store(first)
	for _, n := range c.initial {
		s.wg.Add(1)
		go s.send(n, every)
	}
	c.t.Cleanup(s.end)
	return s
}

// end stops the load once every request is answered.
func (s *stream) end() {
	s.mu.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *stream) send(n *node, every time.Duration) {
	defer s.wg.Done()
	cl := n.client()
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(every):
		}
		ms, payloads := numbered(n.ID, &s.next, streamBatch)
		if cl.ProduceBatch(context.Background(), s.topic, ms) != nil {
			continue // its messages may be there or not
		}
		s.mu.Lock()
		s.accepted = append(s.accepted, payloads...)
		s.mu.Unlock()
		n.accepted.Add(streamBatch)
	}
}

// numbered makes messages that no other equals; two of three have a key.
func numbered(by string, next *atomic.Int64, n int) (ms []client.Message, payloads []string) {
	for range n {
		i := next.Add(1)
		m := client.Message{Payload: ledger.Payload(fmt.Sprintf("%s-%d", by, i), ledger.BodyMin)}
		if i%3 > 0 {
			m.Key = fmt.Appendf(nil, "key %d", i%streamKeys)
		}
		ms, payloads = append(ms, m), append(payloads, string(m.Payload))
	}
	return ms, payloads
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.accepted)
}

// flows waits until every node that is up accepted more.
func (s *stream) flows(why string, atLeast int) {
	s.c.t.Helper()
	before := map[*node]int64{}
	for _, n := range s.c.living() {
		before[n] = n.accepted.Load()
	}
	testutil.Eventually(s.c.t, patience, func() bool {
		for n, v := range before {
			if n.accepted.Load() < v+int64(atLeast) {
				return false
			}
		}
		return true
	}, why+": messages to be accepted through every node that is up")
}

// dispatched waits until a topic holds all of these and returns what it holds.
func (c *cluster) dispatched(topic string, payloads []string) (have contents) {
	c.t.Helper()
	testutil.Eventually(c.t, drainLag, func() bool {
		have = c.living()[0].contentsOf(topic)
		times := have.times()
		for _, p := range payloads {
			if times[p] == 0 {
				return false
			}
		}
		return true
	}, "O1: "+topic+" to hold all that was accepted")
	return have
}

// waitLag waits, with the command and through one node, until a child has all that its
// parent has.
func (n *node) waitLag(parent, child string, timeout time.Duration) error {
	n.c.t.Helper()
	cmd := exec.CommandContext(n.c.t.Context(), testutil.Binary(n.c.t), "topic", "wait", parent, child,
		"--lag-zero", "--timeout", timeout.String(), "--interval", "100ms", "--server", n.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("topic wait %s %s through %s: %w: %s", parent, child, n.ID, err, out)
	}
	return nil
}

// caughtUp is waitLag for as long as a child may take.
func (n *node) caughtUp(parent, child string) {
	n.c.t.Helper()
	if err := n.waitLag(parent, child, drainLag); err != nil {
		n.c.t.Fatal(err)
	}
}

// settled waits until all children of a parent have all of it, as every node tells.
func (c *cluster) settled(parent string, children ...string) {
	c.t.Helper()
	for _, n := range c.living() {
		for _, child := range children {
			n.caughtUp(parent, child)
		}
		list, err := n.client().Children(c.t.Context(), parent)
		if err != nil {
			c.t.Fatalf("children of %s through %s: %v", parent, n.ID, err)
		}
		if len(list.Children) != len(children) {
			c.t.Errorf("%s lists %+v, want %v", n.ID, list.Children, children)
		}
		for i, ch := range list.Children {
			if ch.Name != children[i] || !ch.LagComplete || ch.LagMessages != 0 {
				c.t.Errorf("%s lists %+v at place %d, want %s with no lag", n.ID, ch, i, children[i])
			}
		}
	}
}

// family makes a parent and its children through the first node that is up.
func (c *cluster) family(parent client.CreateTopic, children ...client.CreateTopic) {
	c.t.Helper()
	cl := c.living()[0].client()
	for i, in := range append([]client.CreateTopic{parent}, children...) {
		if i > 0 {
			in.Parent = parent.Name
		}
		var err error
		testutil.Eventually(c.t, patience, func() bool {
			_, err = cl.EnsureTopic(c.t.Context(), in)
			return err == nil || !client.Retryable(err)
		}, in.Name+" to be made")
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.agree()
}
