//go:build !unix

package rawsock

import "errors"

const possible = false

// Read is never called here: Of has given no descriptor.
func Read(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// Write is never called here.
func Write(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// Writev is never called here.
func Writev(uintptr, [][]byte) (int, error) { return 0, errors.ErrUnsupported }
