package clock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fired returns the value a timer has ready, or zero.
func fired(t Timer) time.Time {
	select {
	case v := <-t.C():
		return v
	default:
		return time.Time{}
	}
}

func TestFakeStandsUntilAdvanced(t *testing.T) {
	f := NewFake(start)
	if !f.Now().Equal(start) {
		t.Errorf("starts at %s", f.Now())
	}
	f.Advance(90 * time.Second)
	if got := f.Now().Sub(start); got != 90*time.Second {
		t.Errorf("moved by %s", got)
	}
}

func TestFakeTimerFiresOnce(t *testing.T) {
	f := NewFake(start)
	tm := f.NewTimer(time.Second)
	f.Advance(time.Second - 1)
	if v := fired(tm); !v.IsZero() {
		t.Fatalf("fired early, at %s", v)
	}
	f.Advance(1)
	if v := fired(tm); !v.Equal(start.Add(time.Second)) {
		t.Fatalf("due in a second, fired at %s", v)
	}
	f.Advance(time.Hour)
	if v := fired(tm); !v.IsZero() {
		t.Fatalf("fired again, at %s", v)
	}
}

func TestFakeTimersAreCounted(t *testing.T) {
	f := NewFake(start)
	a, b := f.NewTimer(time.Second), f.NewTimer(2*time.Second)
	if f.Timers() != 2 {
		t.Fatalf("%d armed, want 2", f.Timers())
	}
	f.Advance(time.Second)
	if f.Timers() != 1 || fired(a).IsZero() || !fired(b).IsZero() {
		t.Fatalf("%d armed after the first fell due", f.Timers())
	}
	if !b.Stop() || f.Timers() != 0 {
		t.Fatalf("%d armed after Stop", f.Timers())
	}
}

func TestFakeTimerDueAtOnce(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second} {
		f := NewFake(start)
		tm := f.NewTimer(d)
		if fired(tm).IsZero() || f.Timers() != 0 {
			t.Errorf("a timer of %s did not fire at once", d)
		}
	}
}

// stopAndReset checks the promise both clocks make: no stale value after Stop or
// Reset, and both report whether the timer was armed.
func stopAndReset(t *testing.T, c Clock, advance func(time.Duration)) {
	t.Helper()
	tm := c.NewTimer(time.Second)
	if !tm.Stop() || tm.Stop() {
		t.Error("Stop did not report armed, then not armed")
	}
	advance(2 * time.Second)
	if !fired(tm).IsZero() {
		t.Error("a stopped timer fired")
	}

	if tm.Reset(time.Second) {
		t.Error("Reset says a stopped timer was armed")
	}
	advance(time.Second)
	if !tm.Reset(time.Second) {
		t.Error("Reset says a timer nobody received from was not armed")
	}
	if v := fired(tm); !v.IsZero() {
		t.Errorf("stale value %s after Reset", v)
	}
	if !tm.Reset(3 * time.Second) {
		t.Error("Reset says an armed timer was not")
	}
	advance(2 * time.Second)
	if !fired(tm).IsZero() {
		t.Error("fired at the time before Reset")
	}
	advance(time.Second)
	if fired(tm).IsZero() {
		t.Error("did not fire at the time of Reset")
	}
	if tm.Stop() || tm.Reset(time.Second) {
		t.Error("a timer whose value was received counts as armed")
	}

	tm.Reset(time.Second)
	advance(time.Second)
	if !tm.Stop() {
		t.Error("Stop says a timer nobody received from was not armed")
	}
	if v := fired(tm); !v.IsZero() {
		t.Errorf("stale value %s after Stop", v)
	}
}

func TestFakeStopAndReset(t *testing.T) {
	f := NewFake(start)
	stopAndReset(t, f, f.Advance)
}

// The real clock keeps the same promises; in a bubble its time is free.
func TestRealStopAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Real()
		before := c.Now()
		advance := func(d time.Duration) {
			<-c.NewTimer(d).C()
			synctest.Wait()
		}
		stopAndReset(t, c, advance)
		if c.Now().Sub(before) <= 0 {
			t.Error("time stands still")
		}
	})
}

func TestFakeWakesAWaiter(t *testing.T) {
	f := NewFake(start)
	tm := f.NewTimer(time.Minute)
	got := make(chan time.Time, 1)
	go func() { got <- <-tm.C() }()
	f.Advance(2 * time.Minute)
	if v := <-got; !v.Equal(start.Add(2 * time.Minute)) {
		t.Errorf("woken with %s", v)
	}
}

func TestFakeConcurrentUse(t *testing.T) {
	f := NewFake(start)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			tm := f.NewTimer(time.Millisecond)
			for range 100 {
				f.Advance(time.Millisecond)
				f.Now()
				tm.Reset(time.Millisecond)
				f.Timers()
				tm.Stop()
			}
		})
	}
	wg.Wait()
	if f.Timers() != 0 {
		t.Errorf("%d timers left armed", f.Timers())
	}
	if got := f.Now().Sub(start); got != 800*time.Millisecond {
		t.Errorf("800 steps of a millisecond moved the clock by %s", got)
	}
}
