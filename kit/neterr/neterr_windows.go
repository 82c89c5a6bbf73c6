package neterr

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// Those of package syscall are what our own twins of the network report.
var (
	inUse   = []syscall.Errno{windows.WSAEADDRINUSE, syscall.EADDRINUSE}
	refused = []syscall.Errno{windows.WSAECONNREFUSED, syscall.ECONNREFUSED}
	broken  = []syscall.Errno{windows.WSAECONNRESET, windows.WSAECONNABORTED, windows.WSAETIMEDOUT, syscall.ECONNRESET,
		syscall.ETIMEDOUT, syscall.EPIPE}
)
