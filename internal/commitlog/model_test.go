package commitlog

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// naive is a log as a slice: what the real one must answer like.
type naive struct {
	recs   []Stored
	oldest int64
}

// TestAgainstNaiveModel runs random operations on a log and on a slice, with tiny
// segments and caches, faults, restarts and power cuts, and compares every answer.
func TestAgainstNaiveModel_P1_P2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, clk: clock.NewFake(start), fsys: newVolume(rapid.Int64().Draw(t, "seed"))}
		m.fsys.SetNow(m.clk.Now)
		m.segment = rapid.Int64Range(200, 3000).Draw(t, "segment bytes")
		m.cache = NewCache(rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(t, "cache bytes"))
		codec, err := NewCodec(rapid.SampledFrom([]string{"none", "zstd"}).Draw(t, "codec"), "fastest")
		if err != nil {
			t.Fatal(err)
		}
		m.codec = codec
		m.open()
		t.Repeat(map[string]func(*rapid.T){
			"commit": m.commit, "commit2": m.commit, "read": m.read, "run": m.run, "slab": m.slab,
			"sweep": m.sweep, "restart": m.restart, "power": m.power, "fault": m.fault, "": m.invariants,
		})
		if err := m.l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

type machine struct {
	t       *rapid.T
	fsys    *disk.Sim
	clk     *clock.Fake
	cache   *Cache
	codec   Codec
	segment int64
	l       *Log
	want    naive
}

func (m *machine) open() {
	m.t.Helper()
	l, err := Open(Options{FS: m.fsys, Dir: testDir, Clock: m.clk, Cache: m.cache, Codec: m.codec, SegmentBytes: m.segment, MaxAge: time.Hour})
	if err != nil {
		m.t.Fatal(err)
	}
	m.l = l
}

func (m *machine) batch(t *rapid.T) []Record {
	n := rapid.IntRange(1, 30).Draw(t, "records")
	recs := make([]Record, n)
	for i := range recs {
		recs[i].Key = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "key")
		recs[i].Payload = rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "payload")
		recs[i].CommittedAt = m.clk.Now().UnixMilli() + rapid.Int64Range(-50, 50).Draw(t, "skew")
	}
	return recs
}

// accept adds a committed batch to the model.
func (m *machine) accept(t *rapid.T, first int64, recs []Record) {
	if first != int64(len(m.want.recs)) {
		t.Fatalf("commit at %d, want %d", first, len(m.want.recs))
	}
	m.want.recs = appendStored(m.want.recs, recs, first)
}

