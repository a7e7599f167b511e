package ingress

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
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

// BenchmarkAccept measures one message from the parsed request to durable on the
// simulated disk, whose sync costs nothing: what accepting itself costs.
func BenchmarkAccept(b *testing.B) {
	w := newWorld()
	w.create("t", idA, 3)
	o := w.options(disk.NewSim(1), clock.Real())
	o.Placement = placed{nowhere: true}
	in := mustOpen(b, o)
	in.StopDispatch()
	payload := make([]byte, 1024)
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	b.ResetTimer()
	for b.Loop() {
		if err := in.Accept(context.Background(), "t", Message{Payload: payload, Partition: AnyPartition}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	in.Close()
}

// BenchmarkDispatch measures producers of 1 KiB messages against a real disk,
// with the dispatcher off and on: the second write may cost 15 % of the first.
func BenchmarkDispatch(b *testing.B) {
	for _, producers := range []int{1, 64, 256} {
		for _, dispatch := range []bool{false, true} {
			name := fmt.Sprintf("producers=%d/dispatch=%v", producers, dispatch)
			b.Run(name, func(b *testing.B) { benchDispatch(b, producers, dispatch) })
		}
	}
}

func benchDispatch(b *testing.B, producers int, dispatch bool) {
	w := newWorld()
	w.create("t", idA, 3)
	owner := &fileOwner{dir: b.TempDir(), files: map[int]*partitionFile{}}
	defer owner.close()
	o := benchOptions(b, w)
	o.Placement = placed{owner: owner}
	in := mustOpen(b, o)
	if !dispatch {
		in.StopDispatch()
	}
	payload := make([]byte, 1024)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	for range producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := in.Accept(context.Background(), "t", Message{Payload: payload, Partition: AnyPartition}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/took.Seconds(), "msg/s")
	b.ReportMetric(float64(in.Backlog()), "backlog")
	b.ReportMetric(float64(owner.commits.Load())/took.Seconds(), "commits/s")
	if n := owner.commits.Load(); n > 0 {
		b.ReportMetric(float64(owner.records.Load())/float64(n), "rec/commit")
	}
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
}
