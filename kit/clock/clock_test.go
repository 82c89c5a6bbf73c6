package clock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestFakeFiresInOrder(t *testing.T) {
	f := NewFake(time.Time{})
	begin := f.Now()
	var fired []string
	note := func(name string) func() { return func() { fired = append(fired, name) } }
	f.AfterFunc(3*time.Second, note("3s"))
	f.AfterFunc(time.Second, func() {
		fired = append(fired, "1s")
		f.AfterFunc(time.Second, note("1s+1s"))
	})
	f.AfterFunc(3*time.Second, note("3s again"))
	stopped := f.AfterFunc(2*time.Second, note("never"))
	timer := f.NewTimer(2500 * time.Millisecond)
	if !stopped.Stop() || stopped.Stop() {
		t.Error("Stop is true once")
	}
	f.Advance(10 * time.Second)
	if want := []string{"1s", "1s+1s", "3s", "3s again"}; !slices.Equal(fired, want) {
		t.Errorf("fired %q, want %q", fired, want)
	}
	if at := <-timer.C; at.Sub(begin) != 2500*time.Millisecond {
		t.Errorf("timer says %s", at.Sub(begin))
	}
	if f.Since(begin) != 10*time.Second || f.Timers() != 0 {
		t.Errorf("since %s, %d timers left", f.Since(begin), f.Timers())
	}
}

func TestFakeReset(t *testing.T) {
	f := NewFake(time.Time{})
	timer := f.NewTimer(time.Second)
	f.Advance(time.Second)
	if timer.Reset(time.Second) {
		t.Error("Reset of a fired timer says it was running")
	}
	select {
	case <-timer.C:
		t.Error("a value from before Reset is received")
	default:
	}
	change := f.Change()
	f.NewTimer(0)
	<-change
	f.Advance(time.Second)
	<-timer.C
}

func TestSkewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSkewed(nil)
		begin, truth := s.Now(), time.Now()
		s.SetRate(2)
		timer := s.NewTimer(10 * time.Second)
		<-timer.C
		if got := time.Since(truth); got != 5*time.Second {
			t.Errorf("a timer of 10 s took %s of true time at double rate, want 5 s", got)
		}
		if got := s.Since(begin); got != 10*time.Second {
			t.Errorf("Since says %s, want 10 s", got)
		}
		s.SetRate(1)
		if got := s.Since(begin); got != 10*time.Second {
			t.Errorf("setting the rate moved Since to %s", got)
		}
		timer.Reset(time.Second)
		<-timer.C
		if got := time.Since(truth); got != 6*time.Second {
			t.Errorf("Reset does not follow the rate: %s", got)
		}
		if got := s.Now().Round(0).Sub(begin.Round(0)); got != 11*time.Second {
			t.Errorf("wall clock moved by %s", got)
		}
	})
}

// TestJump needs the machine's clock: times of a bubble have no monotonic reading.
func TestJump(t *testing.T) {
	s := NewSkewed(nil)
	begin := s.Now()
	for _, offset := range []time.Duration{time.Hour, -time.Hour, 24 * 365 * time.Hour} {
		s.Jump(offset)
		if got := s.Now().Round(0).Sub(begin.Round(0)); got < offset || got > offset+time.Minute {
			t.Errorf("wall clock moved by %s, want %s", got, offset)
		}
		if got := s.Since(begin); got < 0 || got > time.Minute {
			t.Errorf("a jump by %s moved Since to %s", offset, got)
		}
		if got := s.Now().Sub(begin); got < 0 || got > time.Minute {
			t.Errorf("a jump by %s moved the monotonic reading by %s", offset, got)
		}
	}
}

func TestSkewedOverFake(t *testing.T) {
	f := NewFake(time.Time{})
	s := NewSkewed(f)
	s.SetRate(1.5)
	s.Jump(time.Minute)
	f.Advance(10 * time.Second)
	if got := s.Now().Sub(f.Now()); got != time.Minute+5*time.Second {
		t.Errorf("off by %s", got)
	}
}
