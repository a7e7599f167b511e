package ingress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// history is what a run's producers saw.
type history struct {
	mu    sync.Mutex
	tried map[string]bool // payload -> 202
}

func (h *history) produce(in *Ingress, payloads ...string) {
	ms := make([]Message, len(payloads))
	for i, p := range payloads {
		ms[i] = Message{Payload: []byte(p), Partition: AnyPartition}
	}
	var err error
	if len(ms) == 1 {
		err = in.Accept(bg, "t", ms[0])
	} else {
		err = in.AcceptMany(bg, "t", ms)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range payloads {
		h.tried[p] = err == nil
	}
}

// workload accepts singles and batches over several segments, lets them be
// dispatched, leaves some, and closes.
func workload(in *Ingress, h *history) error {
	for i := range 6 {
		h.produce(in, fmt.Sprint("single", i))
		h.produce(in, fmt.Sprint("batch", i, "a"), fmt.Sprint("batch", i, "b"), fmt.Sprint("batch", i, "c"))
		time.Sleep(300 * time.Millisecond) // the bubble's clock
		synctest.Wait()
	}
	in.StopDispatch()
	h.produce(in, "late1")
	h.produce(in, "late2")
	return in.Close()
}

func smallSegments(o Options) Options {
	o.SegmentBytes = 512
	return o
}

// judge reopens the volume, lets it drain and holds it against the history:
// everything answered with a 202 was committed (O1), nothing else than what was
// produced (O2), and the backlog ends (O8).
func judge(t *testing.T, w *world, h *history, sim *disk.Sim) {
	t.Helper()
	in, err := Open(smallSegments(w.options(sim, clock.Real())))
	if err != nil {
		t.Fatalf("reopen: %v", err)
	}
	time.Sleep(2 * time.Second) // the bubble's clock
	synctest.Wait()
	if in.Backlog() != 0 {
		t.Errorf("backlog %d after the restart", in.Backlog())
	}
	if err := in.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	all := w.all()
	for p, acked := range h.tried {
		if acked && all[p] == 0 {
			t.Errorf("O1: %s was answered 202 and is nowhere", p)
		}
	}
	for p := range all {
		if _, ok := h.tried[p]; !ok {
			t.Errorf("O2: %q was never produced", p)
		}
	}
}

// TestF1F2F3F4CrashAtEveryCall cuts the power at every I/O call of the workload,
// and then at every I/O call of the recovery (F6).
func TestF1F2F3F4CrashAtEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var h *history
		testutil.CrashPoints(t, func() *disk.Sim { return disk.NewSim(1) },
			func(sim *disk.Sim) error {
				w, h = newWorld(), &history{tried: map[string]bool{}}
				w.create("t", idA, 3)
				in, err := Open(smallSegments(w.options(sim, clock.Real())))
				if err != nil {
					return err
				}
				return workload(in, h)
			},
			func(crashed *disk.Sim, k int) {
				for j := 1; k%7 == 0 && j <= 4; j++ {
					crashed.CrashAt(j * 5)
					if in, err := Open(smallSegments(w.options(crashed, clock.Real()))); err == nil {
						time.Sleep(time.Second)
						_ = in.Close() // the volume has crashed
					}
					crashed = crashed.Crash(int64(k*100 + j))
				}
				judge(t, w, h, crashed)
			})
	})
}

// TestF12F14F18FailEveryCall lets each write, sync and create fail once, with EIO
// and ENOSPC. What was answered 202 before or after is committed after a restart.
func TestF12F14F18FailEveryCall(t *testing.T) {
	for _, op := range []disk.Op{disk.OpSync, disk.OpWrite, disk.OpOpen, disk.OpRename, disk.OpSyncDir} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w *world
				var h *history
				testutil.FailPoints(t, func() *disk.Sim { return disk.NewSim(1) }, disk.Rule{Op: op, Err: errInjected},
					func(sim *disk.Sim) error {
						w, h = newWorld(), &history{tried: map[string]bool{}}
						w.create("t", idA, 3)
						in, err := Open(smallSegments(w.options(sim, clock.Real())))
						if err != nil {
							return err
						}
						latched := false
						for i := range 6 {
							h.produce(in, fmt.Sprint("m", i), fmt.Sprint("n", i))
							if latched && h.tried[fmt.Sprint("m", i)] {
								t.Errorf("a 202 after the WAL latched")
							}
							latched = latched || errors.Is(in.Failed(), model.ErrWALFailed)
							time.Sleep(300 * time.Millisecond)
						}
						return in.Close()
					},
					func(sim *disk.Sim, _ int, _ error) { judge(t, w, h, sim.Crash(7)) })
			})
		})
	}
}

var errInjected = errors.New("injected")

// TestUndecodableRecordStops: a record of an unknown format stops the dispatcher
// loudly; what came before is committed, nothing is skipped, the checkpoint stays.
func TestUndecodableRecordStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.create("t", idA, 3)
		sim := disk.NewSim(1)
		in := mustOpen(t, w.options(sim, clock.Real()))
		in.StopDispatch()
		mustAccept(t, in, "t", Message{Payload: text("before"), Partition: 0})
		if err := in.log.Append(bg, strange{}); err != nil {
			t.Fatal(err)
		}
		mustAccept(t, in, "t", Message{Payload: text("behind"), Partition: 0})
		mustClose(t, in)

		in = mustOpen(t, w.options(sim, clock.Real()))
		after(time.Minute)
		if err := in.Failed(); !errors.Is(err, model.ErrCorrupt) {
			t.Fatalf("Failed() = %v, want ErrCorrupt", err)
		}
		if all := w.all(); all["before"] != 1 || all["behind"] != 0 {
			t.Fatalf("stored %v, want before and nothing else", all)
		}
		if in.Backlog() != 2 {
			t.Fatalf("backlog %d, want 2", in.Backlog())
		}
		mustAccept(t, in, "t", Message{Payload: text("accepted"), Partition: 0})
		mustClose(t, in)
	})
}

// strange is a WAL body of format 9.
type strange struct{}

func (strange) Size() int                  { return 2 }
func (strange) AppendTo(dst []byte) []byte { return append(dst, 9, 9) }

// TestRealDisk: the same on the operating system's files.
func TestRealDisk(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	o := w.options(disk.OS{}, clock.Real())
	o.Dir = filepath.Join(t.TempDir(), "ingress", "produce")
	in := mustOpen(t, o)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if err := in.Accept(bg, "t", Message{Payload: text("%d-%d", g, i), Partition: AnyPartition}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	testutil.Eventually(t, 10*time.Second, func() bool { return in.Backlog() == 0 }, "the backlog drains")
	if n := len(w.all()); n != 400 {
		t.Fatalf("%d messages stored, want 400", n)
	}
	mustClose(t, in)
	if _, err := os.Stat(filepath.Join(o.Dir, "dispatch.checkpoint")); err != nil {
		t.Fatal(err)
	}
}
