//go:build unix

package notify

import "golang.org/x/sys/unix"

// rights passes a descriptor on.
func rights(fd int) []byte { return unix.UnixRights(fd) }

// closeOnExec keeps a descriptor from the processes that this one starts.
func closeOnExec(fd int) { unix.CloseOnExec(fd) }
