package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// volumeBytes is the disk of the tests that fill it: room for a few WAL segments.
const volumeBytes = 96 << 20

// metadataChanges is enough of them to need a page that the databases do not have yet.
const metadataChanges = 500

// newSmallLoad is a load whose node has a disk of volumeBytes.
func newSmallLoad(t *testing.T) *load {
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	testutil.SmallVolume(t, dir, volumeBytes)
	return newLoad(t, dir)
}

// steadyRefusals is how many produces in a row must be refused before a worker stops.
const steadyRefusals = 50

// fill produces to a topic that no ledger watches, big messages from several
// connections at once and then ever smaller ones, until not even a small one is taken,
// everything accepted having been dispatched. It returns what was not answered 202.
func (l *load) fill(topic string) (refusals []error) {
	l.t.Helper()
	deadline := time.Now().Add(patience)
	for _, size := range []int{256 << 10, 16 << 10, 100} {
		refused, _ := l.fillWith(topic, size)
		refusals = append(refusals, refused...)
	}
	for {
		// What was dispatched gives room back, unless it is the disk that is in its way.
		for v := -1.0; v != 0 && time.Now().Before(deadline); v, _ = l.node.Metric("narad_ingress_dispatch_backlog_records") {
			if failed, _ := l.node.Metric("narad_ingress_wal_failed"); failed != 0 {
				return refusals
			}
		}
		refused, accepted := l.fillWith(topic, 100)
		refusals = append(refusals, refused...)
		if accepted == 0 {
			return refusals
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("the node took produces for %v", patience)
		}
	}
}

