package client

import (
	"log/slog"
	"sync"
	"time"
)

// node is one base URL and what recent requests learned about it.
type node struct {
	base     string
	failures int       // in a row
	failedAt time.Time // the last one
	open     bool      // left out: failures reached the limit, nothing succeeded since
	probeAt  time.Time // when open: the next request may try it from here on
	pausedTo time.Time // it asked for a pause (Retry-After)
}

// usable reports whether a request may go to n now. A node that was left out takes
// one request each time its pause is over; the first success takes it back.
func (n *node) usable(now time.Time) bool {
	return !now.Before(n.pausedTo) && (!n.open || !now.Before(n.probeAt))
}

// nodes spreads requests: in turn over all that work, one trying request at a time to
// one that failed too often, and when none works to the one that failed longest ago.
type nodes struct {
	breakAfter int
	breakFor   time.Duration
	log        *slog.Logger

	mu   sync.Mutex // guards below
	all  []*node
	next int
}

func newNodes(bases []string, breakAfter int, breakFor time.Duration, log *slog.Logger) *nodes {
	ns := &nodes{breakAfter: breakAfter, breakFor: breakFor, log: log}
	for _, b := range bases {
		ns.all = append(ns.all, &node{base: b})
	}
	return ns
}

func (ns *nodes) bases() []string {
	out := make([]string, len(ns.all)) // neither the slice nor a base ever changes
	for i, n := range ns.all {
		out[i] = n.base
	}
	return out
}

// pick chooses the node of the next attempt, not avoid (the last one tried) if
// another is usable.
func (ns *nodes) pick(now time.Time, avoid *node) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	start := ns.next
	ns.next = (ns.next + 1) % len(ns.all)
	var again *node
	for i := range ns.all {
		n := ns.all[(start+i)%len(ns.all)]
		switch {
		case !n.usable(now):
		case n == avoid:
			again = n
		default:
			return ns.chosen(n, now)
		}
	}
	if again != nil {
		return ns.chosen(again, now)
	}
	return ns.chosen(ns.leastBad(), now)
}

// chosen notes that n gets a request; with mu held.
func (ns *nodes) chosen(n *node, now time.Time) *node {
	if n.open {
		n.probeAt = now.Add(ns.breakFor)
	}
	return n
}

// leastBad is, with every node left out or paused, the one whose failure is longest
// ago; with mu held.
func (ns *nodes) leastBad() *node {
	best := ns.all[0]
	for _, n := range ns.all[1:] {
		if n.failedAt.Before(best.failedAt) {
			best = n
		}
	}
	return best
}

// other reports whether a node besides n could take a request now.
func (ns *nodes) other(n *node, now time.Time) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for _, o := range ns.all {
		if o != n && o.usable(now) {
			return true
		}
	}
	return false
}

// ok notes an answer of n that shows it working.
func (ns *nodes) ok(n *node) {
	ns.mu.Lock()
	back := n.open
	n.failures, n.open = 0, false
	ns.mu.Unlock()
	if back {
		ns.log.Info("node answers again", "node", n.base)
	}
}

// failed notes that n failed, and leaves it out once it did so too often in a row.
func (ns *nodes) failed(n *node, now time.Time, err error) {
	ns.mu.Lock()
	n.failures++
	n.failedAt = now
	opened := !n.open && n.failures >= ns.breakAfter
	if n.failures >= ns.breakAfter {
		n.open, n.probeAt = true, now.Add(ns.breakFor)
	}
	ns.mu.Unlock()
	if opened {
		ns.log.Warn("node keeps failing: left out", "node", n.base, "failures", ns.breakAfter, "err", err)
	}
}

// pause keeps requests from n for a while, as it asked for.
func (ns *nodes) pause(n *node, until time.Time) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if until.After(n.pausedTo) {
		n.pausedTo = until
		n.failedAt = until // among paused nodes the first to be free counts as the least bad
	}
}
