package plughost

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pathOf is a path by which the very file that was judged is run: it is open at least until then.
func pathOf(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// settle takes from a process that just began what it must not have: dumps of its memory, which has secrets.
func settle(pid int) { _ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil) }

// linger waits until a process has ended, and leaves its end to be noted. False: it cannot.
func linger(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
