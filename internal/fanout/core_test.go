package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

const someEpoch = "67953471cc57a32a"

// The bytes on disk, fixed for good.
func TestRecordGolden(t *testing.T) {
	got := appendRecord(nil, record{someEpoch, 98332})
	want := `{"crc":"` + goldenCRC + `","epoch":"67953471cc57a32a","next_offset":98332}`
	want += strings.Repeat(" ", recordSize-1-len(want)) + "\n"
	if string(got) != want {
		t.Fatalf("%q\nwant %q", got, want)
	}
	r, fixed, err := decodeRecord(got)
	if err != nil || !fixed || r != (record{someEpoch, 98332}) {
		t.Fatalf("%+v, %v, %v", r, fixed, err)
	}
}

// goldenCRC is the CRC-32C of bytes 17 to 255 of the vector, computed elsewhere.
const goldenCRC = "3e52f981"

// What older releases wrote is read, and not taken for a record that can be
// overwritten in place.
func TestOlderForm(t *testing.T) {
	r, fixed, err := decodeRecord([]byte(`{"epoch":"67953471cc57a32a","next_offset":98332}` + "\n"))
	if err != nil || fixed || r != (record{someEpoch, 98332}) {
		t.Fatalf("%+v, %v, %v", r, fixed, err)
	}
	long := record{strings.Repeat("e", recordSize), 7}
	b := appendRecord(nil, long)
	if r, fixed, err = decodeRecord(b); err != nil || fixed || r != long {
		t.Fatalf("an epoch too long to pad: %+v, %v, %v", r, fixed, err)
	}
}

