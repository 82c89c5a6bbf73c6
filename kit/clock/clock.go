// Package clock is the door to time: everything that waits or stamps takes a
// Clock from its Config, so that tests can move time by hand and fault runs can
// skew it.
//
// Now may jump (it is the wall clock); Since and timers follow the monotonic
// clock. All Clocks are safe for concurrent use.
package clock

import "time"

// Clock tells the time and makes timers.
type Clock interface {
	// Now is the wall clock with Go's monotonic reading attached where there is one.
	Now() time.Time
	// Since is the monotonic time gone by since t.
	Since(t time.Time) time.Duration
	// NewTimer makes a timer that sends once on C after d.
	NewTimer(d time.Duration) *Timer
	// AfterFunc runs f in a goroutine of its own after d.
	AfterFunc(d time.Duration, f func()) *Timer
}

// Timer is a one-shot timer. C is nil for AfterFunc timers.
type Timer struct {
	C     <-chan time.Time
	stop  func() bool
	reset func(time.Duration) bool
}

// Stop keeps the timer from firing; false when it has fired or was stopped.
func (t *Timer) Stop() bool { return t.stop() }

// Reset makes the timer fire after d from now; its return value is as for Stop.
func (t *Timer) Reset(d time.Duration) bool { return t.reset(d) }

// Real is the machine's clock.
type Real struct{}

// Now implements Clock.
func (Real) Now() time.Time { return time.Now() }

// Since implements Clock.
func (Real) Since(t time.Time) time.Duration { return time.Since(t) }

// NewTimer implements Clock.
func (Real) NewTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return &Timer{C: t.C, stop: t.Stop, reset: t.Reset}
}

// AfterFunc implements Clock.
func (Real) AfterFunc(d time.Duration, f func()) *Timer {
	t := time.AfterFunc(d, f)
	return &Timer{stop: t.Stop, reset: t.Reset}
}
