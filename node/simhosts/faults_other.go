//go:build !linux

package simhosts

import "net"

// stallConn does nothing: simulated fleets run on Linux only.
func stallConn(*net.TCPConn) {}

// resetConn closes the connection with a reset.
func resetConn(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
