package selftest

import "golang.org/x/sys/unix"

// gather measures this host.
func gather(dir string) *facts {
	f := &facts{synced: -1, files: -1, swap: -1, freePercent: -1,
		queue: setting("/proc/sys/net/core/somaxconn"), buffer: setting("/proc/sys/net/core/rmem_max")}
	f.fsync, f.fsyncErr = measureFsync(dir)
	const unsynced = 0x40 // STA_UNSYNC
	var clock unix.Timex
	if _, err := unix.Adjtimex(&clock); err == nil {
		f.synced = 1
		if clock.Status&unsynced != 0 {
			f.synced = 0
		}
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		f.files = int64(min(limit.Cur, maxLocked))
	}
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		f.locked = int64(min(limit.Cur, maxLocked))
	}
	var host unix.Sysinfo_t
	if unix.Sysinfo(&host) == nil {
		f.swap = int64(host.Totalswap)
	}
	var disk unix.Statfs_t
	if unix.Statfs(nearest(dir), &disk) == nil && disk.Blocks > 0 {
		f.freePercent = int64(disk.Bavail * 100 / disk.Blocks)
	}
	return f
}
