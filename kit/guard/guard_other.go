//go:build !linux

package guard

import "errors"

// Dumps does nothing here.
func Dumps() error { return nil }

// Lock fails: memory is locked on Linux alone.
func Lock() error { return errors.New("memory is locked on Linux alone") }
