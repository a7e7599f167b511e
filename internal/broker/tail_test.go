package broker

import (
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// A reader that keeps its own place: woken by a commit whether the log is open or not,
// never keeping it open by looking where it ends, and never reading another life.
func TestTailReaders(t *testing.T) {
	r := newRig(t)
	v := r.create(view("t", 2))
	lim := commitlog.SlabLimit{MaxRecords: 10, MaxBytes: 1 << 20}
	s, err := r.b.Slab("t", v.ID, 1, nil, 0, lim)
	if err != nil || len(s.Records) != 0 || s.Next != 0 {
		t.Fatalf("a partition without files: %+v, %v", s, err)
	}
	if high, exact, err := r.b.Tail("t", v.ID, 1); high != 0 || !exact || err != nil {
		t.Fatalf("its tail: %d, %v, %v", high, exact, err)
	}
	changed, err := r.b.Changed("t", v.ID, 1)
	wantErr(t, err, nil)
	r.commit("t", 0, "elsewhere")
	select {
	case <-changed:
		t.Fatal("a commit to another partition wakes")
	default:
	}
	r.commit("t", 1, "a", "b")
	select {
	case <-changed:
	default:
		t.Fatal("the first commit, which opens the log, does not wake")
	}
	if s, err = r.b.Slab("t", v.ID, 1, nil, 0, lim); err != nil || len(s.Records) != 2 || s.Next != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	r.reopen()
	if high, exact, err := r.b.Tail("t", v.ID, 1); high != 2 || !exact || err != nil || r.b.openLogs.Load() != 0 {
		t.Errorf("closed: tail %d, %v, %v with %d logs open", high, exact, err, r.b.openLogs.Load())
	}
	if high, err := r.b.HighWatermark("t", v.ID, 1); high != 2 || err != nil {
		t.Errorf("high watermark %d, %v", high, err)
	}
	other := model.NewIncarnation()
	_, err = r.b.Slab("t", other, 1, nil, 0, lim)
	wantErr(t, err, model.ErrTopicChanged)
	_, _, err = r.b.Tail("t", other, 1)
	wantErr(t, err, model.ErrTopicChanged)
	_, err = r.b.Changed("gone", other, 0)
	wantErr(t, err, model.ErrTopicNotFound)
	_, _, err = r.b.Tail("t", v.ID, 9)
	wantErr(t, err, model.ErrInvalid)
}

// Looking at the tail is no use of the log: it is closed for idleness all the same.
func TestTailKeepsNoLogOpen(t *testing.T) {
	r := newRig(t, func(o *Options) { o.IdleEviction = time.Minute })
	v := r.create(view("t", 1))
	r.commit("t", 0, "a")
	r.advance(time.Minute, func() bool {
		if _, _, err := r.b.Tail("t", v.ID, 0); err != nil {
			t.Fatal(err)
		}
		return r.b.openLogs.Load() == 0
	}, "the log to close")
}

func BenchmarkAnnounceWithoutReader(b *testing.B) {
	var s tailSignal
	b.ReportAllocs()
	for b.Loop() {
		s.announce()
	}
}
