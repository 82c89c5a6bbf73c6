package serve

import (
	"errors"
	"syscall"
)

// inUse tells that another process has the address.
func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
