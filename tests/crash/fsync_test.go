package crash

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// newest is the path of the file with the highest name that matches, in the order of
// segment names.
func (l *load) newest(pattern string) string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.node.Dir, pattern))
	if err != nil || len(found) == 0 {
		l.t.Fatalf("no file %s: %v", pattern, err)
	}
	slices.Sort(found)
	return found[len(found)-1]
}

func (l *load) walSegment() string { return l.newest("ingress/produce/*.wal") }

func (l *load) partitionDir(p int) string {
	return filepath.Join(l.node.Dir, "topics", l.topic, fmt.Sprintf("p%05d", p))
}

func (l *load) logSegment(p int) string {
	return l.newest(fmt.Sprintf("topics/%s/p%05d/*.log", l.topic, p))
}

// metric fails the test when the series is not there.
func (l *load) metric(series string) float64 {
	l.t.Helper()
	v, ok := l.node.Metric(series)
	if !ok {
		l.t.Errorf("no series %s", series)
	}
	return v
}

// F12 with O1 O2 O9: one failed fsync of the ingress WAL is final. No produce is
// accepted after it, the fsync is never tried again, everything else works, and the
// restart has all that was accepted.
func TestF12FailedFsyncOfTheWALLatches(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("before", 50, ledger.BodyMin, client.AnyPartition)

	trace := l.node.Trace("-P", l.walSegment(), "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO")
	err := l.send(l.client(), "hit", ledger.BodyMin, client.AnyPartition)
	refusal(t, "produce whose fsync fails", err, http.StatusInternalServerError, "internal", "produce failed")
	for i := range 20 {
		if l.send(l.client(), fmt.Sprintf("latched-%d", i), ledger.BodyMin, client.AnyPartition) == nil {
			t.Fatal("a produce was accepted after an fsync had failed")
		}
	}
	if n := trace.Injected("sync("); n != 1 {
		t.Errorf("%d fsyncs of the WAL segment failed, want 1: a failed one is never retried", n)
	}
	trace.Detach()
	if l.send(l.client(), "healed", ledger.BodyMin, client.AnyPartition) == nil {
		t.Fatal("a produce was accepted once the disk worked again, without a restart")
	}
	if v := l.metric("narad_ingress_wal_failed"); v != 1 {
		t.Errorf("narad_ingress_wal_failed is %v, want 1", v)
	}
	if !l.node.Ready() {
		t.Error("a latched WAL must not fail /readyz")
	}
	if !l.node.Logged("ingress WAL failed", "input/output error") {
		t.Error("the log does not name the failure")
	}
	l.settle() // consumes and acks go on
	l.crash()
	l.boot()
	l.mustSend("after", 10, ledger.BodyMin, client.AnyPartition)
	l.drain()
}

// poison makes the next fsync of a partition's segment fail and produces there.
func (l *load) poison(partition int) *testutil.Tracer {
	l.t.Helper()
	trace := l.node.Trace("-P", l.logSegment(partition), "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO")
	l.mustSend("poisoned", 10, ledger.BodyMin, partition)
	testutil.Eventually(l.t, patience, func() bool {
		return l.node.Logged("storage: fsync failed; log poisoned until reopened", "input/output error", filepath.Base(l.partitionDir(partition)))
	}, "the partition's log to be poisoned")
	return trace
}

// F12 with O1 O2: a partition log whose fsync failed takes nothing more; its records
// stay in the WAL and arrive after the restart.
func TestF12PoisonedPartitionDeliversAfterRestart(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("before", 30, ledger.BodyMin, client.AnyPartition)
	l.settle()
	l.poison(0)
	l.crash()
	l.boot()
	l.drain()
}