func TestDamagedRecords(t *testing.T) {
	good := appendRecord(nil, record{someEpoch, 98332})
	for i := range good {
		for _, bit := range []byte{1, 0x80} {
			b := bytes.Clone(good)
			b[i] ^= bit
			if r, _, err := decodeRecord(b); !isCorrupt(err) {
				t.Fatalf("bit %x of byte %d flipped: %+v, %v", bit, i, r, err)
			}
		}
	}
	for n := range good {
		if _, _, err := decodeRecord(good[:n]); !isCorrupt(err) {
			t.Fatalf("%d bytes of a record: %v", n, err)
		}
	}
	// A torn mix of two positions, and what no cursor can have written.
	other := appendRecord(nil, record{someEpoch, 99999})
	for _, b := range [][]byte{
		append(bytes.Clone(good[:70]), other[70:]...),
		append(bytes.Clone(other[:60]), good[60:]...),
		[]byte(`{"epoch":"","next_offset":1}`), []byte(`{"epoch":"e"}`), []byte(`{"epoch":"e","next_offset":-1}`),
		[]byte(`{"epoch":"e","next_offset":9223372036854775807}`), []byte(`{"epoch":"e","next_offset":1.5}`),
		bytes.Repeat([]byte(" "), cursorFileMax+1), []byte(`null`), []byte(`{"next_offset":1,"crc":"00000000","epoch":"e"}`),
	} {
		if r, _, err := decodeRecord(b); !isCorrupt(err) && !bytes.Equal(b, good) && !bytes.Equal(b, other) {
			t.Errorf("%q: %+v, %v", b, r, err)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(appendRecord(nil, record{someEpoch, 98332}))
	f.Add([]byte(`{"epoch":"67953471cc57a32a","next_offset":98332}`))
	f.Add(appendRecord(nil, record{strings.Repeat("e", 300), 0}))
	f.Add([]byte(`{"crc":"00000000"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, fixed, err := decodeRecord(b)
		if err != nil {
			if !errors.Is(err, model.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, _, err := decodeRecord(appendRecord(nil, r))
		if err != nil || again != r || fixed && len(b) != recordSize {
			t.Fatalf("%+v reads back as %+v, %v", r, again, err)
		}
	})
}

// The table "Start of a cursor".
func TestDecide(t *testing.T) {
	at := func(offsets ...int64) *link { return &link{epoch: someEpoch, offsets: offsets} }
	mine, foreign := &record{someEpoch, 7}, &record{"0000000000000000", 99}
	for _, c := range []struct {
		name string
		have *record
		l    *link
		p    int
		want beginning
	}{
		{"own file", mine, at(19, 10), 1, beginning{resumed, 7}},
		{"own file, legacy link", mine, at(), 0, beginning{resumed, 7}},
		{"no file", nil, at(19, 10), 1, beginning{anchored, 10}},
		{"foreign file", foreign, at(19, 10), 0, beginning{anchored, 19}},
		{"added after the attach", nil, at(19, 10), 2, beginning{anchored, 0}},
		{"added, foreign file", foreign, at(19, 10), 2, beginning{anchored, 0}},
		{"legacy link", nil, at(), 0, beginning{from: observed}},
		{"legacy link, foreign file", foreign, at(), 0, beginning{from: observed}},
		{"nonsense in the record", nil, at(-5), 0, beginning{anchored, 0}},
	} {
		if got := decide(c.have, c.l, c.p); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestGate(t *testing.T) {
	const hour = 3_600_000
	for _, c := range []struct {
		now, committed, delay int64
		due                   time.Duration
		lag                   float64
	}{
		{1000, 1000, 0, 0, 0},                              // no delay
		{10 * hour, 9 * hour, hour, 0, 0},                  // due this millisecond
		{10 * hour, 9*hour + 1, hour, time.Millisecond, 0}, // in one
		{10 * hour, 9*hour - 2500, hour, 0, 2.5},
		{10 * hour, 10 * hour, hour, dueWakeMax, 0},       // far off
		{10 * hour, 9*hour + 30_000, hour, dueWakeMax, 0}, // just the longest sleep
		{10 * hour, 1 << 62, hour, dueWakeMax, 0},         // a commit time of nonsense
		{5, 4, hour, time.Millisecond * 3, 0},             // a clock before the delay has passed once
	} {
		if got := dueIn(c.now, c.committed, c.delay); got != c.due {
			t.Errorf("%+v: due in %s", c, got)
		}
		if got := dueLag(c.now, c.committed, c.delay); c.delay > 0 && got != c.lag {
			t.Errorf("%+v: overdue by %v s", c, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(2, 1<<50).Draw(t, "now")
		delay := rapid.Int64Range(1, 31_536_000_000).Draw(t, "delay")
		committed := rapid.Int64Range(1, 1<<50).Draw(t, "committed")
		passes := committed <= gateAt(now, delay)
		if passes && committed+delay > now && now > delay {
			t.Fatalf("early: committed %d, delay %d, now %d", committed, delay, now)
		}
		if passes != (dueIn(now, committed, delay) == 0) {
			t.Fatalf("gate and sleep disagree: committed %d, delay %d, now %d", committed, delay, now)
		}
	})
}

// Each record is in the bucket of its partition, and each bucket in slab order.
func TestBucketsAreStable(t *testing.T) {
	var b buckets
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 12).Draw(t, "count")
		keys := rapid.SliceOfN(rapid.StringMatching(`[a-e]{0,2}`), 0, 60).Draw(t, "keys")
		recs := make([]model.Record, len(keys))
		for i, k := range keys {
			recs[i] = model.Record{Key: []byte(k), AcceptedAt: int64(i)}
		}
		rule := placement{count: count, keepsIndex: true, parent: count - 1}
		b.sort(recs, count, rule.of)
		seen := 0
		for p := range count {
			last := int64(-1)
			for _, r := range b.of(p) {
				seen++
				want := count - 1
				if len(r.Key) > 0 {
					want = model.KeyPartition(r.Key, count)
				}
				if want != p || r.AcceptedAt <= last {
					t.Fatalf("record %d with key %q in bucket %d behind %d", r.AcceptedAt, r.Key, p, last)
				}
				last = r.AcceptedAt
			}
		}
		if seen != len(recs) {
			t.Fatalf("%d of %d records", seen, len(recs))
		}
	})
}

func TestKeylessPlacement(t *testing.T) {
	l := &link{}
	parent := &model.TopicView{Topic: model.Topic{Name: "p", Partitions: 3, Children: []string{"c"}}}
	l, ok := linkOf(parent, &model.TopicView{Topic: model.Topic{Name: "c", Parent: "p", AttachEpoch: "e"}})
	if !ok {
		t.Fatal("no link")
	}
	same := placement{count: 3, keepsIndex: true, parent: 2, roundRobin: l.roundRobin}
	other := placement{count: 4, parent: 2, roundRobin: l.roundRobin}
	hits := make([]int, 4)
	for range 40 {
		if p := same.of(&model.Record{}); p != 2 {
			t.Fatalf("same count: partition %d, want the parent's", p)
		}
		hits[other.of(&model.Record{})]++
	}
	if !slices.Equal(hits, []int{10, 10, 10, 10}) {
		t.Errorf("other count: %v, want turns", hits)
	}
}

func TestSchedule(t *testing.T) {
	now := epoch0
	s := newSchedule()
	v := versions{topics: 1}
	tick := func(current, exited bool) string {
		now = now.Add(reconcileEvery)
		pass, sweep := s.tick(now, v, current, exited)
		return fmt.Sprint(pass, sweep)
	}
	expect := func(got, want, when string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: pass and sweep %s, want %s", when, got, want)
		}
	}
	expect(tick(false, false), "false false", "not current at the start")
	expect(tick(true, false), "true false", "first current tick")
	expect(tick(true, false), "false false", "nothing moved")
	for _, move := range []func(){
		func() { v.topics++ }, func() { v.assignments++ }, func() { v.schemas++ }, func() { v.users++ },
	} {
		move()
		expect(tick(true, false), "true false", "a version moved")
		expect(tick(true, false), "false false", "and stands again")
	}
	expect(tick(true, true), "true false", "a cursor exited")
	s.unfinished()
	expect(tick(true, false), "true false", "work left behind")
	expect(tick(false, false), "false false", "not current")
	expect(tick(true, false), "true false", "current again")
	expect(tick(false, true), "false false", "a cursor exited while not current")
	expect(tick(true, false), "true false", "which is not forgotten")
	passes, sweeps, since := 0, 0, 0
	for range 3 * sweepTicks {
		got := tick(true, false)
		since++
		if got != "false false" {
			passes++
			if since > int(reconcileForced/reconcileEvery) {
				t.Errorf("%d ticks without a full pass", since)
			}
			since = 0
		}
		if got == "true true" {
			sweeps++
		}
	}
	if sweeps != 3 || passes > 6 {
		t.Errorf("%d sweeps, %d passes in %d quiet ticks", sweeps, passes, 3*sweepTicks)
	}
}

func TestCompare(t *testing.T) {
	a, b := &link{epoch: "a"}, &link{epoch: "b"}
	k := func(p int, child string) place { return place{"p", p, child} }
	wanted := map[place]*link{k(0, "kept"): a, k(0, "new"): a, k(0, "again"): b}
	running := map[place]*cursor{k(0, "kept"): {link: a}, k(0, "again"): {link: a}, k(0, "old"): {link: a}}
	stop, start := compare(wanted, running)
	if len(stop) != 2 || !slices.Contains(stop, running[k(0, "again")]) || !slices.Contains(stop, running[k(0, "old")]) {
		t.Errorf("stops %v", stop)
	}
	if !slices.Equal(start, []place{k(0, "new")}) {
		t.Errorf("starts %v: a place whose cursor has not ended waits", start)
	}
}

// A crash at every call of writing and advancing a cursor file leaves a position that
// was written, or none before the first.
func TestFileCrashAtEveryCall(t *testing.T) {
	const name = "data/topics/p/p00000/fanout-c.offset"
	crashPoints(t, func(s *disk.Sim) error {
		f := cursorFile{fs: s, name: name}
		defer f.release()
		if err := f.anchor(record{someEpoch, 5}); err != nil {
			return err
		}
		for i := range int64(3) {
			if err := f.advance(record{someEpoch, 10 + i}); err != nil {
				return err
			}
			if i == 1 {
				f.release()
			}
		}
		return nil
	}, func(t *testing.T, s *disk.Sim, done bool) {
		f := cursorFile{fs: s, name: name}
		r, err := f.read()
		switch {
		case err != nil && done:
			t.Fatal(err)
		case err != nil && isCorrupt(err):
			t.Fatalf("torn: %v", err)
		case err == nil && (r.epoch != someEpoch || r.next != 5 && (r.next < 10 || r.next > 12)):
			t.Fatalf("holds %+v", r)
		case done && r.next != 12:
			t.Fatalf("lost an advance: %+v", r)
		}
	})
}

// After a failed sync the file is not synced again: the next position is a new file.
func TestFailedSyncIsNotRetried(t *testing.T) {
	s := disk.NewSim(3)
	must(t, disk.MkdirDurable(s, "d"))
	f := cursorFile{fs: s, name: "d/fanout-c.offset"}
	defer f.release()
	must(t, f.anchor(record{someEpoch, 1}))
	must(t, f.advance(record{someEpoch, 2}))
	s.Fail(disk.Rule{Op: disk.OpSync, Path: "d/fanout-c.offset", N: 1})
	if err := f.advance(record{someEpoch, 3}); err == nil {
		t.Fatal("a failed sync is not told")
	}
	s.ClearRules()
	before, err := s.Stat("d/fanout-c.offset")
	must(t, err)
	must(t, f.advance(record{someEpoch, 4}))
	after, err := s.Stat("d/fanout-c.offset")
	must(t, err)
	if before.ID == after.ID {
		t.Error("the file whose sync failed was written again")
	}
	r, err := (&cursorFile{fs: s.Crash(1), name: "d/fanout-c.offset"}).read()
	if err != nil || r.next != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A file that was replaced or removed behind the cursor's back is not written.
func TestForeignFileIsNotOverwritten(t *testing.T) {
	s := disk.NewSim(3)
	must(t, disk.MkdirDurable(s, "d"))
	f := cursorFile{fs: s, name: "d/fanout-c.offset"}
	must(t, f.anchor(record{someEpoch, 1}))
	other := cursorFile{fs: s, name: f.name}
	must(t, other.anchor(record{"another", 50}))
	if err := f.advance(record{someEpoch, 2}); !errors.Is(err, errForeign) {
		t.Errorf("over another epoch's: %v", err)
	}
	must(t, s.Remove(f.name))
	if err := f.advance(record{someEpoch, 2}); !errors.Is(err, errForeign) {
		t.Errorf("without a file: %v", err)
	}
}

// What one request to another node carries is bounded in bytes and records; a record
// larger than that goes alone.
func TestRunLength(t *testing.T) {
	records := func(n, size int) []model.Record {
		recs := make([]model.Record, n)
		payload := make([]byte, size)
		for i := range recs {
			recs[i].Payload = payload
		}
		return recs
	}
	for _, c := range []struct{ n, size, want int }{
		{1, 10, 1}, {4096, 1000, 4096}, {20, 1 << 20, 7}, {3, peer.CommitBytesMax + 1, 1},
		{commitRecordsMax, 1, commitRecordsMax}, {commitRecordsMax + 1, 1, commitRecordsMax},
	} {
		if got := runLength(records(c.n, c.size)); got != c.want {
			t.Errorf("%d records of %d bytes: %d in the first commit, want %d", c.n, c.size, got, c.want)
		}
	}
}

// One bucket goes as several commits; after a failure only what is left is tried again.
func TestLargeBucketGoesInRuns(t *testing.T) {
	var sizes []int
	failAt := 2
	owner := ownerFunc(func(recs []model.Record) error {
		if len(sizes)+1 == failAt {
			failAt = 0
			return errors.New("connection refused")
		}
		sizes = append(sizes, len(recs))
		return nil
	})
	e := &Engine{hard: t.Context()}
	c := &cursor{e: e}
	recs := make([]model.Record, 20)
	for i := range recs {
		recs[i].Payload = make([]byte, 1<<20)
	}
	left, err := c.commitRuns(owner, 0, recs)
	if err == nil || len(left) != 13 {
		t.Fatalf("%d left, %v", len(left), err)
	}
	if left, err = c.commitRuns(owner, 0, left); err != nil || len(left) != 0 || !slices.Equal(sizes, []int{7, 7, 6}) {
		t.Errorf("%d left, %v; commits of %v records", len(left), err, sizes)
	}
}

type ownerFunc func(recs []model.Record) error

func (f ownerFunc) Commit(_ context.Context, _ string, _ int, recs []model.Record) (int64, error) {
	return 0, f(recs)
}
