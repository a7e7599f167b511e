package httpapi

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// identityCap bounds what one identity has in flight on this node. A weight that
// does not fit is refused at once, never queued (spec/http-api LIM-8, LIM-9).
type identityCap struct {
	max  int    // 0 = off
	what string // consume or produce, for the text

	mu   sync.Mutex // guards held
	held map[string]int
}

func newIdentityCap(limit int, what string) *identityCap {
	return &identityCap{max: limit, what: what, held: map[string]int{}}
}

// capHold is what one request holds of a cap.
type capHold struct {
	cap    *identityCap
	id     string
	weight int
}

// take reserves weight, clamped to the cap, for id.
func (k *identityCap) take(id string, weight int) (capHold, error) {
	h := capHold{cap: k, id: id}
	err := h.raise(weight)
	return h, err
}

// raise brings what is held up to weight, clamped to the cap; on a refusal it
// keeps what it has.
func (h *capHold) raise(weight int) error {
	k := h.cap
	if k.max == 0 {
		return nil
	}
	more := min(weight, k.max) - h.weight
	if more <= 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[h.id]+more > k.max {
		return k.refusal()
	}
	k.held[h.id] += more
	h.weight += more
	return nil
}

// release gives everything back. Idempotent.
func (h *capHold) release() {
	if h.weight == 0 {
		return
	}
	k := h.cap
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.held[h.id] - h.weight; left > 0 {
		k.held[h.id] = left
	} else {
		delete(k.held, h.id)
	}
	h.weight = 0
}

func (k *identityCap) refusal() *refusal {
	return &refusal{
		status: 429, code: "too_many_in_flight", retryAfter: "1",
		text: fmt.Sprintf("too many in-flight %s requests for this identity (limit %d per node)", k.what, k.max),
	}
}

// budgetStep is the unit in which a batch body takes from the budget, and the
// size up to which it takes nothing (spec/http-api LIM-10).
const budgetStep = 1 << 20

// byteBudget bounds the batch bodies over 1 MiB this node reads at one time.
type byteBudget struct {
	max      int64 // 0 = off
	used     atomic.Int64
	rejected func() // counts a refusal
}

// budgetHold is what one body holds of the budget. A nil hold covers anything.
type budgetHold struct {
	budget *byteBudget
	held   int64
}

// cover makes the hold enough for a body of size bytes.
func (h *budgetHold) cover(size int) error {
	if h == nil || h.budget.max == 0 || size <= budgetStep || int64(size) <= h.held {
		return nil
	}
	more := (int64(size)+budgetStep-1)/budgetStep*budgetStep - h.held
	if h.budget.used.Add(more) > h.budget.max {
		h.budget.used.Add(-more)
		h.budget.rejected()
		return errBudget
	}
	h.held += more
	return nil
}

// release gives everything back. Idempotent.
func (h *budgetHold) release() {
	h.budget.used.Add(-h.held)
	h.held = 0
}
