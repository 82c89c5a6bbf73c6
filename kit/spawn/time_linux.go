package spawn

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the processor time that a process took so far, to the nanosecond: a round takes a few of the
// ticks of /proc. The clock's number is made of the process's as the kernel's headers do it (MAKE_PROCESS_CPUCLOCK).
func processTime(pid int) (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
