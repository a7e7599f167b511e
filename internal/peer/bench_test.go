package peer

import (
	"context"
	"fmt"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

func benchRecords(n, size int) []model.Record {
	recs := make([]model.Record, n)
	for i := range recs {
		recs[i] = model.Record{Key: fmt.Appendf(nil, "key-%d", i), Payload: make([]byte, size), AcceptedAt: 1, Incarnation: life1}
	}
	return recs
}

// The request of a commit, written into a kept buffer: no allocation for a record.
func BenchmarkCommitEncode(b *testing.B) {
	r := commitRequest{topic: "orders", partition: 3, recs: benchRecords(256, 1024)}
	var e noderpc.Encoder
	b.ReportAllocs()
	b.SetBytes(int64(commitSize(r.recs)))
	for b.Loop() {
		e = e[:0]
		if _, err := r.encode(&e); err != nil {
			b.Fatal(err)
		}
	}
}

// The same, read: one slice for all records, which point into the request.
func BenchmarkCommitDecode(b *testing.B) {
	r := commitRequest{topic: "orders", partition: 3, recs: benchRecords(256, 1024)}
	var e noderpc.Encoder
	if _, err := r.encode(&e); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(e)))
	for b.Loop() {
		if _, err := decodeCommit(noderpc.NewDecoder(e), model.LevelNewest); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDeliveries(b *testing.B) {
	ds := leased("t", 100, 1024)
	b.ReportAllocs()
	for b.Loop() {
		res, _ := deliver(ds)
		if _, err := decodeDeliveries(noderpc.NewDecoder(res.Body), "t"); err != nil {
			b.Fatal(err)
		}
	}
}

// A settlement to another node and back, on loopback.
func BenchmarkSettle(b *testing.B) {
	n, c := newNode(b), newCaller(b, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: func(string, model.Handle, model.SettleOp) error { return nil }})
	c.main = c.wire.to
	b.ReportAllocs()
	b.Run("one at a time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Settle(b.Context(), n.Addr(), "t", handle(1), model.Ack); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many at once", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(256)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := c.Settle(b.Context(), n.Addr(), "t", handle(1), model.Ack); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// A commit of 256 records of 1 KiB to another node and back.
func BenchmarkCommit(b *testing.B) {
	n, c := newNode(b), newCaller(b, model.LevelNewest)
	ServeCommits(n, model.LevelNewest, commits(func(context.Context, string, int, []model.Record) (int64, error) { return 0, nil }))
	c.main = c.wire.to
	recs := benchRecords(256, 1024)
	b.ReportAllocs()
	b.SetBytes(int64(commitSize(recs)))
	for b.Loop() {
		if _, err := c.Commit(b.Context(), n.Addr(), "t", 0, recs); err != nil {
			b.Fatal(err)
		}
	}
}
