//go:build linux || darwin

package fingerprint

import "syscall"

// diskOf is the size and the room of the disk that dir is on.
func diskOf(dir string) (total, free int64) {
	var s syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &s) != nil {
		return 0, 0
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize)
}
