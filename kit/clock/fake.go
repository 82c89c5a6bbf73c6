package clock

import (
	"sync"
	"time"
)

// Fake is a clock that stands still until it is advanced by hand. Timers fire in
// the order of their times, those of the same instant in the order in which they
// were made; functions of AfterFunc run inside Advance, in the caller's
// goroutine, without a lock held. The zero value is not usable: call NewFake.
type Fake struct {
	mu     sync.Mutex // guards all below
	now    time.Time
	made   uint64
	timers map[*fakeTimer]struct{}
	change chan struct{} // closed and replaced when a timer is made or stopped
}

var _ Clock = (*Fake)(nil)

type fakeTimer struct {
	at   time.Time
	nth  uint64
	c    chan time.Time
	call func()
}

// NewFake returns a clock that shows start; the zero time means 2026-01-01 00:00 UTC.
func NewFake(start time.Time) *Fake {
	if start.IsZero() {
		start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return &Fake{now: start.Round(0), timers: map[*fakeTimer]struct{}{}, change: make(chan struct{})}
}

// Now implements Clock.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Since implements Clock.
func (f *Fake) Since(t time.Time) time.Duration { return f.Now().Sub(t) }

// NewTimer implements Clock.
func (f *Fake) NewTimer(d time.Duration) *Timer {
	t := &fakeTimer{c: make(chan time.Time, 1)}
	return f.timer(t, t.c, d)
}

// AfterFunc implements Clock.
func (f *Fake) AfterFunc(d time.Duration, call func()) *Timer {
	return f.timer(&fakeTimer{call: call}, nil, d)
}

func (f *Fake) timer(t *fakeTimer, c <-chan time.Time, d time.Duration) *Timer {
	f.start(t, d)
	return &Timer{
		C:    c,
		stop: func() bool { return f.stop(t) },
		reset: func(d time.Duration) bool {
			was := f.stop(t)
			f.start(t, d)
			return was
		},
	}
}

func (f *Fake) start(t *fakeTimer, d time.Duration) {
	f.mu.Lock()
	f.made++
	t.at, t.nth = f.now.Add(d), f.made
	f.timers[t] = struct{}{}
	f.changedLocked()
	f.mu.Unlock()
	if d <= 0 {
		f.Advance(0)
	}
}

func (f *Fake) stop(t *fakeTimer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, was := f.timers[t]
	delete(f.timers, t)
	if t.c != nil { // as since Go 1.23: nothing old is received after Stop or Reset
		select {
		case <-t.c:
		default:
		}
	}
	f.changedLocked()
	return was
}

func (f *Fake) changedLocked() {
	close(f.change)
	f.change = make(chan struct{})
}

// Timers counts the timers that have not fired.
func (f *Fake) Timers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.timers)
}

// Change is closed when a timer is made or stopped next: with Timers a test waits
// until the code under test has come to rest. Read it before looking at Timers.
func (f *Fake) Change() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.change
}

// Advance moves time on by d, firing on the way all timers that fall due, also
// those that functions of other timers make. Call it from one goroutine at a time.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	end := f.now.Add(d)
	for {
		t := f.nextLocked(end)
		if t == nil {
			break
		}
		if t.at.After(f.now) {
			f.now = t.at
		}
		delete(f.timers, t)
		f.changedLocked()
		now := f.now
		f.mu.Unlock()
		if t.call != nil {
			t.call()
		} else {
			select {
			case t.c <- now:
			default:
			}
		}
		f.mu.Lock()
	}
	if end.After(f.now) {
		f.now = end
	}
	f.mu.Unlock()
}

func (f *Fake) nextLocked(end time.Time) *fakeTimer {
	var first *fakeTimer
	for t := range f.timers {
		if t.at.After(end) {
			continue
		}
		if first == nil || t.at.Before(first.at) || (t.at.Equal(first.at) && t.nth < first.nth) {
			first = t
		}
	}
	return first
}
