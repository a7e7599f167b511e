package client

import (
	"errors"
	"log/slog"
	"testing"
	"time"
)

var errTest = errors.New("test")

func testNodes(bases ...string) *nodes {
	return newNodes(bases, DefaultBreakerFailures, DefaultBreakerOpen, slog.New(slog.DiscardHandler))
}

// picks is the bases of the next n picks, one letter each.
func (ns *nodes) picks(now time.Time, n int) (out string) {
	for range n {
		out += ns.pick(now, nil).base
	}
	return out
}

func TestNodesTakeTurns(t *testing.T) {
	ns := testNodes("a", "b", "c")
	if got := ns.picks(time.Now(), 7); got != "abcabca" {
		t.Errorf("picked %s, want abcabca", got)
	}
	if got := ns.pick(time.Now(), ns.all[1]).base; got != "c" {
		t.Errorf("picked %s after b failed, want c", got)
	}
}

func TestNodeIsLeftOutAndTakenBack(t *testing.T) {
	ns := testNodes("a", "b")
	a, now := ns.all[0], time.Now()
	for range DefaultBreakerFailures - 1 {
		ns.failed(a, now, errTest)
	}
	if got := ns.picks(now, 4); got != "abab" {
		t.Errorf("one failure short of the limit: picked %s, want abab", got)
	}
	ns.failed(a, now, errTest)
	if got := ns.picks(now.Add(DefaultBreakerOpen-1), 4); got != "bbbb" {
		t.Errorf("at the limit: picked %s, want bbbb", got)
	}
	later := now.Add(DefaultBreakerOpen)
	if got := ns.picks(later, 5); got != "abbbb" {
		t.Errorf("half open: picked %s, want one try of a: abbbb", got)
	}
	ns.failed(a, later, errTest)
	if got := ns.picks(later.Add(DefaultBreakerOpen-1), 2); got != "bb" {
		t.Errorf("the try failed: picked %s, want bb", got)
	}
	later = later.Add(DefaultBreakerOpen)
	ns.picks(later, 2)
	ns.ok(a)
	if got := ns.picks(later, 4); got != "abab" && got != "baba" {
		t.Errorf("the try succeeded: picked %s, want turns again", got)
	}
	ns.failed(a, later, errTest)
	if !a.usable(later) {
		t.Error("a success does not start the count again")
	}
}

func TestNodesAllLeftOut(t *testing.T) {
	ns := testNodes("a", "b", "c")
	now := time.Now()
	for i, n := range []*node{ns.all[1], ns.all[0], ns.all[2]} {
		for range DefaultBreakerFailures {
			ns.failed(n, now.Add(time.Duration(i)*time.Millisecond), errTest)
		}
	}
	if got := ns.picks(now.Add(time.Second), 3); got != "bbb" {
		t.Errorf("all left out: picked %s, want the one that failed first: bbb", got)
	}
}

func TestNodePause(t *testing.T) {
	ns := testNodes("a", "b")
	now := time.Now()
	ns.pause(ns.all[0], now.Add(time.Second))
	if got := ns.picks(now, 3); got != "bbb" {
		t.Errorf("picked %s while a pauses, want bbb", got)
	}
	if ns.other(ns.all[1], now) || !ns.other(ns.all[0], now) {
		t.Error("other counts a node that pauses")
	}
	ns.pause(ns.all[1], now.Add(2*time.Second))
	if got := ns.picks(now, 2); got != "aa" {
		t.Errorf("picked %s while both pause, want aa, free first", got)
	}
	if got := ns.pick(now.Add(2*time.Second), ns.all[0]).base; got != "b" {
		t.Errorf("picked %s after the pauses, want b", got)
	}
}
