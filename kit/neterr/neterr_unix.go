//go:build unix

package neterr

import "syscall"

var (
	inUse   = []syscall.Errno{syscall.EADDRINUSE}
	refused = []syscall.Errno{syscall.ECONNREFUSED}
	broken  = []syscall.Errno{syscall.ECONNRESET, syscall.ETIMEDOUT, syscall.EPIPE}
)
