package feed

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread reports whether the kernel holds bytes of the connection that were not read yet.
func unread(conn net.Conn) bool {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	if err := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		return false
	}
	return err == nil && n > 0
}
