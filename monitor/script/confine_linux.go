package script

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// confine limits this process's memory to what it has and so much more, its core dumps to none, and has everybody
// else's work go first.
func confine(more uint64) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	var data uint64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmData:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return err
			}
			data = kib << 10
		}
	}
	// RLIMIT_DATA counts private writable memory since Linux 4.7; RLIMIT_AS would count what Go's runtime only reserves.
	limit := data + more
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 5) // refused only where it is lower already
	return nil
}
