//go:build !linux

package ws

import "context"

// poller is there on Linux alone.
type poller struct{}

func (*poller) open(*LoopConfig) error        { return nil }
func (*poller) takes(*Conn) bool              { return false }
func (*poller) serve(*Conn, Handler) error    { return nil }
func (*poller) run(ctx context.Context) error { <-ctx.Done(); return nil }
