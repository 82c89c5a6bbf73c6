//go:build unix

package serve

import (
	"os"
	"syscall"
)

// asksForStacks are the signals that ask for all stacks.
func asksForStacks() []os.Signal { return []os.Signal{syscall.SIGUSR2} }
