package position

import (
	"errors"
	"os"
	"path"
	"syscall"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

const dir = "/data/topics/jobs/p00000"

func put(t testing.TB, fsys disk.FS, name string, b []byte) {
	t.Helper()
	if err := fsys.Mkdir(path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func aheadFile(slots ...*slot) []byte {
	var out []byte
	for _, s := range slots {
		var b [slotSize]byte
		if s != nil {
			s.encode(&b)
		}
		out = append(out, b[:]...)
	}
	return out
}

func offsetFile(v int64) []byte {
	b := disk.EncodeFact(offsetMagic, v)
	return b[:]
}

func settled(committed int64, ahead ...model.Run) model.Position {
	return model.Position{Committed: committed, Ahead: ahead}
}

func TestGoldenOffset(t *testing.T) {
	if got := string(offsetFile(41)[:12]); got != "NCO1\x00\x00\x00\x00\x00\x00\x00\x29" {
		t.Errorf("%q", got)
	}
}

func flip(b []byte, at int) []byte {
	b[at] ^= 1
	return b
}

// TestLoad is the recovery table: which of the copies counts. F8: damage and loss
// deliver again, they never skip.
func TestLoad(t *testing.T) {
	older := &slot{seq: 6, incarnation: testInc, pos: settled(40)}
	newer := &slot{seq: 7, incarnation: testInc, pos: goldenPosition}
	unknown := &slot{seq: 9, pos: settled(50)}
	other := &slot{seq: 9, incarnation: "ffffffffffffffff", pos: settled(90)}
	cases := []struct {
		name          string
		offset, ahead []byte // nil = no file
		inc           model.Incarnation
		want          model.Position
	}{
		{"nothing", nil, nil, testInc, settled(-1)},
		{"both empty", []byte{}, []byte{}, testInc, settled(-1)},
		{"offset only", offsetFile(12), nil, testInc, settled(12)},
		{"offset says none", offsetFile(-1), nil, testInc, settled(-1)},
		{"ahead only", nil, aheadFile(older, newer), testInc, goldenPosition},
		{"newer slot first", nil, aheadFile(newer, older), testInc, goldenPosition},
		{"slot 0 only", nil, aheadFile(newer), testInc, goldenPosition},
		{"slot 1 never written", nil, aheadFile(newer, nil), testInc, goldenPosition},
		{"ahead larger", offsetFile(30), aheadFile(older, newer), testInc, goldenPosition},
		{"offset larger", offsetFile(60), aheadFile(older, newer), testInc, settled(60)},
		{"offset inside the runs", offsetFile(44), aheadFile(newer), testInc, settled(45, model.Run{Start: 48, End: 49})},
		{"offset meets a run", offsetFile(43), aheadFile(newer), testInc, settled(45, model.Run{Start: 48, End: 49})},
		{"offset meets the last run", offsetFile(47), aheadFile(newer), testInc, settled(48)},
		{"window damaged", offsetFile(3), flip(aheadFile(older, newer), slotSize+20), testInc, settled(40)},
		{"F23 both slots damaged", offsetFile(3), flip(flip(aheadFile(older, newer), 50), slotSize+50), testInc, settled(3)},
		{"F23 slot zeroed", nil, aheadFile(older, nil), testInc, settled(40)},
		{"F24 cut inside slot 1", nil, aheadFile(older, newer)[:slotSize+700], testInc, settled(40)},
		{"F24 cut inside slot 0", offsetFile(3), aheadFile(newer)[:700], testInc, settled(3)},
		{"longer than it should be", nil, append(aheadFile(older, newer), 1, 2, 3), testInc, goldenPosition},
		{"another incarnation", offsetFile(3), aheadFile(other, older), testInc, settled(40)},
		{"C11 only another incarnation", nil, aheadFile(other), testInc, settled(-1)},
		{"incarnation unknown on disk", nil, aheadFile(unknown, newer), testInc, settled(50)},
		{"incarnation unknown here", nil, aheadFile(other), "", settled(90)},
		{"offset of zeros", make([]byte, 16), nil, testInc, settled(-1)},
		{"offset of 8 bytes", make([]byte, 8), nil, testInc, settled(-1)},
		{"offset too long", append(offsetFile(9), 0), nil, testInc, settled(-1)},
		{"offset damaged", flip(offsetFile(9), 11), aheadFile(older), testInc, settled(40)},
		{"offset below -1", offsetFile(-2), nil, testInc, settled(-1)},
		{"offset out of range", offsetFile(offsetMax), nil, testInc, settled(-1)},
	}
	for _, c := range cases {
		fsys := disk.NewSim(1)
		for name, b := range map[string][]byte{OffsetName: c.offset, AheadName: c.ahead} {
			if b != nil {
				put(t, fsys, path.Join(dir, name), b)
			}
		}
		got, err := Load(fsys, dir, c.inc)
		if err != nil || !equal(got, c.want) {
			t.Errorf("%s: %+v %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestF16LoadReportsIOErrors: bytes that could not be read are not taken as absent.
func TestF16LoadReportsIOErrors(t *testing.T) {
	for _, name := range []string{OffsetName, AheadName} {
		for _, op := range []disk.Op{disk.OpOpen, disk.OpRead} {
			fsys := disk.NewSim(1)
			put(t, fsys, path.Join(dir, OffsetName), offsetFile(1))
			put(t, fsys, path.Join(dir, AheadName), aheadFile(&slot{seq: 1}))
			fsys.Fail(disk.Rule{Op: op, Path: name, Err: syscall.EIO})
			if _, err := Load(fsys, dir, testInc); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s of %s fails: %v", op, name, err)
			}
		}
	}
}
