//go:build unix

package dnsapi

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
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

// batches wraps a socket for reading and writing many datagrams in one call and, for
// a wildcard address, asks the kernel which address each was sent to.
func batches(e endpoint, conn *net.UDPConn) (batcher, error) {
	if e.v6 {
		c := ipv6.NewPacketConn(conn)
		if e.wildcard {
			if err := c.SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true); err != nil {
				return nil, fmt.Errorf("destination addresses: %w", err)
			}
		}
		return c, nil
	}
	c := ipv4.NewPacketConn(conn)
	if e.wildcard {
		if err := c.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
			return nil, fmt.Errorf("destination addresses: %w", err)
		}
	}
	return c, nil
}
