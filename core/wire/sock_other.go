//go:build !linux

package wire

import (
	"syscall"
	"time"
)

// controlUserTimeout has no portable form: keepalive alone finds dead peers here.
func controlUserTimeout(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
