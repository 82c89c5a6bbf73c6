package wire

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controlUserTimeout sets TCP_USER_TIMEOUT: keepalive finds a dead idle peer,
// this finds one that died with our bytes in flight (the kernel would try for 15 minutes).
func controlUserTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var setErr error
		err := c.Control(func(fd uintptr) {
			setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
		})
		if err != nil {
			return err
		}
		return setErr
	}
}
