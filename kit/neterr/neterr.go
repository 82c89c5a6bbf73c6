// Package neterr tells what kind of failure the operating system reports about a connection or a port: Windows has
// numbers of its own for them, which the names of package syscall do not match.
//
// Its functions are pure and safe for concurrent use.
package neterr

import (
	"errors"
	"slices"
	"syscall"
)

// InUse reports whether another process has the address.
func InUse(err error) bool { return is(err, inUse) }

// Refused reports whether nobody listens at the address.
func Refused(err error) bool { return is(err, refused) }

// Broken reports whether a connection that was in use broke: reset from outside, or nothing was acknowledged any more.
func Broken(err error) bool { return is(err, broken) }

func is(err error, list []syscall.Errno) bool {
	var number syscall.Errno
	return errors.As(err, &number) && slices.Contains(list, number)
}