func (m *machine) commit(t *rapid.T) {
	m.clk.Advance(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
	recs := m.batch(t)
	first, err := m.l.Commit(recs)
	if err != nil {
		t.Fatal(err)
	}
	m.accept(t, first, recs)
}

// fault makes one call of a commit fail, then retries it until it lands.
func (m *machine) fault(t *rapid.T) {
	m.fsys.Fail(disk.Rule{Op: rapid.SampledFrom([]disk.Op{disk.OpWrite, disk.OpRead, disk.OpSync, disk.OpTruncate, disk.OpOpen}).Draw(t, "op"),
		N: rapid.IntRange(1, 3).Draw(t, "n")})
	recs := m.batch(t)
	for range 4 {
		first, err := m.l.Commit(recs)
		if err == nil {
			m.accept(t, first, recs)
			break
		}
		if errors.Is(err, model.ErrLogPoisoned) {
			m.fsys.ClearRules()
			if err := m.l.Close(); err != nil {
				t.Fatal(err)
			}
			m.open()
		}
	}
	m.fsys.ClearRules()
}

func (m *machine) restart(t *rapid.T) {
	if err := m.l.Close(); err != nil {
		t.Fatal(err)
	}
	m.open()
}

func (m *machine) power(t *rapid.T) {
	m.fsys = m.fsys.Crash(rapid.Int64().Draw(t, "seed"))
	m.fsys.SetNow(m.clk.Now)
	m.l.Close() // the old volume is gone: only to release what the log holds
	m.open()
}

func (m *machine) sweep(t *rapid.T) {
	if _, err := m.l.Sweep(m.clk.Now()); err != nil {
		t.Fatal(err)
	}
	if o := m.l.OldestOffset(); o < m.want.oldest || o > int64(len(m.want.recs)) {
		t.Fatalf("oldest moved from %d to %d", m.want.oldest, o)
	}
	m.want.oldest = m.l.OldestOffset()
}

func (m *machine) offset(t *rapid.T) int64 {
	return rapid.Int64Range(-1, int64(len(m.want.recs))+1).Draw(t, "offset")
}

func (m *machine) same(t *rapid.T, got, want Stored) {
	if got.Offset != want.Offset || string(got.Key) != string(want.Key) || string(got.Payload) != string(want.Payload) || got.CommittedAt != want.CommittedAt {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// refused checks the error of a read the model has no record for.
func (m *machine) refused(t *rapid.T, o int64, err error) bool {
	switch {
	case o < m.want.oldest:
		if !errors.Is(err, model.ErrOffsetGone) {
			t.Fatalf("read %d below %d: %v", o, m.want.oldest, err)
		}
	case o >= int64(len(m.want.recs)):
		if !errors.Is(err, ErrPastEnd) {
			t.Fatalf("read %d at the end: %v", o, err)
		}
	default:
		if err != nil {
			t.Fatalf("read %d: %v", o, err)
		}
		return false
	}
	return true
}

func (m *machine) read(t *rapid.T) {
	o := m.offset(t)
	s, err := m.l.Read(o)
	if !m.refused(t, o, err) {
		m.same(t, s, m.want.recs[o])
	}
}

func (m *machine) run(t *rapid.T) {
	o := m.offset(t)
	maxRecords, maxBytes := rapid.IntRange(1, 50).Draw(t, "max records"), rapid.IntRange(0, 500).Draw(t, "max bytes")
	recs, err := m.l.ReadRun(nil, o, maxRecords, maxBytes)
	if m.refused(t, o, err) {
		return
	}
	size := 0
	for i := range recs {
		m.same(t, recs[i], m.want.recs[o+int64(i)])
		size += len(recs[i].Key) + len(recs[i].Payload)
	}
	if len(recs) == 0 || len(recs) > maxRecords || maxBytes > 0 && len(recs) > 1 && size > maxBytes {
		t.Fatalf("%d records of %d bytes, limits %d and %d", len(recs), size, maxRecords, maxBytes)
	}
	if next := o + int64(len(recs)); len(recs) < maxRecords && next < int64(len(m.want.recs)) {
		n := m.want.recs[next]
		if maxBytes == 0 || size+len(n.Key)+len(n.Payload) <= maxBytes {
			t.Fatalf("run from %d stopped at %d without a reason", o, next)
		}
	}
}

func (m *machine) slab(t *rapid.T) {
	o := m.offset(t)
	gate := int64(0)
	if rapid.Bool().Draw(t, "gated") {
		gate = start.UnixMilli() + rapid.Int64Range(0, 3_000_000).Draw(t, "gate")
	}
	s, err := m.l.Slab(nil, o, SlabLimit{MaxRecords: 20, MaxBytes: 1000, MaxCommittedAt: gate})
	if o < m.want.oldest {
		m.refused(t, o, err)
		return
	}
	if err != nil || s.Next != o+int64(len(s.Records)) || s.Skipped != 0 {
		t.Fatalf("slab from %d: %d records, next %d, skipped %d, %v", o, len(s.Records), s.Next, s.Skipped, err)
	}
	for i, r := range s.Records {
		m.same(t, r, m.want.recs[o+int64(i)])
		if gate != 0 && r.CommittedAt > gate {
			t.Fatalf("record of %d passed the gate at %d", r.CommittedAt, gate)
		}
	}
	if s.Gated != 0 && s.Gated != m.want.recs[s.Next].CommittedAt {
		t.Fatalf("gated by %d, the next record has %d", s.Gated, m.want.recs[s.Next].CommittedAt)
	}
}

func (m *machine) invariants(t *rapid.T) {
	if h := m.l.HighWatermark(); h != int64(len(m.want.recs)) || m.l.NextOffset() != h {
		t.Fatalf("H=%d T=%d, want %d", h, m.l.NextOffset(), len(m.want.recs))
	}
	if o := m.l.OldestOffset(); o != m.want.oldest {
		t.Fatalf("oldest %d, want %d", o, m.want.oldest)
	}
	s := m.l.Stats()
	if s.HighWatermark != int64(len(m.want.recs)) || s.OldestOffset != m.want.oldest || s.SizeBytes < 0 {
		t.Fatalf("%+v", s)
	}
	if used := m.cache.Used(); used < 0 || used > max(m.cache.limit, 0) {
		t.Fatalf("cache holds %d bytes of %d", used, m.cache.limit)
	}
}
