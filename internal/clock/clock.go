// Package clock is the only source of time: the real clock, and a fake one that
// moves when a test says so. Durations and deadlines use the monotonic reading a
// time.Time carries; wall time is read through UnixMilli and the like.
package clock

import (
	"sync"
	"time"
)

// Clock tells the time and makes timers.
type Clock interface {
	// Now is the current time, with a monotonic reading on the real clock.
	Now() time.Time
	// NewTimer fires once on its channel after d.
	NewTimer(d time.Duration) Timer
}

// Timer is a resettable one-shot timer with the semantics of time.Timer since Go
// 1.23: after Stop or Reset no stale value is received, and both report true for a
// timer whose value nobody has received yet.
type Timer interface {
	C() <-chan time.Time
	Reset(d time.Duration) bool
	Stop() bool
}

// Real returns the system's clock.
func Real() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) NewTimer(d time.Duration) Timer { return realTimer{time.NewTimer(d)} }

type realTimer struct{ t *time.Timer }

func (r realTimer) C() <-chan time.Time        { return r.t.C }
func (r realTimer) Reset(d time.Duration) bool { return r.t.Reset(d) }
func (r realTimer) Stop() bool                 { return r.t.Stop() }

// Fake is a clock for tests. Its zero value is not usable; see NewFake.
type Fake struct {
	mu     sync.Mutex // guards now and every timer's due and armed
	now    time.Time
	timers map[*fakeTimer]struct{} // the armed ones
}

// NewFake returns a clock that stands at t.
func NewFake(t time.Time) *Fake {
	return &Fake{now: t, timers: map[*fakeTimer]struct{}{}}
}

// Now returns the time the clock stands at.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Advance moves the clock by d and fires the timers that fall due.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
	for t := range f.timers {
		if !t.due.After(f.now) {
			delete(f.timers, t)
			t.ch <- f.now
		}
	}
}

// Timers is the number of armed timers, so that a test can wait until the code
// under test has armed the one it wants to fire.
func (f *Fake) Timers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.timers)
}

// NewTimer makes a timer that fires when Advance passes its due time.
func (f *Fake) NewTimer(d time.Duration) Timer {
	t := &fakeTimer{f: f, ch: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

type fakeTimer struct {
	f   *Fake
	ch  chan time.Time
	due time.Time
}

func (t *fakeTimer) C() <-chan time.Time { return t.ch }

func (t *fakeTimer) Reset(d time.Duration) bool {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	was := t.disarm()
	t.due = t.f.now.Add(d)
	if d <= 0 {
		t.ch <- t.f.now
		return was
	}
	t.f.timers[t] = struct{}{}
	return was
}

func (t *fakeTimer) Stop() bool {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	return t.disarm()
}

// disarm forgets the timer and drains a value nobody received; like time.Timer it
// counts a timer with such a value as armed. Caller holds mu.
func (t *fakeTimer) disarm() bool {
	_, armed := t.f.timers[t]
	delete(t.f.timers, t)
	select {
	case <-t.ch:
		return true
	default:
		return armed
	}
}
