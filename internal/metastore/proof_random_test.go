package metastore

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Random logs of every entry type, applied by replicas that batch, snapshot, crash
// and restart at other points each: what a replica holds is the log's doing alone.

const (
	randomSeeds   = 24
	randomEntries = 160
)

// stories are commands that follow from each other, so that those behind the first
// are applied now and then.
func stories(r *rand.Rand) [][]Command {
	t, u := fmt.Sprintf("t%d", r.IntN(3)), fmt.Sprintf("t%d", 3+r.IntN(3))
	m, n := fmt.Sprintf("m%d", r.IntN(2)), fmt.Sprintf("m%d", 2+r.IntN(2))
	stub := attach(u, "there")
	stub.Parent = t
	return [][]Command{
		{ReadmitMember{ID: m}, RegisterMember{ID: m, At: 7}, MarkSilent{ID: m, HeartbeatAt: 7}},
		{create(t), AssignPartition{Topic: t, Owner: m}, SetTarget{Topic: t, Target: n}, FlipPartition{Topic: t, Target: n}},
		{create(t), AssignPartition{Topic: t, Owner: m}, SetTarget{Topic: t, Target: n}, ClearTarget{Topic: t, Target: n}},
		{
			DeleteTopic{Name: t}, newTopic(t, idA).do, DeleteTopic{Name: u}, newTopic(u, idB).do,
			AttachChild{Parent: t, Child: u, Epoch: "e"}, DetachChild{Parent: t, Child: u},
			LinkChild{Parent: t, ParentID: idA, Child: u, ChildID: idB, Epoch: "e"},
			UnlinkChild{Parent: t, ParentID: idA, Child: u, ChildID: idB},
		},
		{
			DeleteTopic{Name: t}, newTopic(t, idA).do, DeleteTopic{Name: u},
			CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, stub,
			ChangeRemoteChild{Parent: t, Child: u, Epoch: "e", Pause: &PauseMark{Reason: "test", At: 5}},
		},
	}
}

// randomLog is a seeded log of commands, entries that are none, and bytes that are
// no command.
func randomLog(t testing.TB, seed uint64) []*raft.Log {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	var log []*raft.Log
	add := func(kind raft.LogType, data []byte) {
		log = append(log, &raft.Log{Index: uint64(len(log) + 1), Term: 1, Type: kind, Data: data})
	}
	add(raft.LogConfiguration, raft.EncodeConfiguration(raft.Configuration{}))
	commands := script(seed, randomEntries)
	for range randomEntries / 20 {
		at, story := r.IntN(len(commands)), stories(r)
		commands = slices.Insert(commands, at, story[r.IntN(len(story))]...)
	}
	for _, c := range commands {
		switch r.IntN(20) {
		case 0:
			add(raft.LogNoop, nil)
		case 1:
			add(raft.LogConfiguration, raft.EncodeConfiguration(raft.Configuration{}))
		case 2:
			add(raft.LogCommand, []byte("\x07{half"))
		}
		b, err := encodeEntry(c)
		must(t, err)
		add(raft.LogCommand, b)
	}
	return log
}

// replica is one node's files and state machine, driven as Raft drives them, with a
// schedule of its own.
type replica struct {
	t       testing.TB
	r       *rand.Rand
	root    string // of its directories; each crash moves to a new one
	log     []*raft.Log
	want    []string // the outcome of each entry
	m       *machine
	rd      raftDisk
	next    int // entries handed over, by index
	dirs    int
	crashes map[string]int
}

// newReplica starts one on the files of an empty node.
func newReplica(t testing.TB, empty string, seed uint64, log []*raft.Log, want []string) *replica {
	t.Helper()
	p := &replica{t: t, r: rand.New(rand.NewPCG(seed, 4)), root: t.TempDir(), log: log, want: want, crashes: map[string]int{}}
	dir := p.newDir()
	copySparse(t, empty, dir)
	p.open(dir)
	must(t, p.rd.logs.StoreLogs(log))
	return p
}

func (p *replica) newDir() string {
	p.dirs++
	return filepath.Join(p.root, fmt.Sprint(p.dirs))
}

