package position

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// TestCadence follows one partition: window at the next tick, durable within D,
// levelled after 30 s, and no tick without a reason.
func TestCadence(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	if !tr.Level() {
		t.Fatal("an untouched partition is not level")
	}
	before := sim.Calls()
	if _, more := r.tick(); more || sim.Calls() != before {
		t.Fatalf("an idle tick made %d calls, more %v", sim.Calls()-before, more)
	}

	s.ack(0)
	s.ack(2)
	tr.Dirty()
	want := settled(0, model.Run{Start: 2, End: 3})
	wait, more := r.tick()
	if !more || wait != r.c.tick || tr.Level() {
		t.Fatalf("after the write: wait %v %v, level %v", wait, more, tr.Level())
	}
	r.want("process crash after T", r.load(), want)
	for range r.c.turns {
		wait, more = r.tick()
	}
	if !more || wait < LevelInterval-time.Second {
		t.Fatalf("when durable: wait %v %v", wait, more)
	}
	r.want("power loss after D+T", load(t, sim.Crash(1)), want)
}

func TestLevel(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.durably()
	if got := offset(t, sim, dir); got != -2 {
		t.Fatalf("consumer.offset after D: %d", got)
	}
	for now := time.Duration(0); now < LevelInterval; now += r.c.tick {
		r.tick()
	}
	if got := offset(t, sim, dir); got != 0 || !tr.Level() {
		t.Fatalf("consumer.offset after 30 s: %d, level %v", got, tr.Level())
	}
	if _, more := r.tick(); more {
		t.Error("a level partition keeps the timer")
	}

	// A busy one is levelled as well, at most every 30 s.
	writes := 0
	last := offset(t, sim, dir)
	for i := range 900 {
		s.ack(int64(i + 1))
		tr.Dirty()
		r.tick()
		if now := offset(t, sim, dir); now != last {
			writes, last = writes+1, now
		}
	}
	if writes < 2 || writes > 3 {
		t.Errorf("consumer.offset written %d times in 90 s", writes)
	}
}

// TestC6Close: whatever state the partitions are in, Close leaves both files exact.
func TestC6Close(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	dirs := map[string]*shard{}
	for i, prepare := range []func(*Tracked){
		func(*Tracked) {},                             // dirty only
		func(*Tracked) { r.tick() },                   // written
		func(*Tracked) { r.durably() },                // durable, not level
		func(*Tracked) { r.clk.Advance(time.Hour) },   // all overdue
		func(t *Tracked) { r.durably(); t.c.step() },  //
		func(t *Tracked) { r.durably(); t.release() }, // descriptor gone
	} {
		d := path.Join("/data/topics/jobs", fmt.Sprintf("p%05d", i))
		tr, s := r.track(model.PartitionKey{Topic: "jobs", Partition: i}, d)
		s.ack(0)
		s.ack(5)
		tr.Dirty()
		prepare(tr)
		s.ack(1)
		tr.Dirty()
		dirs[d] = s
	}
	if err := r.c.finish(); err != nil {
		t.Fatal(err)
	}
	after := sim.Crash(3)
	for d, s := range dirs {
		got, err := Load(after, d, testInc)
		if err != nil {
			t.Fatal(err)
		}
		r.want(d, got, s.position())
		if v := offset(t, after, d); v != 1 {
			t.Errorf("%s: consumer.offset %d after Close", d, v)
		}
	}
	r.logged()
	if len(r.c.shared.held) != 0 {
		t.Errorf("%d descriptors held after Close", len(r.c.shared.held))
	}
}

