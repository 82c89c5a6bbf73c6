// Package rawsock reads and writes sockets within the runtime's poller, so that a connection that waits holds no
// buffer. Read, Write and Writev never wait: they end with syscall.EAGAIN when the socket has nothing, or takes
// nothing. They stand inside the functions that syscall.RawConn calls.
//
// Only Unix has sockets that can be asked so. Elsewhere Of is nil for each connection, and callers take the way that
// they have for TLS: the connection's own Read and Write.
package rawsock

import (
	"net"
	"syscall"
)

// Of returns the descriptor access of a plain stream socket; nil for anything else (TLS, pipes), and off Unix.
func Of(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok || !possible {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
