package rpc

import (
	"context"
	"net/netip"

	"corbel.dev/corbel/kit/limit"
)

// Held has a handler's large requests count in a budget while it answers them. Where they come from is not told
// apart: it is other processes of the cluster, each of which speaks for many.
func Held(budget *limit.Bytes, handle Handler) Handler {
	return func(ctx context.Context, req []byte) ([]byte, error) {
		if len(req) <= limit.FreeBytes {
			return handle(ctx, req)
		}
		hold := budget.Hold(netip.Addr{})
		if err := hold.Add(2 * int64(len(req))); err != nil { // the message, and what is made of it
			return nil, err
		}
		defer hold.End()
		return handle(ctx, req)
	}
}