// F12 with O1 O2 O8 O9: while one partition is poisoned the others go on at their
// speed, its own records move to another partition after the grace of 3 s, and what it
// had made visible is still served.
func TestF12PoisonedPartitionIsReroutedAround(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	for p := range 3 {
		l.mustSend(fmt.Sprintf("before-%d", p), 10, ledger.BodyMin, p)
	}
	l.waitVisible(0, 10)
	trace := l.poison(0)
	if d, ok, err := l.client().Read(t.Context(), l.topic, 0, 3); err != nil || !ok {
		t.Errorf("replay of a record the poisoned partition had made visible: %v, %v, %v", d.Offset, ok, err)
	}
	l.mustSend("beside", 10, ledger.BodyMin, 1)
	l.waitVisible(1, 20)
	if l.node.Logged("rerouting produce records") {
		t.Error("the poisoned partition was routed around before its grace was over")
	}
	l.settle() // the poisoned partition's records among the rest
	if !l.node.Logged("rerouting produce records for stuck partition owner") {
		t.Error("records of the poisoned partition arrived, and no line says where they went")
	}
	if n := trace.Injected("sync("); n != 1 {
		t.Errorf("%d fsyncs of the partition's segment failed, want 1: a failed one is never retried", n)
	}
	if v := l.metric(`narad_errors_total{component="storage",kind="fsync_poisoned"}`); v != 1 {
		t.Errorf("fsync_poisoned counts %v, want 1", v)
	}
	if v := l.metric("narad_ingress_wal_failed"); v != 0 {
		t.Error("a poisoned partition latched the WAL")
	}
	trace.Detach()
	l.crash()
	l.boot()
	l.mustSend("after", 10, ledger.BodyMin, 0)
	l.waitVisible(0, 20)
	l.drain()
}

// waitVisible waits until a partition shows offsets up to n.
func (l *load) waitVisible(partition int, n int64) {
	l.t.Helper()
	testutil.Eventually(l.t, patience, func() bool {
		d, err := l.client().DescribeTopic(l.t.Context(), l.topic)
		return err == nil && d.PartitionStats[partition].HighWatermark >= n
	}, fmt.Sprintf("partition %d to show %d records", partition, n))
}

// F13 with O1 O2: fsyncs that claim success and do nothing lose nothing when only the
// process dies, for the page cache has it all.
func TestF13LyingFsyncSurvivesAKill(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "trace")
	l.node.Wrap = testutil.Straced(file, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:retval=0")
	l.boot()
	l.create(client.CreateTopic{})
	l.run(4)
	l.flow(500)
	l.crash()
	if n := testutil.Injected(t, file, "sync("); n < 20 {
		t.Errorf("only %d fsyncs lied: the run proves little", n)
	}
	l.node.Wrap = nil
	l.boot()
	l.flow(100)
	l.halt()
	l.drain()
}

// F15 F19 with O1 O2 O5: a write to a partition's segment that reports success and
// writes nothing is found when the commit reads back what it wrote. No reader sees it,
// and the retry stores the records at the offsets they were to have.
func TestF19LostWriteIsCaughtByReadBack(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("before", 10, ledger.BodyMin, 0)
	l.waitVisible(0, 10)
	// The first 40 bytes of each thread's first write are lost: a header and a little.
	trace := l.node.Trace("-P", l.logSegment(0), "-e", "trace=pwrite64", "-e", "inject=pwrite64:retval=40:when=1")
	l.mustSend("lost", 5, ledger.BodyMin, 0)
	testutil.Eventually(t, patience, func() bool { return l.node.Logged("did not read back as written") }, "the lost write to be found")
	if n := trace.Injected("pwrite64("); n == 0 {
		t.Error("no write was lost")
	}
	trace.Detach()
	l.waitVisible(0, 15)
	for o := range int64(15) {
		d, ok, err := l.client().Read(t.Context(), l.topic, 0, o)
		if err != nil || !ok {
			t.Errorf("offset %d: %v, %v", o, ok, err)
			continue
		}
		l.ledger.Deliver(d, time.Now())
	}
	if _, ok, err := l.client().Read(t.Context(), l.topic, 0, 15); ok || err != nil {
		t.Errorf("offset 15 exists (%v, %v): a lost write was stored twice", ok, err)
	}
	l.crash()
	l.boot()
	l.drain()
	b, err := os.ReadFile(l.logSegment(0))
	if err != nil || strings.Contains(string(b), "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00") {
		t.Errorf("the segment kept the hole (%v)", err)
	}
}