// TestF12FailedSync: the anchor is left alone, the window is written again in full
// before the next sync, and the position is durable then.
func TestF12FailedSync(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.durably()
	durable := s.position()

	s.ack(1)
	tr.Dirty()
	sim.Fail(disk.Rule{Op: disk.OpSync, Path: AheadName, N: 1, Err: syscall.EIO})
	for sim.Fired() == 0 {
		r.tick()
	}
	anchor := 1 - tr.file.window
	before := seqs(t, sim)
	r.want("anchor", load(t, sim.Crash(5)), durable)

	sim = disk.NewSim(1) // the same again, up to a sync that must find a fresh window
	r = newRig(t, sim)
	tr, s = r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.durably()
	s.ack(1)
	tr.Dirty()
	sim.Fail(disk.Rule{Op: disk.OpSync, Path: AheadName, N: 1, Err: syscall.EIO})
	for sim.Fired() == 0 {
		r.tick()
	}
	sim.ClearRules()
	r.tick()
	after := seqs(t, sim)
	if after[anchor] != before[anchor] || after[1-anchor] <= before[1-anchor] {
		t.Errorf("slots %v then %v, anchor %d", before, after, anchor)
	}
	r.durably()
	r.want("after the next sync", load(t, sim.Crash(5)), s.position())
	if !strings.Contains(r.log.String(), "consumer offset commit failed; it is tried again at the next tick") {
		t.Errorf("logged %q", r.log)
	}
}

// TestF12NoSyncWithoutARewrite: a window whose sync failed is not synced again until
// it was written in full, even if that takes long and its level is due meanwhile.
func TestF12NoSyncWithoutARewrite(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.durably()
	durable := s.position()
	s.ack(1)
	tr.Dirty()
	r.clk.Advance(LevelInterval) // the sync and the level are due in one tick
	window := tr.file.window
	tr.turn = int64(r.clk.Now().Add(r.c.tick).Sub(r.c.epoch)/r.c.tick) % r.c.turns
	sim.Fail(disk.Rule{Op: disk.OpSync, Path: AheadName, N: 1, Err: syscall.EIO})
	r.tick()
	if sim.Fired() != 1 {
		t.Fatal("no sync in that tick")
	}
	sim.ClearRules()
	sim.Fail(disk.Rule{Op: disk.OpWrite, Path: AheadName, N: 1, Sticky: true, Err: syscall.EIO})
	for range 20 {
		if since, waiting := tr.waiting(); !waiting || tr.file.window != window {
			t.Fatalf("synced without a rewrite: waiting %v since %v", waiting, since)
		}
		r.tick()
	}
	if v := offset(t, sim, dir); v > durable.Committed {
		t.Fatalf("consumer.offset %d is ahead of what is durable, %+v", v, durable)
	}
	sim.ClearRules()
	r.durably()
	r.want("after a rewrite", load(t, sim.Crash(1)), s.position())
}

// TestF12FailedPrimeSync: a record that another process left in the page cache is
// not trusted after its sync failed.
func TestF12FailedPrimeSync(t *testing.T) {
	for seed := range int64(300) {
		sim := disk.NewSim(seed)
		r := newRig(t, sim)
		tr, s := r.track(key, dir)
		s.ack(0)
		tr.Dirty()
		r.durably()
		tr.turn = -1
		s.ack(1)
		tr.Dirty()
		r.tick() // in the page cache when the process dies
		guaranteed := settled(0)

		r = newRig(t, sim)
		tr, s = r.open(key, dir, testInc)
		tr.turn = -1
		s.ack(2)
		tr.Dirty()
		sim.Fail(disk.Rule{Op: disk.OpSync, Path: AheadName, N: 1, Err: syscall.EIO})
		r.tick()
		if sim.Fired() != 1 || tr.file.primed {
			t.Fatalf("fired %d, primed %v", sim.Fired(), tr.file.primed)
		}
		sim.ClearRules()
		r.tick() // primes and writes the window
		got := load(t, sim.Crash(seed))
		if !covers(got, guaranteed) || !covers(s.position(), got) {
			t.Fatalf("seed %d: %+v, promised %+v, resolved %+v", seed, got, guaranteed, s.position())
		}
	}
}

// TestF14FullDisk: nothing is lost in memory while the volume is full, the file that
// exists needs no more room, and it goes on by itself when there is room.
func TestF14FullDisk(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	sim.SetCapacity(1)
	s.ack(0)
	tr.Dirty()
	for range 5 {
		if _, more := r.tick(); !more {
			t.Fatal("gave up")
		}
	}
	if n := strings.Count(r.log.String(), "\n"); n != 1 || !strings.Contains(r.log.String(), "no space left") {
		t.Errorf("%d lines: %s", n, r.log)
	}
	sim.SetCapacity(0)
	r.durably()
	r.want("with room", r.load(), s.position())

	sim.SetCapacity(1)
	s.ack(1)
	tr.Dirty()
	r.durably()
	r.want("a full disk, file in place", load(t, sim.Crash(1)), s.position())
}

