package wal

import (
	"context"
	"errors"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// volumes runs a test on the real file system and on the simulated one.
func volumes(t *testing.T, f func(t *testing.T, fsys disk.FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, disk.OS{}, t.TempDir()) })
	t.Run("sim", func(t *testing.T) { f(t, disk.NewSim(1), testDir) })
}

func TestAppendReadReopen(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		l := mustOpen(t, options(fsys, dir))
		if l.Next() != 1 || l.Checkpoint() != 1 {
			t.Fatalf("fresh log: next %d, checkpoint %d, want 1 and 1", l.Next(), l.Checkpoint())
		}
		appendRecs(t, l, 1, 20, 100)
		mustAppend(t, l, rec(20, 8), rec(21, BodyMax), rec(22, 9))
		wantRecs(t, l, 1, 23)
		mustClose(t, l)
		mustClose(t, l)
		if err := l.Append(context.Background(), rec(1, 8)); !errors.Is(err, model.ErrShuttingDown) {
			t.Fatalf("append after close: %v, want ErrShuttingDown", err)
		}

		l = mustOpen(t, options(fsys, dir))
		wantRecs(t, l, 1, 23)
		appendRecs(t, l, 23, 30, 64)
		wantRecs(t, l, 1, 30)
		wantRecs(t, l, 22, 30)
	})
}

func TestRollsAtSegmentBytes(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		o := options(fsys, dir)
		o.SegmentBytes = 4096
		l := mustOpen(t, o)
		appendRecs(t, l, 1, 50, 500)
		var many []Entry
		for id := 50; id < 100; id++ {
			many = append(many, rec(id, 300))
		}
		mustAppend(t, l, many...)
		mustAppend(t, l, rec(100, 10_000), rec(101, 8), rec(102, 10_000))
		wantRecs(t, l, 1, 103)
		mustClose(t, l)
		wantRecs(t, mustOpen(t, o), 1, 103)
	})
}
