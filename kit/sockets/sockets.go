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
	Sent, Received time.Duration // since data last went out, and came in; since the beginning where none did
	Unanswered     bool          // data came in, and none has ever gone out
}

// Holder is a process that has a socket.
type Holder struct {
	PID  int
	Name string // of its program
}

// Busy reports whether the connection is in use: something was asked and not
// answered yet, or data went over it less than quiet ago. Connections that pools
// keep open for later are not. The kernel's times have a grain of some
// milliseconds: what is asked within the one in which the last answer went out
// is not told from an answered question once quiet is over.
func (c Conn) Busy(quiet time.Duration) bool {
	return c.Unanswered || c.Received < c.Sent || min(c.Sent, c.Received) < quiet
}
