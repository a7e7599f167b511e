package noderpc

import (
	"context"
	"net/http"
	"testing"
)

// benchmarkEcho sends 1 KiB and gets it back.
func benchmarkEcho(b *testing.B, run func(b *testing.B, once func())) {
	s, c := serve(b, nil), dialler(b, nil)
	answer := make([]byte, 1<<10)
	s.Handle(OpAck, func(context.Context, []byte) Response {
		return Response{Status: http.StatusOK, Body: answer}
	}, gateOf(GateMessaging))
	ctx, stop := context.WithTimeout(context.Background(), soon*30)
	defer stop()
	body := make([]byte, 1<<10)
	once := func() {
		if res, err := c.Call(ctx, s.Addr(), OpAck, body); err != nil || res.Status != http.StatusOK {
			b.Errorf("status %d, %v", res.Status, err)
		}
	}
	for range laneStreams[laneAck] {
		once()
	}
	b.ReportAllocs()
	b.SetBytes(2 << 10)
	run(b, once)
}

// BenchmarkEcho is the latency of one request at a time.
func BenchmarkEcho(b *testing.B) {
	benchmarkEcho(b, func(b *testing.B, once func()) {
		for b.Loop() {
			once()
		}
	})
}

// BenchmarkEchoParallel is the rate with 64 callers on each processor.
func BenchmarkEchoParallel(b *testing.B) {
	benchmarkEcho(b, func(b *testing.B, once func()) {
		b.SetParallelism(64)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				once()
			}
		})
	})
}

// BenchmarkCommitBatch is the rate of bodies of 1 MiB, one at a time.
func BenchmarkCommitBatch(b *testing.B) {
	s, c := serve(b, nil), dialler(b, nil)
	s.Handle(OpCommitProduceBatch, func(context.Context, []byte) Response {
		return Response{Status: http.StatusOK, Body: []byte("00000000")}
	}, gateOf(GateCommit))
	body := make([]byte, 1<<20)
	ctx, stop := context.WithTimeout(context.Background(), soon*30)
	defer stop()
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if res, err := c.Call(ctx, s.Addr(), OpCommitProduceBatch, body); err != nil || res.Status != http.StatusOK {
			b.Fatalf("status %d, %v", res.Status, err)
		}
	}
}

// BenchmarkResponse encodes and decodes a response of 1 KiB.
func BenchmarkResponse(b *testing.B) {
	r := Response{Status: 200, ContentType: "application/json", Body: make([]byte, 1<<10)}
	buf := make([]byte, 0, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		frame, _ := r.encode(buf, 1)
		if _, err := decodeResponse(frame[headerSize:]); err != nil {
			b.Fatal(err)
		}
	}
}
