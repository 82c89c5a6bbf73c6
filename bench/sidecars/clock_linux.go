package sidecars

import (
	"time"

	"golang.org/x/sys/unix"
)

// The clock's reading at start, taken once: after that the cheap clock of the
// runtime, which is the same one, gives the time since.
var (
	clockStart = time.Now()
	clockBase  = readClock()
)

func readClock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail with a clock that exists
	return ts.Nano()
}

// Monotonic returns CLOCK_MONOTONIC in nanoseconds: one clock for all processes of a machine.
func Monotonic() int64 { return clockBase + int64(time.Since(clockStart)) }
