package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogramQuantilesAgainstSortedSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, a, b histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(rng.ExpFloat64() * float64(3*time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			a.record(d)
		} else {
			b.record(d)
		}
	}
	h.merge(&a)
	h.merge(&b)
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(q*float64(len(all)))-1)]
		got := h.quantile(q)
		if got < want || float64(got) > float64(want)*(1+1.0/histSub)+1 {
			t.Errorf("q%v: got %v, want %v to 1/%d above", q, got, want, histSub)
		}
	}
	if h.longest != all[len(all)-1] {
		t.Errorf("longest: got %v, want %v", h.longest, all[len(all)-1])
	}
}

func TestHistogramEveryDurationFallsInItsBucket(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, time.Second, time.Hour, 1<<62 - 1} {
		i := histIndex(d)
		if d > histUpper(i) || i > 0 && d <= histUpper(i-1) {
			t.Errorf("%d: bucket %d spans (%d, %d]", d, i, histUpper(i-1), histUpper(i))
		}
	}
	if i := histIndex(-5); i != 0 {
		t.Errorf("a negative duration: bucket %d, want 0", i)
	}
}

func TestTemplateIsJSONOfTheAskedSizeAndCarriesItsStamp(t *testing.T) {
	for _, size := range []int{benchSizeMin, 41, 1024} {
		p := newTemplate(size)
		ns := time.Now().UnixNano()
		p.stamp(ns)
		if len(p) != size || !json.Valid(p) {
			t.Errorf("size %d: %d bytes, valid JSON %v: %s", size, len(p), json.Valid(p), p)
		}
		if got := stampOf(p); got != ns {
			t.Errorf("stamp: got %d, want %d", got, ns)
		}
	}
	if got := stampOf([]byte(`{"other":"message, long enough to hold one"}`)); got != 0 {
		t.Errorf("a foreign payload has stamp %d, want 0", got)
	}
}
