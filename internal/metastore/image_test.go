package metastore

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.etcd.io/bbolt"
)

// allocatedMax is what a snapshot or a restore may allocate, however large the
// database (the founding document says under 100 KiB for its own).
const allocatedMax = 200 << 10

// bigMachine holds a database of at least 64 MiB: schema histories of 16 topics,
// written past Raft, for speed, as one entry would be.
func bigMachine(t testing.TB) *machine {
	t.Helper()
	m := newMachine(t, t.TempDir())
	doc := []byte(`"` + string(bytes.Repeat([]byte("x"), 16<<10)) + `"`)
	const topics, versions = 16, 250
	for i := range topics {
		name := fmt.Sprintf("t%02d", i)
		m.ok(create(name))
		must(t, m.db.Update(func(tx *bbolt.Tx) error {
			x := newTxn(tx, m.catalog)
			for v := range versions {
				if err := x.putSchema(name, v+1, doc); err != nil {
					return err
				}
			}
			m.rows += x.rowSum
			return writeFSMMeta(tx, fsmMeta{newest: TypePutSchema, index: m.applied.Load(), rows: m.rows})
		}))
	}
	must(t, m.load())
	if n := m.metrics.fsmBytes.Load(); n < 64<<20 {
		t.Fatalf("a database of %d bytes is not large", n)
	}
	return m
}

// allocated is what f allocates, in bytes.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// fileSink is Raft's snapshot file, without its bookkeeping.
type fileSink struct{ *os.File }

func (fileSink) ID() string    { return "big" }
func (fileSink) Cancel() error { return nil }

// Neither direction holds the database in memory: a 64 MiB database is copied,
// streamed, received and installed with next to no memory, and comes out the same.
func TestSnapshotAllocatesNextToNothing(t *testing.T) {
	from := bigMachine(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	n := allocated(func() {
		snap, err := from.Snapshot()
		must(t, err)
		must(t, snap.Persist(fileSink{file}))
		snap.Release()
	})
	t.Logf("a snapshot of %d MiB allocated %d KiB", from.metrics.fsmBytes.Load()>>20, n>>10)
	if n > allocatedMax {
		t.Errorf("a snapshot allocated %d bytes, at most %d", n, allocatedMax)
	}
	to := newMachine(t, t.TempDir())
	image, err := os.Open(file.Name())
	must(t, err)
	n = allocated(func() { must(t, to.Restore(io.NopCloser(image))) })
	must(t, image.Close())
	t.Logf("its restore allocated %d KiB", n>>10)
	if n > allocatedMax {
		t.Errorf("a restore allocated %d bytes, at most %d", n, allocatedMax)
	}
	if to.rows != from.rows {
		t.Error("the restored rows differ")
	}
}
