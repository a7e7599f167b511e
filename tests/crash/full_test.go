package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// volumeBytes is the disk of the tests that fill it: room for a few WAL segments.
const volumeBytes = 96 << 20

// newSmallLoad is a load whose node has a disk of volumeBytes.
func newSmallLoad(t *testing.T) *load {
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	testutil.SmallVolume(t, dir, volumeBytes)
	return newLoad(t, dir)
}

// fill produces big messages to a topic that no ledger watches, from several
// connections at once, until one is refused; it returns that refusal.
func (l *load) fill(topic string, size int) (refused error) {
	l.t.Helper()
	payload := bytes.Repeat([]byte("x"), size)
	var once sync.Once
	ctx, full := context.WithTimeout(l.t.Context(), patience)
	defer full()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := l.node.Client()
			for ctx.Err() == nil {
				err := c.Produce(ctx, topic, client.Message{Payload: payload, Partition: client.AnyPartition})
				if err != nil && ctx.Err() == nil {
					once.Do(func() { refused = err; full() })
				}
			}
		})
	}
	wg.Wait()
	if refused == nil {
		l.t.Fatalf("%d MiB took produces for %v without one refusal", volumeBytes>>20, patience)
	}
	return refused
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
	l.mustSend("before", 30, bodyMin, client.AnyPartition)

	refusal(t, "produce on a full disk", l.fill("bulk", 256<<10), http.StatusServiceUnavailable, "disk_reserve", "disk almost full")
	err := l.send(l.client(), "refused", bodyMin, client.AnyPartition)
	refusal(t, "small produce on a full disk", err, http.StatusServiceUnavailable, "disk_reserve", "disk almost full")
	resp, err := http.Post(l.node.URL+"/v1/topics/orders/produce", "application/json", strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if got := resp.Header.Get("Retry-After"); err != nil || resp.StatusCode != 503 || got != "1" {
		t.Errorf("full disk: status %d, Retry-After %q, %s, %v; want 503 and 1", resp.StatusCode, got, body, err)
	}

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
	n := 0
	testutil.Eventually(t, patience, func() bool {
		n++
		return l.send(l.client(), fmt.Sprintf("after-%d", n), bodyMin, client.AnyPartition) == nil
	}, "produce to be accepted after a topic was deleted")
	l.mustSend("again", 30, bodyMin, client.AnyPartition)
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
	l.mustSend("before", 30, bodyMin, client.AnyPartition)
	for i := 0; ; i++ {
		if err := l.send(l.client(), fmt.Sprintf("big-%d", i), 512<<10, client.AnyPartition); err != nil {
			refusal(t, "produce at the end of the disk", err, http.StatusInternalServerError, "internal", "produce failed")
			break
		}
	}
	for i := range 20 {
		if l.send(l.client(), fmt.Sprintf("latched-%d", i), bodyMin, client.AnyPartition) == nil {
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
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if l.send(l.client(), "latched still", bodyMin, client.AnyPartition) == nil {
		t.Error("space returned, and a failed WAL accepted a produce without a restart")
	}
	l.crash()
	l.boot()
	l.mustSend("after", 10, bodyMin, client.AnyPartition)
	l.drain()
	if left := temps(t, l.node.Dir); len(left) > 0 {
		t.Errorf("O12: temporary files left: %v", left)
	}
}
