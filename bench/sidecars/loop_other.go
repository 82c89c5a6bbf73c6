//go:build !linux

package sidecars

import (
	"context"
	"errors"
)

// Run needs epoll.
func (f *Fleet) Run(context.Context) error {
	return errors.New("simulated sidecars run on Linux only")
}
