package fanout

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// The batches of the copy benchmarks: what the dispatcher of a busy node commits at once.
const (
	benchParts   = 3
	benchBatch   = 500
	benchPayload = 256
)

func benchBroker(b *testing.B, rep *replica) (*broker.Broker, string) {
	b.Helper()
	dir := filepath.ToSlash(b.TempDir())
	br, err := broker.Open(broker.Options{FS: disk.OS{}, DataDir: dir, Node: node, Topics: rep, Clock: clock.Real(), Logger: telemetry.Discard()})
	must(b, err)
	b.Cleanup(func() { br.Close() })
	return br, dir
}

func benchRecords(n int) []model.Record {
	payload := make([]byte, benchPayload)
	recs := make([]model.Record, n)
	for i := range recs {
		recs[i] = model.Record{Key: fmt.Appendf(nil, "key-%06d", i), Payload: payload}
	}
	return recs
}

// commitAll commits n batches to every partition of a topic, partitions at once.
func commitAll(b *testing.B, br *broker.Broker, topic string, n int) {
	b.Helper()
	recs := benchRecords(benchBatch)
	done := make(chan error, benchParts)
	for p := range benchParts {
		go func() {
			for range n {
				if _, err := br.Commit(context.Background(), topic, p, recs); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range benchParts {
		must(b, <-done)
	}
}

// One parent to four children against plain commits to one topic, in turns on the same
// volume: the ratio of records a second is what counts.
func BenchmarkFourChildren(b *testing.B) {
	const children, batches = 4, 40
	rep := newReplica()
	r := &rig{t: b, rep: rep}
	r.topic("plain", benchParts)
	r.topic("p", benchParts)
	br, dir := benchBroker(b, rep)
	r.b = br
	for c := range children {
		r.topic(fmt.Sprint("c", c), benchParts)
		r.attach("p", fmt.Sprint("c", c), 0)
	}
	own := &owners{b: br, fail: map[model.PartitionKey]error{}, calls: map[model.PartitionKey]int{}}
	total := float64(batches * benchParts * benchBatch)
	var plain, copied time.Duration
	n := 0
	for b.Loop() {
		n++
		at := time.Now()
		commitAll(b, br, "plain", batches)
		plain += time.Since(at)
		commitAll(b, br, "p", batches)
		at = time.Now()
		e, err := Open(Options{
			FS: disk.OS{}, DataDir: dir, Node: node, Replica: rep, Leader: rep, Parents: br, Placement: own,
			Clock: clock.Real(), Logger: telemetry.Discard(), Linger: DefaultLinger,
		})
		must(b, err)
		r.e = e
		for behind := true; behind; {
			<-time.After(time.Millisecond)
			v, _ := rep.Topic("p")
			behind = slices.ContainsFunc(e.Children(context.Background(), v), func(c Child) bool { return !c.LagComplete || c.LagMessages > 0 })
		}
		copied += time.Since(at)
		must(b, e.Close())
	}
	perPlain, perCopied := total*float64(n)/plain.Seconds(), children*total*float64(n)/copied.Seconds()
	b.ReportMetric(perPlain, "plain/s")
	b.ReportMetric(perCopied, "copies/s")
	b.ReportMetric(perCopied/perPlain, "copies/plain")
}

// benchReconciler is a reconciler over 5,000 topics of 12 partitions; linked of them are
// parent and child.
func benchReconciler(b *testing.B, linked int) *reconciler {
	b.Helper()
	rep := newReplica()
	rep.set(func() {
		for i := range 5000 {
			name := fmt.Sprintf("t%04d", i)
			v := &model.TopicView{Topic: model.Topic{Name: name, ID: "0123456789abcdef", Partitions: 12}, Owners: slices.Repeat([]string{node}, 12)}
			switch {
			case i < linked && i%2 == 0:
				v.Children = []string{fmt.Sprintf("t%04d", i+1)}
			case i < linked:
				v.Parent, v.AttachEpoch, v.AttachOffsets = fmt.Sprintf("t%04d", i-1), "67953471cc57a32a", make([]int64, 12)
			}
			rep.views[name] = v
		}
	})
	br, dir := benchBroker(b, rep)
	e, err := build(Options{
		FS: disk.OS{}, DataDir: dir, Node: node, Replica: rep, Leader: rep, Parents: br,
		Placement: &owners{b: br}, Clock: clock.Real(), Logger: telemetry.Discard(),
	})
	must(b, err)
	b.Cleanup(func() { e.Close() })
	r := newReconciler(e)
	r.tick()
	for {
		n := 0
		e.set.each(func(c *cursor) {
			if c.next.Load() != notStarted {
				n++
			}
		})
		if n == linked/2*12 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	r.e.exited.Store(false)
	return r
}

// One tick of the engine at 5,000 topics, nothing changed.
func BenchmarkTickUnchanged(b *testing.B) {
	r := benchReconciler(b, 0)
	for b.Loop() {
		r.schedule.ticks = 0
		r.tick()
	}
}

// A full pass at 5,000 topics without links, and with 2,500 links of 12 partitions.
func BenchmarkFullPass(b *testing.B) {
	for _, linked := range []int{0, 5000} {
		b.Run(fmt.Sprintf("links=%d", linked/2), func(b *testing.B) {
			r := benchReconciler(b, linked)
			for b.Loop() {
				r.schedule.again, r.schedule.ticks = true, 0
				r.tick()
			}
		})
	}
}

func BenchmarkBuckets(b *testing.B) {
	recs := benchRecords(DefaultMaxBatchRecords)
	var k buckets
	rule := placement{count: 12}
	b.ReportAllocs()
	for b.Loop() {
		k.sort(recs, rule.count, rule.of)
	}
}

func BenchmarkAdvance(b *testing.B) {
	dir := filepath.ToSlash(b.TempDir())
	f := cursorFile{fs: disk.OS{}, name: dir + "/fanout-c.offset"}
	defer f.release()
	must(b, f.anchor(record{someEpoch, 0}))
	b.ReportAllocs()
	next := int64(0)
	for b.Loop() {
		next++
		must(b, f.advance(record{someEpoch, next}))
	}
}
