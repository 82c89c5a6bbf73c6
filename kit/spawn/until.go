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

// Until asks cond every few milliseconds until it returns nil, ctx ends, or limit is over.
func Until(ctx context.Context, limit time.Duration, what string, cond func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := time.Millisecond
	begin := time.Now()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		_, over := errors.AsType[hopeless](err)
		if over || Sleep(ctx, pause) != nil {
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