// open is a start: what is on the disk decides what becomes of fsm.db, and where the
// log is replayed from.
func (p *replica) open(dir string) {
	p.t.Helper()
	o := Options{Dir: dir, NodeID: node, Build: "test", Clock: clock.Real(), Logger: telemetry.Discard()}
	must(p.t, removeLeftovers(dir))
	rd, action, err := prepare(o, newRaftLogger(o.Logger))
	must(p.t, err)
	p.rd = rd
	f, err := openMachine(o)
	must(p.t, err)
	f.db.NoSync = true // the page cache outlives the crashes of this test
	p.m = &machine{fsm: f, t: p.t}
	p.next = 0
	if meta := p.newestSnapshot(); meta != nil {
		if action == restoreSnapshot {
			_, image, err := p.rd.snaps.Open(meta.ID)
			must(p.t, err)
			p.restore(image)
		}
		p.next = int(meta.Index)
	}
	p.crashes[fmt.Sprintf("action %d", action)]++
}

func (p *replica) close() {
	p.t.Helper()
	must(p.t, errors.Join(p.m.close(), p.rd.logs.Close()))
}

func (p *replica) newestSnapshot() *raft.SnapshotMeta {
	p.t.Helper()
	snaps, err := p.rd.snaps.List()
	must(p.t, err)
	if len(snaps) == 0 {
		return nil
	}
	return snaps[0]
}

// restore installs an image, and checks that a read of the old state or the new one
// is all there ever was.
func (p *replica) restore(image io.ReadCloser) {
	p.t.Helper()
	must(p.t, p.m.Restore(image))
	must(p.t, image.Close())
	p.m.db.NoSync = true
	p.m.sameViews()
}

// hand hands over up to n entries in one batch and checks each answer.
func (p *replica) hand(n int) {
	p.t.Helper()
	var batch []*raft.Log
	for _, l := range p.log[p.next:min(p.next+n, len(p.log))] {
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			batch = append(batch, l)
		}
		p.next++
	}
	if len(batch) == 0 {
		return
	}
	held := p.m.applied.Load()
	for i, o := range p.m.ApplyBatch(batch) {
		index := batch[i].Index
		out, ok := o.(outcome)
		switch {
		case ok != (batch[i].Type == raft.LogCommand && index > held):
			p.t.Fatalf("entry %d: answered %v while %d entries are held", index, o, held)
		case ok && fmt.Sprint(out.err) != p.want[index]:
			p.t.Fatalf("entry %d: %v, elsewhere %s", index, out.err, p.want[index])
		}
	}
}

// snapshot takes one, as Raft does: labelled with what was handed over, and the log
// cut behind it.
func (p *replica) snapshot() {
	p.t.Helper()
	label := p.m.handed
	if meta := p.newestSnapshot(); label == 0 || meta != nil && meta.Index >= label {
		return // nothing new
	}
	snap, err := p.m.Snapshot()
	if p.m.handed < p.m.applied.Load() {
		if !errors.Is(err, errSnapshotEarly) {
			p.t.Fatalf("a snapshot of index %d under label %d: %v", p.m.applied.Load(), label, err)
		}
		return
	}
	must(p.t, err)
	if p.r.IntN(4) == 0 { // applying goes on while the copy is written
		p.hand(1 + p.r.IntN(5))
	}
	must(p.t, snap.Persist(p.sink(label)))
	snap.Release()
	p.compact(label)
	p.crashes["snapshot"]++
}

func (p *replica) sink(label uint64) raft.SnapshotSink {
	p.t.Helper()
	sink, err := p.rd.snaps.Create(1, label, 1, raft.Configuration{}, 1, nil)
	must(p.t, err)
	return sink
}

// compact cuts the log, all but a few entries behind a snapshot.
func (p *replica) compact(label uint64) {
	p.t.Helper()
	first, err := p.rd.logs.FirstIndex()
	must(p.t, err)
	if keep := uint64(p.r.IntN(40)); label > keep && first <= label-keep {
		must(p.t, p.rd.logs.DeleteRange(first, label-keep))
	}
}

// install takes the newest snapshot of a replica that is further along, as a leader
// sends it to a node its log no longer reaches.
func (p *replica) install(from *replica) {
	p.t.Helper()
	meta := from.newestSnapshot()
	if own := p.newestSnapshot(); meta == nil || int(meta.Index) <= p.next || own != nil && own.Index >= meta.Index {
		return
	}
	_, image, err := from.rd.snaps.Open(meta.ID)
	must(p.t, err)
	sink := p.sink(meta.Index)
	_, err = io.Copy(sink, image)
	must(p.t, errors.Join(err, image.Close(), sink.Close()))
	if p.r.IntN(2) == 0 { // the crash before the image reached fsm.db
		p.crashes["crash before the install"]++
		p.crash()
		return
	}
	_, image, err = p.rd.snaps.Open(p.newestSnapshot().ID)
	must(p.t, err)
	p.restore(image)
	p.next = int(meta.Index)
	p.compact(meta.Index)
	p.crashes["install"]++
}

