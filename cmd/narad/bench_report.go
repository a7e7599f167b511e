package main

import (
	"fmt"
	"math"
	"math/bits"
	"text/tabwriter"
	"time"
)

// histogram counts durations in buckets of at most 1/64 relative width: exact enough
// for percentiles, 30 KiB, and nothing allocated while recording. It is not safe for
// concurrent use; each worker has its own.
type histogram struct {
	counts  [histBuckets]uint64
	total   uint64
	longest time.Duration
}

const (
	histSub     = 64 // buckets per power of two
	histBuckets = 60 * histSub
)

func histIndex(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < histSub {
		return int(n)
	}
	exp := bits.Len64(n) - 7 // n>>exp is in [64, 128)
	return min((exp+1)*histSub+int(n>>exp)-histSub, histBuckets-1)
}

// histUpper is the largest duration of bucket i.
func histUpper(i int) time.Duration {
	if i < histSub {
		return time.Duration(i)
	}
	exp := i/histSub - 1
	return time.Duration((uint64(i%histSub)+histSub+1)<<exp - 1)
}

func (h *histogram) record(d time.Duration) {
	h.counts[histIndex(d)]++
	h.total++
	h.longest = max(h.longest, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.longest = max(h.longest, o.longest)
}

// quantile is the duration that a share q of the records did not exceed; 0 when
// nothing was recorded.
func (h *histogram) quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(h.total)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return min(histUpper(i), h.longest)
		}
	}
	return h.longest
}

// benchResult is the report of a run; durations in milliseconds.
type benchResult struct {
	Benchmark   string  `json:"benchmark"`
	Connections int     `json:"connections"`
	Batch       int     `json:"batch"`
	SizeBytes   int     `json:"size_bytes"`
	Seconds     float64 `json:"seconds"`
	Messages    int64   `json:"messages"`
	Produced    int64   `json:"produced,omitempty"` // e2e only
	PerSecond   float64 `json:"messages_per_second"`
	MiBPerSec   float64 `json:"mib_per_second"`
	P50         float64 `json:"p50_ms"`
	P90         float64 `json:"p90_ms"`
	P99         float64 `json:"p99_ms"`
	Max         float64 `json:"max_ms"`
	Errors      int64   `json:"errors"`
	LastError   string  `json:"last_error,omitempty"`
}

func (b *benchRun) result() benchResult {
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
	sec := b.took.Seconds()
	n := b.messages.Load()
	r := benchResult{
		Benchmark: b.verb, Connections: b.flags.connections, Batch: b.flags.batch, SizeBytes: b.flags.size,
		Seconds: math.Round(sec*1e3) / 1e3, Messages: n, Produced: b.produced.Load(),
		PerSecond: math.Round(float64(n) / sec), MiBPerSec: math.Round(float64(n)*float64(b.flags.size)/sec/(1<<20)*10) / 10,
		P50: ms(b.latency.quantile(0.5)), P90: ms(b.latency.quantile(0.9)), P99: ms(b.latency.quantile(0.99)),
		Max: ms(b.latency.longest), Errors: b.failed.Load(),
	}
	if err := b.lastErr.Load(); err != nil {
		r.LastError = (*err).Error()
	}
	return r
}

// report prints the result; a run in which nothing succeeded is an error.
func (b *benchRun) report() error {
	r := b.result()
	if b.flags.asJSON {
		if err := printJSON(b.out, r); err != nil {
			return err
		}
	} else {
		tw := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "BENCH\tCONNS\tBATCH\tSIZE\tSECONDS\tMESSAGES\tMSG/S\tMIB/S\tP50 MS\tP90 MS\tP99 MS\tMAX MS\tERRORS\t")
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%.1f\t%d\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t\n", r.Benchmark, r.Connections,
			r.Batch, r.SizeBytes, r.Seconds, r.Messages, r.PerSecond, r.MiBPerSec, r.P50, r.P90, r.P99, r.Max, r.Errors)
		if err := tw.Flush(); err != nil {
			return err
		}
		if r.LastError != "" {
			fmt.Fprintf(b.err, "last error: %s\n", r.LastError)
		}
	}
	if r.Messages == 0 {
		return fmt.Errorf("bench %s: no message got through (%d errors)", b.verb, r.Errors)
	}
	return nil
}
