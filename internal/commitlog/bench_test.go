package commitlog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"testing"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
)

// benchDir is a partition directory on the disk under test; set BENCH_DIR to choose
// another one than the temporary directory's.
func benchDir(b *testing.B) string {
	root := os.Getenv("BENCH_DIR")
	if root == "" {
		root = b.TempDir()
	} else {
		var err error
		if root, err = os.MkdirTemp(root, "bench"); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.RemoveAll(root) })
	}
	return path.Join(root, "topics/t/p00000")
}

func openBench(b *testing.B, dir string) *Log {
	l, err := Open(Options{FS: disk.OS{}, Dir: dir, Topic: "t", Clock: clock.Real()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

func benchRecords(n int) []Record {
	rng := rand.New(rand.NewPCG(1, 1))
	recs := make([]Record, n)
	for i := range recs {
		recs[i].Payload = make([]byte, 1024)
		for j := range recs[i].Payload {
			recs[i].Payload[j] = byte(rng.Uint32())
		}
	}
	return recs
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		for _, read := range []bool{false, true} {
			b.Run(fmt.Sprintf("records=%d/read=%v", n, read), func(b *testing.B) {
				l := openBench(b, benchDir(b))
				recs := benchRecords(n)
				b.ReportAllocs()
				b.SetBytes(int64(n) << 10)
				for b.Loop() {
					first, err := l.Commit(recs)
					if err != nil {
						b.Fatal(err)
					}
					if read {
						if _, err := l.Read(first); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

func BenchmarkTail(b *testing.B) {
	l := openBench(b, benchDir(b))
	_, _ = l.Read(0) // somebody reads: what is committed next is cached
	if _, err := l.Commit(benchRecords(100)); err != nil {
		b.Fatal(err)
	}
	b.Run("Read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Read(99); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ReadRun100", func(b *testing.B) {
		dst := make([]Stored, 0, 100)
		b.ReportAllocs()
		for b.Loop() {
			if recs, err := l.ReadRun(dst, 0, 100, 0); err != nil || len(recs) != 100 {
				b.Fatal(len(recs), err)
			}
		}
	})
}

func BenchmarkColdReadRun(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("frame=%d", n), func(b *testing.B) {
			dir := benchDir(b)
			l := openBench(b, dir)
			recs := benchRecords(n)
			for range 8000 / n {
				if _, err := l.Commit(recs); err != nil {
					b.Fatal(err)
				}
			}
			l.Close()
			dst := make([]Stored, 0, 100)
			b.ReportAllocs()
			b.SetBytes(8000 << 10)
			for b.Loop() {
				l := openBenchWarm(b, dir)
				for at := int64(0); at < 8000; {
					recs, err := l.ReadRun(dst, at, 100, 0)
					if err != nil {
						b.Fatal(err)
					}
					at += int64(len(recs))
				}
				l.Close()
			}
		})
	}
}

// openBenchWarm opens a log outside the timer.
func openBenchWarm(b *testing.B, dir string) *Log {
	b.StopTimer()
	defer b.StartTimer()
	l, err := Open(Options{FS: disk.OS{}, Dir: dir, Topic: "t"})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func BenchmarkOpen64MiB(b *testing.B) {
	dir := benchDir(b)
	l := openBench(b, dir)
	recs := benchRecords(1000)
	for l.Stats().SizeBytes < 62<<20 {
		if _, err := l.Commit(recs); err != nil {
			b.Fatal(err)
		}
	}
	l.Close()
	b.SetBytes(62 << 20)
	b.ReportAllocs()
	for b.Loop() {
		l, err := Open(Options{FS: disk.OS{}, Dir: dir, Topic: "t"})
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}
