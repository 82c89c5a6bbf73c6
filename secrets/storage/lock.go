package storage

import (
	"context"
	"time"
)

// Lock says whose turn it is to lead, where several servers share a backend. It is not the fence: the epoch is,
// which is part of each write. Its methods may be called from any goroutine.
type Lock interface {
	// Acquire waits until it is this server's turn, or ctx ends.
	Acquire(ctx context.Context) (Leadership, error)
	// Holder is the id of whose turn it is, as far as this server knows; "" nobody's, or unknown.
	Holder(ctx context.Context) (id string, err error)
}

// Leadership is a turn.
type Leadership interface {
	// Epoch is greater than that of every term before.
	Epoch() Epoch
	// Held returns nil while nobody else can lead; it is cheap as long as that is known. Else NotLeader or Unavailable.
	Held(ctx context.Context) error
	// Done is closed when the turn is over.
	Done() <-chan struct{}
	// Release ends it, and lets another server go first where there is one that can.
	Release(ctx context.Context)
}

// Pause waits, for what locks do again and again; false when ctx or stop ended first.
func Pause(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}