// TestF17WriteErrorsAreRetried at every call of a tick, each failing once.
func TestF17WriteErrorsAreRetried(t *testing.T) {
	for _, op := range []disk.Op{disk.OpOpen, disk.OpOpenDir, disk.OpRead, disk.OpWrite, disk.OpSync, disk.OpSyncDir} {
		for n := 1; ; n++ {
			sim := disk.NewSim(1)
			r := newRig(t, sim)
			tr, s := r.track(key, dir)
			sim.Fail(disk.Rule{Op: op, N: n, Err: syscall.EIO})
			s.ack(0)
			tr.Dirty()
			r.durably()
			r.durably()
			r.clk.Advance(LevelInterval)
			r.c.step()
			r.clk.Advance(LevelInterval)
			r.c.step()
			r.want(fmt.Sprintf("%s %d", op, n), load(t, sim.Crash(1)), s.position())
			if offset(t, sim, dir) != 0 || tr.file.stranded {
				t.Fatalf("%s %d: consumer.offset %d, stranded %v", op, n, offset(t, sim, dir), tr.file.stranded)
			}
			if sim.Fired() == 0 {
				break
			}
		}
	}
}

const strandedLine = `level=ERROR msg="consumer offsets: partition directory removed or replaced under its persisted state; its acks are not persisted until the partition is dropped" topic=jobs partition=0`

// TestStranded: once the path is gone or names something else, nothing is written to
// it, whatever state the partition was in, and the log says so once.
func TestStranded(t *testing.T) {
	replace := map[string]func(disk.FS) error{
		"renamed": func(f disk.FS) error { return f.Rename(dir, dir+".stale") },
		"replaced": func(f disk.FS) error {
			return errors.Join(f.Rename(dir, dir+".stale"), f.Mkdir(dir))
		},
		"replaced with files": func(f disk.FS) error {
			err := errors.Join(f.Rename(dir, dir+".stale"), f.Mkdir(dir))
			put(t, f, path.Join(dir, AheadName), aheadFile(nil, nil))
			put(t, f, path.Join(dir, OffsetName), offsetFile(-1))
			return err
		},
		"file removed": func(f disk.FS) error { return f.Remove(path.Join(dir, AheadName)) },
	}
	states := map[string]func(*rig, *Tracked){
		"tracked": func(*rig, *Tracked) {},
		"written": func(r *rig, tr *Tracked) { tr.Dirty(); r.tick() },
		"durable": func(r *rig, tr *Tracked) { tr.Dirty(); r.durably() },
		"evicted": func(r *rig, tr *Tracked) { tr.Dirty(); r.durably(); tr.release() },
	}
	for how, swap := range replace {
		for state, reach := range states {
			if how == "file removed" && state == "tracked" {
				continue // there is none yet
			}
			sim := disk.NewSim(1)
			r := newRig(t, sim)
			tr, s := r.track(key, dir)
			s.ack(0)
			reach(r, tr)
			if err := swap(sim); err != nil {
				t.Fatal(err)
			}
			old := contents(t, sim)
			s.ack(1)
			tr.Dirty()
			r.durably()
			r.clk.Advance(LevelInterval)
			for range 3 {
				tr.Dirty()
				r.c.step()
			}
			if got := contents(t, sim); got != old && state != "written" {
				t.Errorf("%s, %s: files changed from %s to %s", how, state, old, got)
			}
			r.logged(strandedLine)
			if tr.Level() || len(r.c.shared.held) != 0 {
				t.Errorf("%s, %s: level %v, %d held", how, state, tr.Level(), len(r.c.shared.held))
			}
			if err := r.c.finish(); err != nil {
				t.Errorf("%s, %s: %v", how, state, err)
			}
		}
	}
}

