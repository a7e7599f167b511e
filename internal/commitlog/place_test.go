package commitlog

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

func TestDirsStayBelowTopics(t *testing.T) {
	if dir, err := PartitionDir("data", "orders", 3); err != nil || dir != "data/topics/orders/p00003" {
		t.Fatal(dir, err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "/etc", `a\b`, "a\x00b", strings.Repeat("x", 256)} {
		if dir, err := TopicDir("data", name); err == nil {
			t.Errorf("topic %q became %q", name, dir)
		}
		if _, err := PartitionDir("data", name, 0); err == nil {
			t.Errorf("partition of topic %q", name)
		}
	}
	for _, p := range []int{-1, partitionsMax} {
		if _, err := PartitionDir("data", "orders", p); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("partition %d: %v", p, err)
		}
	}
}

const (
	idA = model.Incarnation("00112233aabbccdd")
	idB = model.Incarnation("ffeeddccbbaa9988")
)

func TestMarker(t *testing.T) {
	fsys := newVolume(1)
	dir, err := TopicDir("data", "t")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := ReadMarker(fsys, dir); id != "" || err != nil {
		t.Fatalf("absent: %q %v", id, err)
	}
	if err := WriteMarker(fsys, dir, "short"); err == nil {
		t.Fatal("a bad id was written")
	}
	if err := WriteMarker(fsys, dir, idA); err != nil {
		t.Fatal(err)
	}
	if b, err := fsys.Dump(path.Join(dir, markerName)); err != nil || string(b) != string(idA) {
		t.Fatalf("bytes %q %v", b, err)
	}
	crashed := fsys.Crash(1)
	for content, want := range map[string]model.Incarnation{
		string(idA): idA, " \t" + string(idA) + "\r\n": idA, "": "", "xyz": "", strings.Repeat("0", 100): "",
	} {
		if err := crashed.Corrupt(path.Join(dir, markerName), func([]byte) []byte { return []byte(content) }); err != nil {
			t.Fatal(err)
		}
		if id, err := ReadMarker(crashed, dir); id != want || (err == nil) != (want != "") {
			t.Errorf("marker %q reads as %q, %v", content, id, err)
		}
	}
}

func TestSetAside(t *testing.T) {
	fsys := newVolume(1)
	dir, _ := TopicDir("data", "t")
	for i, want := range []string{dir + ".stale-" + string(idA), dir + ".stale-" + string(idA) + "." + "1769947200000000000"} {
		if err := WriteMarker(fsys, dir, idA); err != nil {
			t.Fatal(err)
		}
		got, err := SetAside(fsys, dir, idA, start)
		if err != nil || got != want {
			t.Fatalf("round %d: %q %v, want %q", i, got, err, want)
		}
		fsys = fsys.Crash(int64(i)) // the rename is durable
		if id, err := ReadMarker(fsys, want); id != idA || err != nil {
			t.Fatalf("%q %v", id, err)
		}
		if id, err := ReadMarker(fsys, dir); id != "" || err != nil {
			t.Fatalf("%q %v", id, err)
		}
	}
	if err := WriteMarker(fsys, dir, idB); err != nil {
		t.Fatal(err)
	}
	if _, err := SetAside(fsys, dir, idA, start); err == nil {
		t.Fatal("both names taken, and something was replaced")
	}
	if _, err := SetAside(fsys, dir, "", start); err == nil {
		t.Fatal("no id")
	}
	if _, err := SetAside(fsys, "data/topics/none", idA, start.Add(1)); err == nil {
		t.Fatal("a missing directory")
	}
}

// Power cuts at every call of setting aside and starting afresh: the old records
// are under one of the two names, never under the new incarnation's marker.
func TestSetAsideCrash(t *testing.T) {
	dir, _ := TopicDir("data", "t")
	testutil.CrashPoints(t, func() *disk.Sim {
		s := newVolume(5)
		if err := WriteMarker(s, dir, idA); err != nil {
			t.Fatal(err)
		}
		d := newDriver(s)
		if err := errors.Join(d.open(), d.commit(3), d.closeLog()); err != nil {
			t.Fatal(err)
		}
		return s
	}, func(s *disk.Sim) error {
		_, err := SetAside(s, dir, idA, start)
		if err != nil {
			return err
		}
		return WriteMarker(s, dir, idB)
	}, func(s *disk.Sim, _ int) {
		old := dir
		if id, err := ReadMarker(s, dir); err != nil || id != idA {
			old += ".stale-" + string(idA)
		}
		if id, err := ReadMarker(s, old); err != nil || id != idA {
			t.Fatalf("old incarnation: %q %v", id, err)
		}
		st, _, err := Describe(s, path.Join(old, "p00000"))
		if err != nil || st.HighWatermark != 3 {
			t.Fatalf("%+v %v", st, err)
		}
	})
}

func TestSegmentNames(t *testing.T) {
	for name, want := range map[string]int64{
		segmentName(0): 0, segmentName(42): 42, segmentName(offsetMax): offsetMax,
		"42.log": -1, "0000000000000000000x.log": -1, "00000000000000000042.log.tmp": -1,
		"99999999999999999999.log": -1, "-0000000000000000001.log": -1, "hwm": -1,
	} {
		if base, ok := parseSegmentName(name); ok != (want >= 0) || ok && base != want {
			t.Errorf("%q parses as %d, %v", name, base, ok)
		}
	}
}

// A series is made at its first observation, and a deleted topic's series come back
// through no log that is still open (spec/metrics section 2).
func TestSeriesLifecycle(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	count := func() int {
		n, err := promtest.GatherAndCount(reg)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	fsys := disk.NewSim(1)
	l := openTest(t, fsys, func(o *Options) { o.Metrics = m })
	idle := openTest(t, fsys, func(o *Options) { o.Metrics = m; o.Dir = "data/topics/t/p00001"; o.Partition = 1 })
	if n := count(); n != 0 {
		t.Fatalf("%d series of idle logs", n)
	}
	commit(t, l, 1, 10)
	if n := count(); n != 3 { // fsync, flush, flush bytes
		t.Fatalf("%d series after a commit", n)
	}
	m.Forget("t")
	commit(t, l, 1, 10)
	commit(t, idle, 1, 10)
	if n := count(); n != 0 {
		t.Fatalf("%d series after the topic was forgotten", n)
	}
	closeLog(t, l)
	closeLog(t, idle)
	l = openTest(t, fsys, func(o *Options) { o.Metrics = m })
	commit(t, l, 1, 10)
	if n := count(); n != 4 { // and the hwm release
		t.Fatalf("%d series of a log opened later", n)
	}
	m.ForgetPartition("t", 1)
	if n := count(); n != 4 {
		t.Fatalf("%d series after another partition was forgotten", n)
	}
	m.ForgetPartition("t", 0)
	if n := count(); n != 0 {
		t.Fatalf("%d series after the partition was forgotten", n)
	}
	closeLog(t, l)
	if other := NewMetrics(prometheus.NewRegistry()); other.errors == m.errors {
		t.Fatal("registries share a series")
	}
}

func TestCodecNames(t *testing.T) {
	for _, tc := range [][2]string{{"", ""}, {"none", "best"}, {"zstd", "fastest"}, {"zstd", "default"}, {"zstd", "better"}, {"zstd", "best"}} {
		if _, err := NewCodec(tc[0], tc[1]); err != nil {
			t.Errorf("%v: %v", tc, err)
		}
	}
	for _, tc := range [][2]string{{"gzip", ""}, {"zstd", "11"}, {"none", "x"}} {
		if _, err := NewCodec(tc[0], tc[1]); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%v: %v", tc, err)
		}
	}
}
