//go:build unix

package dnsapi

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sharesPorts: several sockets may have one port, and the kernel spreads the questions over them.
const sharesPorts = true

func reusePort(_, _ string, c syscall.RawConn) error {
	var failure error
	if err := c.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); err != nil {
		return err
	}
	return failure
}
