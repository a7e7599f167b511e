package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

const (
	lives        = 50 // how often the topic is deleted and made again
	livesPerKill = 3  // one in so many goes with a kill
)

// past is what belongs to lives of a topic that are over: ids whose produce was
// answered before their topic's delete was sent, with the time at which the next life
// was known to exist. No consume sent after that time may bring one.
type past struct {
	mu     sync.Mutex // guards all below
	living []string
	dead   map[string]time.Time
	bad    []string
	seen   map[string]bool // delivered
}

func (p *past) accepted(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.living = append(p.living, id)
}

// ends is called before the delete is sent: what was accepted by now dies with it. The
// returned function is called once the next life exists.
func (p *past) ends() (reborn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dying := p.living
	p.living = nil
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := time.Now()
		for _, id := range dying {
			p.dead[id] = now
		}
	}
}

func (p *past) delivered(payload []byte, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var m ledger.Message
	if err := json.Unmarshal(payload, &m); err != nil || m.Body != ledger.Body(m.ID, ledger.BodyMin) {
		p.bad = append(p.bad, fmt.Sprintf("O2: delivered bytes are no message of ours: %.100q", payload))
		return
	}
	p.seen[m.ID] = true
	if reborn, dead := p.dead[m.ID]; dead && began.After(reborn) {
		p.bad = append(p.bad, fmt.Sprintf("C11: %s of an earlier life was delivered %v after the topic was made again", m.ID, began.Sub(reborn)))
	}
}

// F47 C11 with O2 O12 O13: a topic is deleted and made again fifty times under load, the
// node killed on the way. No message of an earlier life enters a later one, positions of
// an earlier life do not either, and the space of all of them comes back.
func TestF47RecreatedTopicStartsEmpty(t *testing.T) {
	rng := random(t)
	l := newLoad(t, t.TempDir())
	p := &past{dead: map[string]time.Time{}, seen: map[string]bool{}}
	l.boot()
	l.create(client.CreateTopic{})
	l.stop = make(chan struct{})
	for w := range 3 {
		l.wg.Add(2)
		go l.produceForLife(p, w)
		go l.consumeOfLife(p)
	}
	for life := range lives {
		// The life is lived: some messages were accepted in it.
		testutil.Eventually(t, patience, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.living) >= 5+rng.IntN(20)
		}, "messages to be accepted")
		reborn := p.ends()
		if life%livesPerKill == 0 {
			l.recreateKilled(rng)
		} else {
			l.recreate()
		}
		reborn()
		// A life begins with nothing settled: a position of an earlier one would hide its
		// first messages.
		id := fmt.Sprintf("first-%d", life)
		if err := l.client().Produce(t.Context(), l.topic, client.Message{Payload: ledger.Payload(id, ledger.BodyMin), Pin: client.Partition(0)}); err != nil {
			t.Fatalf("life %d: first produce: %v", life, err)
		}
		p.accepted(id)
		testutil.Eventually(t, patience, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.seen[id]
		}, fmt.Sprintf("the first message of life %d", life))
	}
	l.halt()
	for _, bad := range p.bad[:min(len(p.bad), 10)] {
		t.Error(bad)
	}
	t.Logf("%d lives, %d messages delivered, %d of earlier lives known", lives, len(p.seen), len(p.dead))
	if len(p.seen) < lives || len(p.dead) < 5*lives {
		t.Error("the run proves little")
	}
	l.reclaimed()
}

// recreate deletes the topic and makes it again.
func (l *load) recreate() {
	l.t.Helper()
	l.deleteUntilGone()
	l.createUntilThere()
}

// deleteUntilGone and createUntilThere repeat a call whose answer a kill may have cost.
func (l *load) deleteUntilGone() {
	l.t.Helper()
	testutil.Eventually(l.t, patience, func() bool {
		err := l.client().DeleteTopic(context.Background(), l.topic)
		return err == nil || errors.Is(err, client.ErrNotFound)
	}, "the topic to be deleted")
}

func (l *load) createUntilThere() {
	l.t.Helper()
	testutil.Eventually(l.t, patience, func() bool {
		in := client.CreateTopic{Name: l.topic, VisibilityTimeoutMS: visibility.Milliseconds()}
		_, err := l.client().CreateTopic(context.Background(), in)
		return err == nil || errors.Is(err, client.ErrExists)
	}, "the topic to be made again")
}

// recreateKilled is recreate with the node killed at a random moment of the delete,
// or of the create.
func (l *load) recreateKilled(rng *rand.Rand) {
	l.t.Helper()
	inDelete := rng.IntN(2) == 0
	if !inDelete {
		l.deleteUntilGone()
	}
	c, done := l.client(), make(chan struct{})
	go func() {
		defer close(done)
		if inDelete {
			_ = c.DeleteTopic(context.Background(), l.topic)
		} else {
			_, _ = c.CreateTopic(context.Background(), client.CreateTopic{Name: l.topic, VisibilityTimeoutMS: visibility.Milliseconds()})
		}
	}()
	select { // the kill falls at a random point of the call
	case <-done:
	case <-time.After(time.Duration(rng.IntN(8_000)) * time.Microsecond):
	}
	l.crash()
	<-done
	l.boot()
	if inDelete {
		l.deleteUntilGone()
	}
	l.createUntilThere()
}

func (l *load) produceForLife(p *past, worker int) {
	defer l.wg.Done()
	f := follower{l: l}
	for i := 0; l.running(); i++ {
		id := fmt.Sprintf("w%d-%d", worker, i)
		err := f.get().Produce(context.Background(), l.topic, client.Message{Payload: ledger.Payload(id, ledger.BodyMin), Key: []byte(id)})
		if err != nil {
			l.pause()
			continue
		}
		p.accepted(id)
	}
}

func (l *load) consumeOfLife(p *past) {
	defer l.wg.Done()
	f := follower{l: l}
	for l.running() {
		began := time.Now()
		ds, err := f.get().Receive(context.Background(), l.topic, client.ReceiveOptions{Wait: 100 * time.Millisecond, Max: 20})
		if err != nil {
			l.pause()
			continue
		}
		for i, d := range ds {
			p.delivered(d.Payload, began)
			if i%3 > 0 { // some are left to their leases
				_ = f.get().Ack(context.Background(), l.topic, d.Handle)
			}
		}
	}
}

// reclaimed deletes the topic for good and checks that nothing of any life is left, on
// disk or waiting in the WAL, after a restart at the latest (O12).
func (l *load) reclaimed() {
	l.t.Helper()
	l.deleteUntilGone()
	l.crash()
	l.boot()
	testutil.Eventually(l.t, patience, func() bool {
		left, err := os.ReadDir(filepath.Join(l.node.Dir, "topics"))
		return err == nil && len(left) == 0
	}, "the space of deleted topics to be reclaimed")
	testutil.Eventually(l.t, patience, func() bool {
		v, ok := l.node.Metric("narad_ingress_dispatch_backlog_records")
		return ok && v == 0
	}, "records of deleted topics to leave the WAL")
}
