//go:build unix

package router

import (
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
)

// BenchmarkParked is what 600 consumers parked on four nodes cost: processor time of the
// whole process for each second that they wait, in real time.
func BenchmarkParked(b *testing.B) {
	const window = time.Second
	c := benchCluster(b, 4)
	done := make(chan answer, 600)
	for i := range 600 {
		go func() {
			done <- c.consume(b.Context(), i%4, broker.ConsumeRequest{Topic: "t", Partition: -1, Wait: time.Hour})
		}()
	}
	pause(2 * time.Second)
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	c.wire.timers.Store(0)
	before := used()
	for b.Loop() {
		pause(window)
	}
	seconds := float64(b.N) * window.Seconds()
	b.ReportMetric(float64((used()-before).Microseconds())/seconds, "cpu-µs/s")
	b.ReportMetric(float64(c.wire.timers.Load())/seconds, "wakeups/s")
	b.ReportMetric(0, "ns/op")
	for _, m := range c.nodes {
		m.broker.ReleaseWaiters()
	}
	for range 600 {
		<-done
	}
}
