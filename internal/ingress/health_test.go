package ingress

import (
	"testing"
	"time"
)

// step is one call of the state machine and what must hold after it.
type step struct {
	at   time.Duration
	do   func(h *health, now time.Time) action
	want action
	in   state
}

func launch(h *health, now time.Time) action { h.launched(now); return 0 }
func tick(h *health, now time.Time) action   { return h.tick(now) }
func land(o outcome) func(*health, time.Time) action {
	return func(h *health, now time.Time) action { return h.landed(o, now) }
}
func unown(h *health, now time.Time) action { return h.unowned(now) }
func own(alive bool) func(*health, time.Time) action {
	return func(h *health, now time.Time) action { return h.owned(alive, now) }
}

// TestHealthTransitions walks every transition of spec/storage-and-produce
// section 16.1.
func TestHealthTransitions(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"ready to ready", []step{{0, launch, 0, ready}, {s, tick, 0, ready}, {s, land(committed), rescan, ready}}},
		{"ready to hung and back", []step{
			{0, launch, 0, ready}, {s + 1, tick, returnQueue, hung}, {2 * s, tick, 0, hung},
			{9 * s, land(committed), rescan, ready},
		}},
		{"hung to failing", []step{
			{0, launch, 0, ready}, {2 * s, tick, returnQueue, hung}, {30 * s, land(failed), returnQueue | keepProbe, failing},
		}},
		{"failing until a probe succeeds", []step{
			{0, launch, 0, ready}, {ms, land(failed), returnQueue | keepProbe, failing},
			{s + ms, launch, 0, failing}, {s + 2*ms, land(failed), returnQueue | keepProbe, failing},
			{3 * s, launch, 0, failing}, {3 * s, land(committed), rescan, ready},
		}},
		{"a hung probe", []step{
			{0, launch, 0, ready}, {ms, land(failed), returnQueue | keepProbe, failing},
			{s + ms, launch, 0, failing}, {3 * s, tick, returnQueue, hung}, {4 * s, land(committed), rescan, ready},
		}},
		{"unresolved until the owner is known", []step{
			{0, unown, returnQueue | keepProbe, unresolved}, {10 * ms, unown, returnQueue | keepProbe, unresolved},
			{20 * ms, own(true), rescan, ready},
		}},
		{"refused is no failure", []step{{0, launch, 0, ready}, {ms, land(refused), returnQueue, ready}}},
		{"refused ends a failure", []step{
			{0, launch, 0, ready}, {ms, land(failed), returnQueue | keepProbe, failing},
			{s, launch, 0, failing}, {s, land(refused), returnQueue, ready},
		}},
		{"dead owner", []step{
			{0, own(false), returnQueue | keepProbe | rescan, failing}, {s, own(false), 0, failing},
			{2 * s, own(true), 0, failing}, {2 * s, launch, 0, failing}, {2 * s, land(committed), rescan, ready},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h health
			for i, st := range c.steps {
				if got := st.do(&h, epoch.Add(st.at)); got != st.want || h.state() != st.in {
					t.Fatalf("step %d: action %b state %v, want %b %v", i, got, h.state(), st.want, st.in)
				}
			}
		})
	}
}

func TestHealthReroute(t *testing.T) {
	var h health
	h.launched(epoch)
	h.landed(failed, epoch.Add(time.Second))
	if h.rerouting(epoch.Add(rerouteGrace - 1)) {
		t.Fatal("rerouting inside the grace")
	}
	if !h.rerouting(epoch.Add(rerouteGrace)) {
		t.Fatal("not rerouting 3 s after the first failed attempt began")
	}
	h.landed(committed, epoch.Add(rerouteGrace))
	if h.rerouting(epoch.Add(time.Hour)) {
		t.Fatal("rerouting after a success")
	}
	h.unowned(epoch)
	if h.rerouting(epoch.Add(time.Hour)) {
		t.Fatal("an unknown owner started a reroute")
	}
	h.owned(false, epoch)
	if !h.rerouting(epoch) {
		t.Fatal("a dead owner is not rerouted at once")
	}
}

func TestHealthTakes(t *testing.T) {
	const q = 10
	probing, hanging, lost, refusing := health{}, health{}, health{}, health{}
	probing.launched(epoch)
	probing.landed(failed, epoch)
	hanging.launched(epoch)
	hanging.tick(epoch.Add(2 * time.Second))
	lost.unowned(epoch)
	refusing.launched(epoch)
	refusing.landed(refused, epoch)
	for _, c := range []struct {
		name   string
		h      health
		queued int
		at     time.Duration
		want   bool
	}{
		{"ready", health{}, 0, 0, true},
		{"ready, one place left", health{}, q - 1, 0, true},
		{"ready, full", health{}, q, 0, false},
		{"hung", hanging, 0, 0, false},
		{"failing without its probe", probing, 0, 0, true},
		{"failing with its probe", probing, 1, 0, false},
		{"unresolved without its record", lost, 0, 0, true},
		{"unresolved with its record", lost, 1, 0, false},
		{"refused a moment ago", refusing, 0, 0, false},
		{"refused a second ago", refusing, 0, rescanBackstop, true},
	} {
		if got := c.h.takes(c.queued, q, epoch.Add(c.at)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if probing.wantsProbe(0, epoch) || !probing.wantsProbe(0, epoch.Add(failureBackoff)) {
		t.Error("the probe does not keep to the backoff")
	}
	if ok := (&health{}).budget() == commitBudget && probing.budget() == probeBudget; !ok {
		t.Error("wrong budgets")
	}
}