// fillWith produces until each of its connections was refused steadyRefusals times in
// a row.
func (l *load) fillWith(topic string, size int) (refusals []error, accepted int) {
	payload := bytes.Repeat([]byte("x"), size)
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	var mu sync.Mutex // guards refusals and accepted
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := l.node.Client(client.WithRetries(1), client.WithBreaker(math.MaxInt, time.Second))
			for inRow := 0; inRow < steadyRefusals; {
				err := c.Produce(ctx, topic, client.Message{Payload: payload})
				mu.Lock()
				if err == nil {
					accepted++
					inRow = 0
				} else {
					refusals = append(refusals, err)
					inRow++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return refusals, accepted
}

// refusedWithRetryAfter produces by hand, to see the headers of the answer.
func (l *load) refusedWithRetryAfter(topic string) bool {
	l.t.Helper()
	resp, err := http.Post(l.node.URL+"/v1/topics/"+topic+"/produce", "application/json", strings.NewReader("1"))
	if err != nil {
		l.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "1"
}

// temps are the files under the data directory whose names say they are temporary.
func temps(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".tmp") {
			found = append(found, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while the walk passed
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// F14 with O1 O8 O9 O12: below the reserve produces are refused cleanly and everything
// else works; when space returns they are accepted again by themselves.
func TestF14ReserveRefusesProducesAndRecovers(t *testing.T) {
	l := newSmallLoad(t)
	l.boot()
	l.create(client.CreateTopic{})
	ctx := t.Context()
	if _, err := l.client().CreateTopic(ctx, client.CreateTopic{Name: "bulk"}); err != nil {
		t.Fatal(err)
	}
	l.mustSend("before", 30, ledger.BodyMin, client.AnyPartition)

	for _, err := range l.fill("bulk") {
		refusal(t, "produce on a full disk", err, http.StatusServiceUnavailable, "disk_reserve", "disk almost full")
	}
	// The WAL gives back what it retires a moment after the dispatch; then a few more
	// messages fit.
	n := 0
	testutil.Eventually(t, patience, func() bool {
		n++
		err := l.send(l.client(), fmt.Sprintf("last-%d", n), ledger.BodyMin, client.AnyPartition)
		if err == nil {
			return false
		}
		refusal(t, "small produce on a full disk", err, http.StatusServiceUnavailable, "disk_reserve", "disk almost full")
		return true
	}, "a small produce to be refused")
	testutil.Eventually(t, patience, func() bool { return l.refusedWithRetryAfter("bulk") }, "a produce to be answered 503 with Retry-After: 1")

	l.settle() // consumes and acks go on
	hour := int64(3_600_000)
	if _, err := l.client().AlterTopic(ctx, "bulk", client.AlterTopic{RetentionMS: &hour}); err != nil {
		t.Errorf("alter on a full disk: %v", err)
	}
	if !l.node.Ready() {
		t.Error("not ready on a full disk")
	}
	if v, _ := l.node.Metric("narad_ingress_wal_failed"); v != 0 {
		t.Fatal("the WAL ran into the end of the disk before the reserve refused")
	}
	if err := l.client().DeleteTopic(ctx, "bulk"); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	testutil.Eventually(t, patience, func() bool {
		n++
		return l.send(l.client(), fmt.Sprintf("after-%d", n), ledger.BodyMin, client.AnyPartition) == nil
	}, "produce to be accepted after a topic was deleted")
	l.mustSend("again", 30, ledger.BodyMin, client.AnyPartition)
	l.settle()
	if left := temps(t, l.node.Dir); len(left) > 0 {
		t.Errorf("O12: temporary files left: %v", left)
	}
	l.crash()
	l.boot()
	l.drain()
}

// F14 with O1 O2 O9 O12: without a reserve the disk fills to the last byte. The WAL
// latches: not one 202 after it, everything else goes on, and a restart with room again
// has every message that was accepted.
func TestF14WithoutReserveLatchesAndLosesNothing(t *testing.T) {
	l := newSmallLoad(t)
	l.node.Env = []string{"NARAD_STORAGE_RESERVE_BYTES=0"}
	ballast := filepath.Join(l.node.Dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, volumeBytes/2), 0o600); err != nil {
		t.Fatal(err)
	}
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("before", 30, ledger.BodyMin, client.AnyPartition)
	for i := 0; ; i++ {
		if err := l.send(l.client(), fmt.Sprintf("big-%d", i), 512<<10, client.AnyPartition); err != nil {
			refusal(t, "produce at the end of the disk", err, http.StatusInternalServerError, "internal", "produce failed")
			break
		}
	}
	for i := range 20 {
		if l.send(l.client(), fmt.Sprintf("latched-%d", i), ledger.BodyMin, client.AnyPartition) == nil {
			t.Fatal("a produce was accepted after the WAL had failed")
		}
	}
	if v, _ := l.node.Metric("narad_ingress_wal_failed"); v != 1 {
		t.Errorf("narad_ingress_wal_failed is %v, want 1", v)
	}
	if !l.node.Ready() {
		t.Error("a latched WAL must not fail /readyz")
	}
	got, err := l.consumeOnce(l.client(), true, func() bool { return true })
	if err != nil || got == 0 {
		t.Errorf("consume on a full disk: %d messages, %v", got, err)
	}
	// With the last byte gone a change of metadata may fail, but it must not take the
	// node down.
	rest := filepath.Join(l.node.Dir, "rest")
	if err := os.WriteFile(rest, make([]byte, volumeBytes), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the volume: %v, want ENOSPC", err)
	}
	retention := int64(3_600_000)
	alter := func() bool {
		retention++
		_, err := l.client().AlterTopic(t.Context(), l.topic, client.AlterTopic{RetentionMS: &retention})
		return err == nil
	}
	altered := 0
	for altered < metadataChanges && alter() {
		altered++
	}
	t.Logf("%d changes of metadata found room on the full disk", altered)
	if err := errors.Join(os.Remove(ballast), os.Remove(rest)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, alter, "metadata to be changed after space returned")
	if l.send(l.client(), "latched still", ledger.BodyMin, client.AnyPartition) == nil {
		t.Error("space returned, and a failed WAL accepted a produce without a restart")
	}
	l.crash()
	l.boot()
	l.mustSend("after", 10, ledger.BodyMin, client.AnyPartition)
	l.drain()
	if left := temps(t, l.node.Dir); len(left) > 0 {
		t.Errorf("O12: temporary files left: %v", left)
	}
}
