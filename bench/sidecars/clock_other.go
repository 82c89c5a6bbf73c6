//go:build !linux

package sidecars

import "time"

var clockStart = time.Now()

// Monotonic returns nanoseconds since the process started; only Linux has one clock for all processes here.
func Monotonic() int64 { return int64(time.Since(clockStart)) }
