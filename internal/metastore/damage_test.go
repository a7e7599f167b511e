package metastore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// filledIndex is the applied index of filledImage.
const filledIndex = 22

// writeDamaged writes the image as f changes it.
func writeDamaged(t *testing.T, path string, image []byte, f func([]byte) []byte) {
	t.Helper()
	must(t, os.WriteFile(path, f(append([]byte(nil), image...)), dbMode))
}

// filledImage is the used part of the file of a state machine with rows of several
// kinds, some of them changed and some removed, and what those rows are.
func filledImage(t *testing.T) (image []byte, rows map[string]string) {
	t.Helper()
	m := newMachine(t, t.TempDir())
	for i := range 20 {
		m.ok(create(fmt.Sprintf("topic-%02d", i)))
	}
	m.ok(DeleteTopic{Name: "topic-03"})
	m.ok(RegisterMember{ID: "narad-1", Addr: "h:1"})
	if m.applied.Load() != filledIndex {
		t.Fatalf("applied index %d", m.applied.Load())
	}
	rows = allRows(t, m.db)
	var used int64
	must(t, m.db.View(func(tx *bbolt.Tx) error { used = tx.Size(); return nil }))
	must(t, m.close())
	image, err := os.ReadFile(filepath.Join(m.dir, fsmName))
	must(t, err)
	return image[:used], rows
}

// mustHold checks a damaged file that was taken: it has all the rows, or those before
// the last transaction, which the log brings forward.
func mustHold(t *testing.T, path string, facts fsmFacts, want map[string]string, what string) {
	t.Helper()
	if !facts.trusted || facts.meta.index < filledIndex {
		return
	}
	db, err := bbolt.Open(path, dbMode, boltOptions(true))
	must(t, err)
	got := allRows(t, db)
	must(t, db.Close())
	if !maps.Equal(got, want) {
		t.Fatalf("%s, and other rows were taken: %d, want %d", what, len(got), len(want))
	}
}

func allRows(t *testing.T, db *bbolt.DB) map[string]string {
	t.Helper()
	rows := map[string]string{}
	must(t, db.View(func(tx *bbolt.Tx) error {
		for _, name := range dataBuckets {
			b := tx.Bucket(name)
			if b == nil {
				continue // an empty one, made again at start
			}
			if err := b.ForEach(func(k, v []byte) error {
				rows[fmt.Sprintf("%s %q", name, k)] = string(v)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	return rows
}

// F27: one bit flipped anywhere in fsm.db. It is noticed, or it is in bytes that hold
// nothing: a database that is taken has all the rows it had.
func TestF27FlippedBitInTheDatabase(t *testing.T) {
	image, want := filledImage(t)
	path := filepath.Join(t.TempDir(), fsmName)
	refused, tried := 0, 0
	for pos := 0; pos < len(image); pos += 61 {
		tried++
		writeDamaged(t, path, image, func(b []byte) []byte { b[pos] ^= 1 << (pos % 8); return b })
		facts, err := inspectFSM(path, NewestType)
		if err != nil {
			refused++
			continue
		}
		mustHold(t, path, facts, want, fmt.Sprintf("byte %d of %d flipped", pos, len(image)))
	}
	t.Logf("%d of %d flips in %d bytes were refused", refused, tried, len(image))
	if refused < 50 {
		t.Error("the rows alone take more room than that")
	}
}

// F27: rows that changed, came or went behind the state machine's back.
func TestF27RowsChangedBehindTheSum(t *testing.T) {
	image, _ := filledImage(t)
	path := filepath.Join(t.TempDir(), fsmName)
	for name, edit := range map[string]func(tx *bbolt.Tx) error{
		"changed": func(tx *bbolt.Tx) error { return tx.Bucket(bucketTopics).Put([]byte("topic-01"), []byte("{}")) },
		"came":    func(tx *bbolt.Tx) error { return tx.Bucket(bucketUsers).Put([]byte("eve"), []byte("{}")) },
		"went":    func(tx *bbolt.Tx) error { return tx.Bucket(bucketTopics).Delete([]byte("topic-01")) },
	} {
		t.Run(name, func(t *testing.T) {
			writeDamaged(t, path, image, func(b []byte) []byte { return b })
			db, err := bbolt.Open(path, dbMode, boltOptions(false))
			must(t, err)
			must(t, db.Update(func(tx *bbolt.Tx) error {
				m, _, err := readFSMMeta(tx)
				return errors.Join(err, edit(tx), writeFSMMeta(tx, m))
			}))
			must(t, db.Close())
			if _, err := inspectFSM(path, NewestType); !errors.Is(err, model.ErrCorrupt) || !errors.Is(err, errRowsChanged) {
				t.Errorf("inspected: %v, want the rows to be missed", err)
			}
		})
	}
}

// F27: a database cut anywhere is refused or holds all it held; it never takes the
// process down.
func TestF27TruncatedDatabase(t *testing.T) {
	image, want := filledImage(t)
	path := filepath.Join(t.TempDir(), fsmName)
	for n := len(image) - 512; n > 0; n -= 512 {
		writeDamaged(t, path, image, func(b []byte) []byte { return b[:n] })
		if facts, err := inspectFSM(path, NewestType); err == nil {
			mustHold(t, path, facts, want, fmt.Sprintf("cut to %d of %d bytes", n, len(image)))
		}
	}
}

// F27, O13: a directory without state is asked about before it becomes a cluster; a
// refusal leaves it without state, and one with state is not asked about.
func TestF27BootstrapIsAsked(t *testing.T) {
	dir := t.TempDir()
	no, asked := errors.New("no"), 0
	o := testOptions(dir)
	o.Bootstrap = func() error { asked++; return no }
	for range 2 {
		if _, err := Open(context.Background(), o); !errors.Is(err, no) {
			t.Fatalf("open: %v", err)
		}
	}
	for _, name := range []string{fsmName, raftName} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after a refusal: %v", name, err)
		}
	}
	must(t, openStore(t, dir).Close())
	openStore(t, dir, func(with *Options) { with.Bootstrap = o.Bootstrap })
	if asked != 2 {
		t.Errorf("asked %d times, want twice: a node with state is none of its business", asked)
	}
}
