package wal

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
)

// benchDir is a directory on the real disk, not on a tmpfs.
func benchDir(b *testing.B) string {
	dir, err := os.MkdirTemp(os.Getenv("NARAD_BENCH_DIR"), "wal")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// benchLog opens a log that dispatches at once, so segments are reused, and counts
// its group commits.
func benchLog(b *testing.B, mode SpareMode) (*Log, *atomic.Int64) {
	var l *Log
	var groups atomic.Int64
	o := options(disk.OS{}, benchDir(b))
	o.Spare = mode
	o.OnDurable = func(first uint64, es []Entry) {
		groups.Add(1)
		if err := l.Advance(first); err != nil {
			b.Error(err)
		}
	}
	l = mustOpen(b, o)
	return l, &groups
}

func report(b *testing.B, records int, groups *atomic.Int64) {
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(records)/float64(groups.Load()), "msgs/sync")
}

func benchModes(b *testing.B, f func(b *testing.B, mode SpareMode)) {
	for _, m := range []struct {
		name string
		mode SpareMode
	}{{"recycle", SpareRecycle}, {"zero", SpareZero}, {"none", SpareNone}} {
		b.Run(m.name, func(b *testing.B) { f(b, m.mode) })
	}
}

// BenchmarkAppend64 is 64 producers, one record of 1 KiB a call.
func BenchmarkAppend64(b *testing.B) {
	benchModes(b, func(b *testing.B, mode SpareMode) {
		l, groups := benchLog(b, mode)
		var e Entry = rec(1, 1024)
		b.ReportAllocs()
		b.SetParallelism(64 / 2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := l.Append(context.Background(), e); err != nil {
					b.Error(err)
				}
			}
		})
		report(b, b.N, groups)
	})
}

// BenchmarkAppend1 is one producer, one record of 1 KiB a call.
func BenchmarkAppend1(b *testing.B) {
	benchModes(b, func(b *testing.B, mode SpareMode) {
		l, groups := benchLog(b, mode)
		var e Entry = rec(1, 1024)
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Append(context.Background(), e); err != nil {
				b.Fatal(err)
			}
		}
		report(b, b.N, groups)
	})
}

// BenchmarkAppendMany16 is 16 producers, a batch of 100 records of 1 KiB a call.
func BenchmarkAppendMany16(b *testing.B) {
	benchModes(b, func(b *testing.B, mode SpareMode) {
		l, groups := benchLog(b, mode)
		es := make([]Entry, 100)
		for i := range es {
			es[i] = rec(i, 1024)
		}
		b.ReportAllocs()
		b.SetParallelism(16 / 2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := l.AppendMany(context.Background(), es); err != nil {
					b.Error(err)
				}
			}
		})
		report(b, b.N*len(es), groups)
	})
}

// BenchmarkReplay reads 1 KiB records back from the page cache: by Open's scan, by
// Next, and by passing over them.
func BenchmarkReplay(b *testing.B) {
	const records = 100_000
	o := options(disk.OS{}, benchDir(b))
	l := mustOpen(b, o)
	es := make([]Entry, 1000)
	for i := range es {
		es[i] = rec(i, 1024)
	}
	for range records / len(es) {
		mustAppend(b, l, es...)
	}
	mustClose(b, l)
	l = mustOpen(b, o)
	b.Run("open", func(b *testing.B) {
		mustClose(b, l)
		b.SetBytes(records * 1044)
		for b.Loop() {
			l = mustOpen(b, o)
			mustClose(b, l)
		}
	})
	l = mustOpen(b, o)
	b.Run("next", func(b *testing.B) {
		b.SetBytes(1044)
		b.ReportAllocs()
		r := l.NewReader(1)
		defer r.Close()
		for b.Loop() {
			if _, _, err := r.Next(); errors.Is(err, io.EOF) {
				r.Seek(1)
			} else if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("skip1000", func(b *testing.B) {
		b.SetBytes(1001 * 1044)
		b.ReportAllocs()
		r := l.NewReader(1)
		defer r.Close()
		for b.Loop() {
			if _, _, err := r.Next(); err != nil {
				b.Fatal(err)
			}
			if r.Seek(r.Seq() + 1000); r.Seq() >= l.Next() {
				r.Seek(1)
			}
		}
	})
}
