//go:build !linux

package agents

import (
	"context"
	"errors"
)

// Run needs epoll.
func (f *Fleet) Run(context.Context) error {
	return errors.New("simulated agents run on Linux only")
}
