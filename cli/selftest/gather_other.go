//go:build !linux

package selftest

// gather measures the disk; the rest is known of Linux alone.
func gather(dir string) *facts {
	f := &facts{synced: -1, files: -1, swap: -1, queue: -1, buffer: -1, freePercent: -1}
	f.fsync, f.fsyncErr = measureFsync(dir)
	return f
}
