// Package sockets tells how the TCP ports of this host are used, as the kernel
// sees it: which connections are open, and how long ago data last went each way.
//
// It sees the network namespace that the process is in, and no other. Safe for
// concurrent use.
package sockets

import (
	"net/netip"
	"time"
)

// Conn is an established connection.
type Conn struct {
	Local, Remote  netip.AddrPort
	Sent, Received time.Duration // since data last went out, and came in
}

// Busy reports whether the connection is in use: something was asked and not
// answered yet, or data went over it less than quiet ago. Connections that pools
// keep open for later are not.
func (c Conn) Busy(quiet time.Duration) bool {
	return c.Received < c.Sent || min(c.Sent, c.Received) < quiet
}
