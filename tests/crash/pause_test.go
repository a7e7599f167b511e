package crash

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/tests/ledger"
)

// F29 with O3 O4: the process is stopped for longer than its leases live, and goes on.
// Late acks answer 410, every message is handed out again, and none to two at once.
func TestF29PausedLongerThanALease(t *testing.T) {
	const count = 60
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("m", count, ledger.BodyMin, client.AnyPartition)
	held := l.takeAll(count)

	if err := l.node.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(visibility + 200*time.Millisecond) // the fault itself lasts this long
	woke := time.Now()
	if err := l.node.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Late acks race those who take the messages again.
	again := make(chan []client.Delivery)
	go func() { again <- l.takeAll(count) }()
	for _, d := range held {
		if err := l.client().Ack(t.Context(), l.topic, d.Handle); !errors.Is(err, client.ErrLeaseLost) {
			t.Errorf("late ack of partition %d offset %d: %v, want 410", d.Partition, d.Offset, err)
		}
	}
	second := <-again
	if time.Since(woke) > visibility {
		t.Skipf("taking %d messages took longer than a lease on this machine", count)
	}
	seen := map[ledger.Place]bool{}
	for _, d := range second {
		at := ledger.Place{Partition: d.Partition, Offset: d.Offset}
		if seen[at] {
			t.Errorf("O4: partition %d offset %d was granted twice within one lease", d.Partition, d.Offset)
		}
		seen[at] = true
		if d.DeliveryCount != 2 {
			t.Errorf("delivery count %d, want 2", d.DeliveryCount)
		}
		if err := l.client().Ack(t.Context(), l.topic, d.Handle); err != nil {
			t.Errorf("ack in time: %v", err)
		}
	}
	if got, err := l.client().Receive(t.Context(), l.topic, client.ReceiveOptions{Max: 1}); len(got) != 0 || err != nil {
		t.Errorf("O3: %d delivered after everything was acked, %v", len(got), err)
	}
}

// takeAll leases n messages over several connections and acks none.
func (l *load) takeAll(n int) []client.Delivery {
	var mu sync.Mutex // guards all
	var all []client.Delivery
	deadline := time.Now().Add(patience)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			f := follower{l: l}
			for {
				mu.Lock()
				done := len(all) >= n || time.Now().After(deadline)
				mu.Unlock()
				if done {
					return
				}
				ds, err := f.get().Receive(l.t.Context(), l.topic, client.ReceiveOptions{Max: 7, Wait: 100 * time.Millisecond})
				if err != nil {
					l.t.Error(fmt.Errorf("receive: %w", err))
					return
				}
				mu.Lock()
				all = append(all, ds...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(all) != n {
		l.t.Errorf("took %d messages, want %d", len(all), n)
	}
	return all
}
