//go:build unix

package rawsock

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const possible = true

// Read takes what the socket has. It is the call of the standard library, whose race detector takes bytes that come for
// something that happened before.
func Read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

// Write gives what the socket takes.
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

// Writev is Write of several parts at once.
func Writev(fd uintptr, parts [][]byte) (int, error) { return unix.Writev(int(fd), parts) }
