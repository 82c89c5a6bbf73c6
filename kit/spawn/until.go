package spawn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// hopeless is an error that waiting does not mend.
type hopeless struct{ error }

// Hopeless marks an error at which Until gives up at once.
func Hopeless(err error) error { return hopeless{err} }

// A question that takes long must not take the CPU that its answer waits for: the rest after it is so many times what
// it took, up to the longest.
const (
	rest        = 2
	longestRest = 100 * time.Millisecond
)

// Until asks cond every few milliseconds, less often what takes long to ask, until it returns nil, ctx ends, or limit
// is over.
func Until(ctx context.Context, limit time.Duration, what string, cond func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := time.Millisecond
	begin := time.Now()
	for {
		asked := time.Now()
		err := cond()
		took := time.Since(asked)
		if err == nil {
			return nil
		}
		_, over := errors.AsType[hopeless](err)
		if over || Sleep(ctx, max(pause, min(rest*took, longestRest))) != nil {
			return fmt.Errorf("waited %s for: %s; last: %w", time.Since(begin).Round(time.Millisecond), what, err)
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// Sleep lets d pass, or returns ctx's error when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
