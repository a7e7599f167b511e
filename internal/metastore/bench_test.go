package metastore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// fill applies n creates in batches of Raft's size.
func fill(t testing.TB, m *machine, n int) {
	t.Helper()
	var logs []*raft.Log
	for i := range n {
		logs = append(logs, m.logOf(create(fmt.Sprintf("topic-%05d", i))))
		if len(logs) == 64 || i == n-1 {
			for _, o := range m.ApplyBatch(logs) {
				must(t, o.(outcome).err)
			}
			logs = logs[:0]
		}
	}
}

func BenchmarkTopicLookup(b *testing.B) {
	m := newMachine(b, b.TempDir())
	fill(b, m, 10_000)
	s := &Store{fsm: m.fsm}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := s.Topic("topic-04711"); !ok {
				b.Error("missing")
			}
		}
	})
}

func BenchmarkTopicsVersion(b *testing.B) {
	m := newMachine(b, b.TempDir())
	s := &Store{fsm: m.fsm}
	b.ReportAllocs()
	for b.Loop() {
		s.TopicsVersion()
	}
}

func BenchmarkLoadTenThousand(b *testing.B) {
	m := newMachine(b, b.TempDir())
	fill(b, m, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		m.catalog = newCatalog()
		must(b, m.load())
	}
}

// Concurrent creates through Raft: log write, apply, views. The aim is 2,000 a second,
// or what the disk's fsync allows.
func BenchmarkConcurrentCreates(b *testing.B) {
	s := openStore(b, b.TempDir())
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Propose(context.Background(), linked(fmt.Sprintf("topic-%07d", n.Add(1)), idA, nil, nil)); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}
