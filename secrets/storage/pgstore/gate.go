package pgstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// gate keeps callers from waiting for a server that does not answer. After a call that ran out of its time the others
// are refused at once, but for one at a time, which asks for a sign of life first, and does nothing without one. A
// server that is gone answers ("no connection") at once and needs no gate.
type gate struct{ silent, trying atomic.Bool }

var errSilent = errkind.New(errkind.Unavailable, "storage postgresql: the server does not answer; try again later")

// signTime is how long a sign of life may take.
const signTime = time.Second

// enter lets a call in, or says that it is of no use.
func (g *gate) enter(ctx context.Context, sign func(context.Context) error) error {
	if !g.silent.Load() {
		return nil
	}
	if !g.trying.CompareAndSwap(false, true) {
		return errSilent
	}
	defer g.trying.Store(false)
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	if sign(ctx) != nil {
		return errSilent
	}
	g.silent.Store(false)
	return nil
}

// leave is told how a call ended.
func (g *gate) leave(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		g.silent.Store(true)
	}
}

// read runs one reading call within the time that one may take, unless the server is silent.
func (s *Store) read(ctx context.Context, call func(context.Context) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.gate.enter(ctx, s.pool.Ping); err != nil {
		return err
	}
	inner, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	err := call(inner)
	if ctx.Err() == nil { // who asked had more patience
		s.gate.leave(err)
	}
	return readError(err)
}