// contents is a digest of all files under the live and the stale path.
func contents(t *testing.T, sim *disk.Sim) string {
	t.Helper()
	var b strings.Builder
	for _, d := range []string{dir, dir + ".stale"} {
		infos, err := sim.List(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, i := range infos {
			data, err := sim.Dump(path.Join(d, i.Name))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %d %08x; ", path.Join(path.Base(d), i.Name), len(data), crc32.ChecksumIEEE(data))
		}
	}
	return b.String()
}

// TestC11ForgetRecreate: after Forget no state of the old life reaches the path, and
// the new life starts from nothing.
func TestC11ForgetRecreate(t *testing.T) {
	for _, ticks := range []int{0, 1, 5} {
		sim := disk.NewSim(1)
		r := newRig(t, sim)
		tr, s := r.track(key, dir)
		for o := range int64(9) {
			s.ack(o)
		}
		tr.Dirty()
		for range ticks {
			r.tick()
		}
		tr.Forget()
		tr.Forget()
		if err := errors.Join(sim.Rename(dir, dir+".stale"), sim.Mkdir(dir)); err != nil {
			t.Fatal(err)
		}
		tr.Dirty()
		r.durably()
		r.clk.Advance(LevelInterval)
		r.c.step()
		if list, err := sim.List(dir); err != nil || len(list) != 0 {
			t.Fatalf("after %d ticks: %v in the new directory, %v", ticks, list, err)
		}
		next := model.Incarnation("1111111111111111")
		tr2, s2 := r.open(key, dir, next)
		r.want("new life", s2.position(), model.NoPosition())
		s2.ack(3)
		tr2.Dirty()
		r.durably()
		if got, err := Load(sim, dir, next); err != nil || !equal(got, s2.position()) {
			t.Fatalf("new life: %+v %v", got, err)
		}
		r.logged()
	}
}

// TestC11SlotOfAnotherLife: should a file survive into another life, it counts for
// nothing and is written over.
func TestC11SlotOfAnotherLife(t *testing.T) {
	sim := disk.NewSim(1)
	put(t, sim, path.Join(dir, AheadName), aheadFile(&slot{seq: 70, incarnation: "ffffffffffffffff", pos: settled(90)}))
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.durably()
	r.want("own life", r.load(), settled(0))
	if got, err := Load(sim, dir, ""); err != nil || !equal(got, settled(0)) {
		t.Errorf("without an incarnation: %+v %v", got, err)
	}
}

// TestGoneSourceIsSkipped (rule 2).
func TestGoneSourceIsSkipped(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.tick()
	s.gone = true
	s.ack(1)
	tr.Dirty()
	for range 3 {
		r.tick()
	}
	r.want("only what was live", r.load(), settled(0))
	if _, more := r.tick(); more {
		t.Error("a gone partition keeps the timer")
	}
}

// TestNewestRecordInPageCacheOnly (rule 1): the first window write after a restart
// must not cost the record that no sync had reached before.
func TestNewestRecordInPageCacheOnly(t *testing.T) {
	for seed := range int64(20) {
		sim := disk.NewSim(seed)
		r := newRig(t, sim)
		tr, s := r.track(key, dir)
		s.ack(0)
		tr.Dirty()
		r.durably()
		tr.turn = -1
		s.ack(1)
		tr.Dirty()
		r.tick()

		r = newRig(t, sim)
		tr, s = r.open(key, dir, testInc)
		tr.turn = -1
		r.want("restart", s.position(), settled(1))
		s.ack(5)
		tr.Dirty()
		r.tick()
		if got := load(t, sim.Crash(seed)); !covers(got, settled(1)) {
			t.Fatalf("power loss after the first window write: %+v", got)
		}
	}
}

// TestDescriptorsAreBounded (rule 6): with more partitions than descriptors all are
// still written, and at most MaxFiles are held.
func TestDescriptorsAreBounded(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	opts := r.options()
	opts.MaxFiles = 3
	r.c = newCommitter(opts)
	var trs []*Tracked
	var shards []*shard
	for i := range 10 {
		tr, s := r.track(model.PartitionKey{Topic: "jobs", Partition: i}, partDir(i))
		trs, shards = append(trs, tr), append(shards, s)
	}
	for round := range int64(30) {
		for i, tr := range trs {
			if (int(round)+i)%3 != 0 {
				shards[i].ack(round)
				tr.Dirty()
			}
		}
		r.tick()
		if n := len(r.c.shared.held); n > 3 {
			t.Fatalf("%d descriptors held", n)
		}
	}
	r.durably()
	after := sim.Crash(1)
	for i, s := range shards {
		got, err := Load(after, partDir(i), testInc)
		if err != nil {
			t.Fatal(err)
		}
		r.want(partDir(i), got, s.position())
	}
	if len(r.c.shared.held) != 3 || r.c.shared.idle.Len() != 3 {
		t.Errorf("%d held, %d of them idle", len(r.c.shared.held), r.c.shared.idle.Len())
	}
	for _, tr := range trs {
		tr.Forget()
	}
	if len(r.c.shared.held) != 0 || r.c.shared.idle.Len() != 0 {
		t.Error("Forget leaves a descriptor")
	}
	r.logged()
}

func partDir(i int) string { return path.Join("/data/topics/jobs", fmt.Sprintf("p%05d", i)) }

// TestSlowTickIsReported, and the next one starts at once.
func TestSlowTickIsReported(t *testing.T) {
	r := newRig(t, disk.NewSim(1))
	tr, s := r.track(key, dir)
	s.snapshot = func() { r.clk.Advance(250 * time.Millisecond) }
	tr.Dirty()
	r.tick() // primes: not counted
	r.logged()
	s.ack(0)
	for range 2 {
		tr.turn = -1 // nobody's turn: the window stays unsynced for an interval
		tr.file.since = r.clk.Now()
		tr.Dirty()
		if wait, more := r.c.step(); !more || wait != 0 {
			t.Fatalf("after a slow tick: wait %v %v", wait, more)
		}
	}
	r.logged(`level=WARN msg="consumer offset commits cannot keep to their interval: persisted offsets lag acks by about the flush time" partitions=1 flush_took=250ms interval=100ms`)
}

// TestLateWindowIsReported.
func TestLateWindowIsReported(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.durably()
	s.ack(1)
	tr.Dirty()
	sim.Fail(disk.Rule{Op: disk.OpSync, Path: AheadName, Sticky: true, N: 1, Err: syscall.EIO})
	for range 12 {
		r.tick()
	}
	want := `level=WARN msg="consumer offsets wait longer than their durability interval for a device flush: a power loss would redeliver more acks than it promises" partitions=1 oldest=700ms durability_interval=300ms`
	if !strings.Contains(r.log.String(), want+"\n") || strings.Count(r.log.String(), "\n") != 2 {
		t.Errorf("logged %s", r.log)
	}
}

// TestDamageIsReported when a partition is first touched.
func TestDamageIsReported(t *testing.T) {
	sim := disk.NewSim(1)
	put(t, sim, path.Join(dir, OffsetName), make([]byte, 8))
	r := newRig(t, sim)
	tr, s := r.track(key, dir)
	s.ack(0)
	tr.Dirty()
	r.tick()
	r.logged(`level=WARN msg="consumer position on disk is damaged; its last intact copy is used" topic=jobs partition=0 err="consumer.offset: corrupt: 8 bytes, value 0"`)
	r.clk.Advance(time.Hour)
	r.c.step()
	r.clk.Advance(time.Hour)
	r.c.step()
	if v := offset(t, sim, dir); v != 0 {
		t.Errorf("levelled over it: %d", v)
	}
}

// TestSyncsAreSpread: partitions of one topic take turns over an interval.
func TestSyncsAreSpread(t *testing.T) {
	sim := disk.NewSim(1)
	r := newRig(t, sim)
	opts := r.options()
	opts.Interval = time.Second
	r.c = newCommitter(opts)
	var trs []*Tracked
	for i := range 50 {
		tr, _ := r.track(model.PartitionKey{Topic: "jobs", Partition: i}, partDir(i))
		trs = append(trs, tr)
		tr.Dirty()
	}
	r.tick()
	for range 10 {
		for _, tr := range trs {
			tr.Dirty()
		}
		before := len(waitingOf(trs))
		r.tick()
		if n := before - len(waitingOf(trs)); n > 5 || n < 0 {
			t.Fatalf("%d of 50 synced in one tick", n)
		}
	}
}

func waitingOf(trs []*Tracked) (out []*Tracked) {
	for _, tr := range trs {
		if _, ok := tr.waiting(); ok {
			out = append(out, tr)
		}
	}
	return out
}
