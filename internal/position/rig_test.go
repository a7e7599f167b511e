package position

import (
	"bytes"
	"log/slog"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = model.PartitionKey{Topic: "jobs", Partition: 0}

// shard is a live partition reduced to what the committer sees of it.
type shard struct {
	mu       sync.Mutex
	pos      model.Position
	gone     bool
	snapshot func() // called within Position
}

func (s *shard) Position(dst []model.Run) (model.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot != nil {
		s.snapshot()
	}
	return model.Position{Committed: s.pos.Committed, Ahead: append(dst[:0], s.pos.Ahead...)}, !s.gone
}

// ack resolves one offset.
func (s *shard) ack(o int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o <= s.pos.Committed {
		return
	}
	runs := append(slices.Clone(s.pos.Ahead), model.Run{Start: o, End: o + 1})
	slices.SortFunc(runs, func(a, b model.Run) int { return int(a.Start - b.Start) })
	s.pos.Ahead = nil
	for _, r := range runs {
		n := len(s.pos.Ahead)
		switch {
		case r.Start <= s.pos.Committed+1:
			s.pos.Committed = max(s.pos.Committed, r.End-1)
		case n > 0 && r.Start <= s.pos.Ahead[n-1].End:
			s.pos.Ahead[n-1].End = max(s.pos.Ahead[n-1].End, r.End)
		default:
			s.pos.Ahead = append(s.pos.Ahead, r)
		}
	}
}

func (s *shard) position() model.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return model.Position{Committed: s.pos.Committed, Ahead: slices.Clone(s.pos.Ahead)}
}

// holds reports whether o is resolved in p.
func holds(p model.Position, o int64) bool {
	return o <= p.Committed || slices.ContainsFunc(p.Ahead, func(r model.Run) bool { return r.Start <= o && o < r.End })
}

// covers reports whether all that b resolves is resolved in a.
func covers(a, b model.Position) bool {
	for o := int64(0); o <= b.Committed; o++ {
		if !holds(a, o) {
			return false
		}
	}
	for _, r := range b.Ahead {
		for o := r.Start; o < r.End; o++ {
			if !holds(a, o) {
				return false
			}
		}
	}
	return true
}

// rig is a committer stepped by hand, on a fake clock.
type rig struct {
	t   testing.TB
	fs  disk.FS
	clk *clock.Fake
	c   *Committer
	log *bytes.Buffer
}

const interval = 300 * time.Millisecond // D of the rigs: three turns

func newRig(t testing.TB, fsys disk.FS) *rig {
	r := &rig{t: t, fs: fsys, clk: clock.NewFake(time.Unix(1_767_225_600, 0)), log: &bytes.Buffer{}}
	r.c = newCommitter(r.options())
	return r
}

func (r *rig) options() Options {
	return Options{FS: r.fs, Clock: r.clk, Interval: interval,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{ReplaceAttr: dropTime}))}
}

func dropTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// track makes the partition directory, loads it and tracks it.
func (r *rig) track(k model.PartitionKey, dir string) (*Tracked, *shard) {
	r.t.Helper()
	if err := disk.MkdirDurable(r.fs, dir); err != nil {
		r.t.Fatal(err)
	}
	return r.open(k, dir, testInc)
}

func (r *rig) open(k model.PartitionKey, dir string, inc model.Incarnation) (*Tracked, *shard) {
	r.t.Helper()
	pos, err := Load(r.fs, dir, inc)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &shard{pos: pos}
	return r.c.Track(k, dir, inc, s), s
}

// tick lets one T pass and steps.
func (r *rig) tick() (time.Duration, bool) {
	r.clk.Advance(r.c.tick)
	return r.c.step()
}

// durably steps until all is synced.
func (r *rig) durably() {
	for range r.c.turns + 2 {
		r.tick()
	}
}

func (r *rig) load() model.Position { return load(r.t, r.fs) }

func load(t testing.TB, fsys disk.FS) model.Position {
	t.Helper()
	pos, err := Load(fsys, dir, testInc)
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

func (r *rig) want(what string, got, want model.Position) {
	r.t.Helper()
	if !equal(got, want) {
		r.t.Fatalf("%s: %+v, want %+v\n%s", what, got, want, r.log)
	}
}

func (r *rig) logged(lines ...string) {
	r.t.Helper()
	want := ""
	for _, l := range lines {
		want += l + "\n"
	}
	if r.log.String() != want {
		r.t.Fatalf("logged\n%s, want\n%s", r.log, want)
	}
	r.log.Reset()
}

// offset is the value of consumer.offset, -2 when there is no valid one.
func offset(t testing.TB, s *disk.Sim, dir string) int64 {
	t.Helper()
	b, err := s.Dump(path.Join(dir, OffsetName))
	if err != nil {
		return -2
	}
	v, state := disk.DecodeFact(offsetMagic, b)
	if state != disk.FactValid {
		return -2
	}
	return v
}

func seqs(t testing.TB, s *disk.Sim) (out [2]uint64) {
	t.Helper()
	b, err := s.Dump(path.Join(dir, AheadName))
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		sl, _, err := decodeSlot(b[i*slotSize : (i+1)*slotSize])
		if err != nil {
			t.Fatal(err)
		}
		out[i] = sl.seq
	}
	return out
}
