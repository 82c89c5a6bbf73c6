package standing

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errTaken = errors.New("taken")

// TestEnds: while something is asked for all the time, and while nothing is, a right that is taken ends within Every,
// and for good.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken atomic.Bool
		var judged atomic.Int32
		s := New(nil, func() error {
			judged.Add(1)
			if taken.Load() {
				return errTaken
			}
			return nil
		})
		held, release := s.Hold(t.Context())
		defer release()
		for begin := time.Now(); time.Since(begin) < 10*time.Second; <-time.After(10 * time.Millisecond) {
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if n := judged.Load(); n > 11 {
			t.Errorf("judged %d times within 10 s", n)
		}
		taken.Store(true)
		begin := time.Now()
		<-held.Done()
		if took := time.Since(begin); took > 2*Every || !errors.Is(context.Cause(held), errTaken) {
			t.Errorf("ended after %s with %v", took, context.Cause(held))
		}
		taken.Store(false)
		<-time.After(2 * Every)
		if !errors.Is(s.Err(), errTaken) {
			t.Error("it came back")
		}
	})
}

// TestReleased: what is released leaves no goroutine, and is no loss of a right.
func TestReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, func() error { return nil })
		held, release := s.Hold(t.Context())
		release()
		if !errors.Is(context.Cause(held), context.Canceled) || s.Err() != nil {
			t.Error(context.Cause(held), s.Err())
		}
	})
}