// crash ends the replica and starts it again: on its files, on a copy of them taken
// while it ran, without fsm.db, or with one that something else has written to.
func (p *replica) crash() {
	p.t.Helper()
	dir, applied := p.m.dir, p.m.applied.Load()
	how := []string{"close", "copy", "copy", "lost", "foreign"}[p.r.IntN(5)]
	if how == "copy" {
		dir = p.newDir()
		copySparse(p.t, p.m.dir, dir)
	}
	p.close()
	switch how {
	case "lost":
		must(p.t, os.Remove(filepath.Join(dir, fsmName)))
	case "foreign":
		editFSM(p.t, dir, nothing)
	}
	p.open(dir)
	if held := p.m.applied.Load(); (how == "close" || how == "copy") && held < applied {
		p.t.Fatalf("%s: %d entries are held, %d were applied", how, held, applied)
	}
	p.crashes[how]++
}

// step does one thing of the schedule; false once the log is used up.
func (p *replica) step(donor *replica) bool {
	p.t.Helper()
	switch n := p.r.IntN(20); {
	case n == 0:
		p.crash()
	case n == 1:
		p.snapshot()
	case n == 2:
		p.install(donor)
	case n < 8:
		p.hand(1)
	default:
		p.hand(1 + p.r.IntN(48))
	}
	return p.next < len(p.log)
}

// answers applies a log entry by entry on a machine that nothing happens to.
func answers(t testing.TB, empty string, log []*raft.Log) (want []string, m *machine) {
	t.Helper()
	dir := t.TempDir()
	copySparse(t, empty, dir)
	m = newMachine(t, dir)
	m.db.NoSync = true
	want = make([]string, len(log)+1)
	for _, l := range log {
		if l.Type == raft.LogCommand {
			want[l.Index] = fmt.Sprint(m.Apply(l).(outcome).err)
		}
	}
	return want, m
}

// emptyNode is the directory of a node that never applied anything; copies of it are
// cheaper than new ones.
func emptyNode(t testing.TB) string {
	t.Helper()
	p := &replica{t: t, crashes: map[string]int{}}
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, snapshotsName), 0o700))
	p.open(dir)
	p.close()
	return dir
}

// F28: the same log on replicas with other batches, crashes, snapshots and installs
// gives the same answers, database, views and bookkeeping, whatever it holds.
func TestRandomLogsGiveOneDatabase(t *testing.T) {
	t.Parallel()
	seen, applied, happened := map[EntryType]int{}, map[EntryType]int{}, map[string]int{}
	empty := emptyNode(t)
	for seed := range uint64(randomSeeds) {
		log := randomLog(t, seed)
		want, ref := answers(t, empty, log)
		for _, l := range log {
			if c, err := decodeEntry(l.Data, NewestType); err == nil && l.Type == raft.LogCommand {
				seen[c.Type()]++
				if want[l.Index] == "<nil>" {
					applied[c.Type()]++
				}
			}
		}
		a, b := newReplica(t, empty, 2*seed, log, want), newReplica(t, empty, 2*seed+1, log, want)
		for more := true; more; {
			left, right := a.step(b), b.step(a)
			more = left || right
		}
		for _, p := range []*replica{a, b} {
			if p.m.hash() != ref.hash() {
				t.Fatalf("seed %d: databases differ after %v", seed, p.crashes)
			}
			p.m.sameViews()
			got, err := metaOf(p.m)
			must(t, err)
			whole, err := metaOf(ref)
			must(t, err)
			got.txid, whole.txid = 0, 0 // how many transactions it took
			if got != whole {
				t.Fatalf("seed %d: bookkeeping %+v, want %+v, after %v", seed, got, whole, p.crashes)
			}
			p.close()
			for what, n := range p.crashes {
				happened[what] += n
			}
		}
	}
	for e := EntryType(1); e <= NewestType; e++ {
		if seen[e] == 0 || applied[e] == 0 {
			t.Errorf("type %d (%s) occurs %d times and was applied %d times", e, e, seen[e], applied[e])
		}
	}
	for _, what := range []string{
		"close", "copy", "lost", "foreign", "snapshot", "install", "crash before the install",
		fmt.Sprint("action ", resume), fmt.Sprint("action ", restoreSnapshot), fmt.Sprint("action ", rebuild),
	} {
		if happened[what] == 0 {
			t.Errorf("no replica met %q", what)
		}
	}
	t.Logf("%v", happened)
}
