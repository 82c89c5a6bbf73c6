package guard

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dumps has the kernel write no core dump of this process, and give its memory (/proc/PID/mem, ptrace) to no other
// process without CAP_SYS_PTRACE, also not to those of the same user. The process itself goes on reading /proc/self.
func Dumps() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	limit.Cur = 0 // the hard limit stays: who debugs a child may raise it
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	// A core_pattern that is a pipe ignores the limit; a process that is not dumpable has no dump by any way.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return nil
}

// errLimited says that memory cannot be locked.
var errLimited = errors.New("the limit of locked memory is too low")

// Lock keeps all memory of this process, that of now and of later, out of swap. It changes nothing and fails where
// the process may not lock without limit: with a limit that memory reaches later the Go runtime would get no more
// memory, and the process would end.
func Lock() error {
	if err := unlimited(); err != nil {
		return fmt.Errorf("%w: give the process LimitMEMLOCK=infinity (ulimit -l unlimited) or CAP_IPC_LOCK", err)
	}
	// On fault: what is reserved and never used takes no memory.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}

const onFault = 1 // MLOCK_ONFAULT

// unlimited tries to lock more than the limit allows: capabilities within a container or a user namespace say little.
func unlimited() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return err
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return nil
	}
	const most = 1 << 40 // of address space, for the trial
	if limit.Cur > most {
		return nil
	}
	size := int(limit.Cur) + os.Getpagesize()
	probe, err := unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("%w: %w", errLimited, err)
	}
	defer func() { _ = unix.Munmap(probe) }() // it was mapped by us; the lock goes with it
	if _, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(unsafe.SliceData(probe))), uintptr(size),
		onFault); errno != 0 {
		return fmt.Errorf("%w: %w", errLimited, errno)
	}
	return nil
}
