package winservice

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// Who listens gets signals; where nobody does, the context ends.
func TestStop(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newService(cancel)
	c := make(chan os.Signal, 2)
	s.Notify(c)
	s.Ready()
	s.reload()
	s.stop()
	s.stop() // no room: dropped
	if a, b := <-c, <-c; a != syscall.SIGHUP || b != syscall.SIGTERM {
		t.Errorf("%v, %v", a, b)
	}
	if ctx.Err() != nil || s.now() != Ending || len(s.changed) != 1 {
		t.Errorf("%v, phase %v, %d changes", ctx.Err(), s.now(), len(s.changed))
	}
	s.Forget(c)
	s.Ready()
	if s.stop(); ctx.Err() == nil || s.now() != Ending || len(c) != 0 {
		t.Errorf("%v, phase %v, %d signals", ctx.Err(), s.now(), len(c))
	}
}

// A process that nobody manages tells nobody.
func TestNil(*testing.T) {
	var s *Service
	s.Notify(nil)
	s.Forget(nil)
	s.Ready()
	s.Stopping()
	s.Failed(errors.New("x"))
}
