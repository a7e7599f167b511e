package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/wal"
)

// fileOwner costs what a broker costs: every commit is one write, one sync and
// one read-back of a file per partition.
type fileOwner struct {
	dir     string
	mu      sync.Mutex
	files   map[int]*partitionFile
	commits atomic.Int64
	records atomic.Int64
}

type partitionFile struct {
	mu  sync.Mutex
	f   disk.File
	pos int64
	buf []byte
}

func (o *fileOwner) file(partition int) (*partitionFile, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.files[partition]
	if p == nil {
		f, err := disk.OS{}.Open(filepath.Join(o.dir, fmt.Sprint("p", partition)), os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, err
		}
		p = &partitionFile{f: f}
		o.files[partition] = p
	}
	return p, nil
}

func (o *fileOwner) Commit(_ context.Context, _ string, partition int, recs []model.Record) (int64, error) {
	p, err := o.file(partition)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buf = p.buf[:0]
	for _, r := range recs {
		p.buf = append(append(p.buf, r.Key...), r.Payload...)
	}
	if _, err := p.f.WriteAt(p.buf, p.pos); err != nil {
		return 0, err
	}
	if err := p.f.Sync(); err != nil {
		return 0, err
	}
	if _, err := p.f.ReadAt(p.buf, p.pos); err != nil {
		return 0, err
	}
	p.pos += int64(len(p.buf))
	o.commits.Add(1)
	o.records.Add(int64(len(recs)))
	return 0, nil
}

func (o *fileOwner) close() {
	for _, p := range o.files {
		p.f.Close()
	}
}

// placed puts every partition on one owner; nowhere = unresolved for ever.
type placed struct {
	owner   Owner
	nowhere bool
}

func (p placed) Owner(string, int) (Owner, string, bool, error) {
	if p.nowhere {
		return nil, "", false, model.ErrUnavailable
	}
	return p.owner, self, true, nil
}

func benchOptions(b *testing.B, w *world) Options {
	o := w.options(disk.OS{}, clock.Real())
	o.Dir = filepath.Join(b.TempDir(), "produce")
	return o
}

// BenchmarkAccept measures one message from the parsed request to its encoded
// body: topic, partition, record, encoding into a buffer the WAL owns.
func BenchmarkAccept(b *testing.B) {
	w := newWorld()
	view := w.create("t", idA, 3)
	in := &Ingress{clock: clock.Real(), dir: fixed{view}, turns: newRotations(rotationsMax), metrics: newMetrics()}
	payload := make([]byte, 1024)
	staged := make([]byte, 0, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		view, err := in.open("t")
		if err != nil {
			b.Fatal(err)
		}
		r := &record{topic: view.Name}
		if err := in.fill(r, view, Message{Payload: payload, Partition: AnyPartition}, in.clock.Now().UnixMilli()); err != nil {
			b.Fatal(err)
		}
		staged = wal.Entry(r).AppendTo(staged[:0])
	}
}

// fixed is a directory of one topic without a lock.
type fixed struct{ view *model.TopicView }

func (f fixed) Topic(string) (*model.TopicView, bool) { return f.view, true }
func (f fixed) TopicsVersion() uint64                 { return 1 }

// BenchmarkDecode measures one record read back from the file.
func BenchmarkDecode(b *testing.B) {
	r := vectorRecord()
	r.Payload = make([]byte, 1024)
	body := r.AppendTo(nil)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		f, err := decodeFields(body)
		if err != nil {
			b.Fatal(err)
		}
		f.record(r.topic, r.Incarnation)
	}
}

// BenchmarkSchedule measures the dispatcher's own work per record, place to done,
// in commits of 256 on three partitions.
func BenchmarkSchedule(b *testing.B) {
	w := newWorld()
	view := w.create("t", idA, 3)
	s := newScheduler(fixed{view}, placed{owner: w.node(self)}, self, 1, newMetrics(), slog.New(slog.DiscardHandler))
	records := make([]record, 256)
	now := epoch
	b.ReportAllocs()
	for b.Loop() {
		for i := range records {
			records[i] = record{topic: "t", partition: int32(i % 3), Record: model.Record{Incarnation: idA}}
			s.place(item{s.track.frontier, &records[i]}, false, now)
		}
		now = now.Add(time.Second)
		for s.track.held > 0 {
			for f := s.launch(now); f != nil; f = s.launch(now) {
				s.landed(&result{flight: f, ended: now}, now)
			}
			now = now.Add(time.Second)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.track.base), "ns/record")
}

// BenchmarkDispatch measures producers of 1 KiB messages against a real disk with
// the dispatcher off and on, in alternating slices of time so that a busy machine
// weighs on both: the second write may cost 15 % of the first. Reported are the
// accepted messages per second of both, the median ratio of neighbouring slices,
// commits per second, records per commit, and the backlog after the last slice.
func BenchmarkDispatch(b *testing.B) {
	for _, producers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) { benchDispatch(b, producers) })
	}
}

const (
	benchSlice = 200 * time.Millisecond
	benchPairs = 12
)

func benchDispatch(b *testing.B, producers int) {
	w := newWorld()
	w.create("t", idA, 3)
	owner := &fileOwner{dir: b.TempDir(), files: map[int]*partitionFile{}}
	defer owner.close()
	var nodes [2]*Ingress
	for i := range nodes {
		o := benchOptions(b, w)
		o.Placement = placed{owner: owner}
		nodes[i] = mustOpen(b, o)
	}
	nodes[0].StopDispatch()
	for b.Loop() {
		var rates [2]float64
		var ratios []float64
		for range benchPairs {
			off, on := produceFor(b, nodes[0], producers), produceFor(b, nodes[1], producers)
			rates[0], rates[1] = rates[0]+off/benchPairs, rates[1]+on/benchPairs
			ratios = append(ratios, on/off)
		}
		slices.Sort(ratios)
		b.ReportMetric(rates[0], "off-msg/s")
		b.ReportMetric(rates[1], "on-msg/s")
		b.ReportMetric(ratios[len(ratios)/2], "on/off")
		b.ReportMetric(float64(nodes[1].Backlog()), "backlog")
	}
	b.ReportMetric(float64(owner.commits.Load())/b.Elapsed().Seconds()*2, "commits/s")
	b.ReportMetric(float64(owner.records.Load())/float64(owner.commits.Load()), "rec/commit")
	for _, in := range nodes {
		mustClose(b, in)
	}
}

// produceFor lets producers run for a slice of time and returns messages a second.
func produceFor(b *testing.B, in *Ingress, producers int) float64 {
	payload := make([]byte, 1024)
	var done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range producers {
		wg.Go(func() {
			for time.Since(start) < benchSlice {
				if err := in.Accept(context.Background(), "t", Message{Payload: payload, Partition: AnyPartition}); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}
