package clock

import (
	"sync"
	"time"
	"unsafe"
)

// Skewed is a clock that is wrong on purpose: its wall clock is off by an offset
// that may jump, and both its wall and its monotonic clock run at a rate of their
// own. A jump moves Now and leaves Since and timers alone, as on a real machine.
// Timers keep the rate that was set when they were made.
type Skewed struct {
	base Clock

	mu     sync.Mutex // guards all below
	rate   float64
	offset time.Duration
	from   time.Time // of base, when the rate was set
	shown  time.Time // without offset, at that moment
}

var _ Clock = (*Skewed)(nil)

// NewSkewed returns a clock over base (nil means Real) that is right until Jump or SetRate.
func NewSkewed(base Clock) *Skewed {
	if base == nil {
		base = Real{}
	}
	now := base.Now()
	return &Skewed{base: base, rate: 1, from: now, shown: now}
}

// Jump sets the wall clock's offset from the truth.
func (s *Skewed) Jump(offset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset = offset
}

// SetRate sets how many seconds pass here in one true second: 1.1 gains 100 ms
// each second. Rates outside 0.01 to 100 are cut to that range.
func (s *Skewed) SetRate(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = s.steadyLocked()
	s.from = s.base.Now()
	s.rate = min(max(rate, 0.01), 100)
}

// Status returns the offset and rate in force.
func (s *Skewed) Status() (offset time.Duration, rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset, s.rate
}

func (s *Skewed) steadyLocked() time.Time {
	return s.shown.Add(time.Duration(float64(s.base.Since(s.from)) * s.rate))
}

// Now implements Clock.
func (s *Skewed) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return shiftWall(s.steadyLocked(), s.offset)
}

// Since implements Clock.
func (s *Skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// NewTimer implements Clock.
func (s *Skewed) NewTimer(d time.Duration) *Timer { return s.scale(s.base.NewTimer(s.truth(d))) }

// AfterFunc implements Clock.
func (s *Skewed) AfterFunc(d time.Duration, f func()) *Timer {
	return s.scale(s.base.AfterFunc(s.truth(d), f))
}

func (s *Skewed) scale(t *Timer) *Timer {
	reset := t.reset
	t.reset = func(d time.Duration) bool { return reset(s.truth(d)) }
	return t
}

// truth is how long d of this clock takes.
func (s *Skewed) truth(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(float64(d) / s.rate)
}

// shiftWall moves t's wall clock by d and leaves its monotonic reading. Package
// time has no call for that, so the reading is put back by its place in the
// struct; where that does not do what it should (or t has no reading), the whole
// time is moved instead.
func shiftWall(t time.Time, d time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	moved := t.Add(d)
	if d == 0 || unsafe.Sizeof(moved) != unsafe.Sizeof(layout{}) {
		return moved
	}
	out := moved
	(*layout)(unsafe.Pointer(&out)).ext = (*layout)(unsafe.Pointer(&t)).ext
	if out.Sub(t) != 0 || out.UnixNano()-t.UnixNano() != int64(d) {
		return moved
	}
	return out
}
