//go:build unix

package rawsock

import "golang.org/x/sys/unix"

const possible = true

// Read takes what the socket has.
func Read(fd uintptr, b []byte) (int, error) { return unix.Read(int(fd), b) }

// Write gives what the socket takes.
func Write(fd uintptr, b []byte) (int, error) { return unix.Write(int(fd), b) }

// Writev is Write of several parts at once.
func Writev(fd uintptr, parts [][]byte) (int, error) { return unix.Writev(int(fd), parts) }
