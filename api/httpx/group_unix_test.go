//go:build unix

package httpx

import (
	"io/fs"
	"syscall"
)

// groupOf is the group that a file belongs to.
func groupOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Gid) }
