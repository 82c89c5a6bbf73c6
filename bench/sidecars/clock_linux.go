package sidecars

import "golang.org/x/sys/unix"

// Monotonic returns CLOCK_MONOTONIC in nanoseconds: one clock for all processes of a machine. It is asked each time. A
// reading at the start with the runtime's time since then would be off by what passed between the two, which is
// microseconds, or milliseconds in a process that was put aside there: a change was seen before it was made.
func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail with a clock that exists
	return ts.Nano()
}
