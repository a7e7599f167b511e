package ingress

// ageSamplesMax bounds the samples; past it every other one is dropped, which
// costs precision only.
const ageSamplesMax = 4096

// ageStepMS is how far two samples' accept times are apart at least.
const ageStepMS = 100

// ages tells the accept time of the first seq not done, to about 100 ms, from
// sparse samples instead of one value a seq.
type ages struct {
	samples []ageSample // ascending by seq
}

type ageSample struct {
	seq        uint64
	acceptedAt int64 // Unix ms
}

// add notes the accept time of the seq just read.
func (a *ages) add(seq uint64, acceptedAt int64) {
	if n := len(a.samples); n > 0 {
		if d := acceptedAt - a.samples[n-1].acceptedAt; d >= 0 && d < ageStepMS {
			return
		}
	}
	if len(a.samples) >= ageSamplesMax {
		kept := a.samples[:0]
		for i := 0; i < len(a.samples); i += 2 {
			kept = append(kept, a.samples[i])
		}
		a.samples = kept
	}
	a.samples = append(a.samples, ageSample{seq, acceptedAt})
}

// at returns the accept time of seq, the first not done, and forgets what lies
// before it; 0 when it was not read yet.
func (a *ages) at(seq, frontier uint64) int64 {
	drop := 0
	for drop+1 < len(a.samples) && a.samples[drop+1].seq <= seq {
		drop++
	}
	if drop > 0 {
		a.samples = a.samples[:copy(a.samples, a.samples[drop:])]
	}
	if seq >= frontier || len(a.samples) == 0 {
		return 0
	}
	return a.samples[0].acceptedAt
}
