//go:build unix

package secretsplane

import (
	"fmt"
	"os"
	"syscall"

	"corbel.dev/corbel/node/diagnosis"
	"corbel.dev/corbel/node/vaultconf"
)

// accessReadWrite asks for all that a folder is used for.
const accessReadWrite = 0x7

// mayWrite reports whether this process may make files in a folder.
func mayWrite(folder string) bool { return syscall.Access(folder, accessReadWrite) == nil }

// ofRoot reports whether a file belongs to root.
func ofRoot(st os.FileInfo) bool {
	owner, ok := st.Sys().(*syscall.Stat_t)
	return ok && owner.Uid == 0
}

// checkSystem judges this host: cfg, which may be nil, says whose disks count.
func checkSystem(cfg *vaultconf.Config) *diagnosis.Check {
	c := diagnosis.New("Check Operating System", "")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		c.Add(diagnosis.Failed("Check Open File Limit", err))
	} else {
		c.Add(diagnosis.OpenFiles(limit.Cur))
	}
	seen := map[syscall.Fsid]bool{}
	for _, path := range diskPaths(cfg) {
		path = existing(path)
		var fs syscall.Statfs_t
		if err := syscall.Statfs(path, &fs); err != nil {
			c.Add(diagnosis.Failed("Check Disk Usage", fmt.Errorf("%s: %w", path, err)))
		} else if !seen[fs.Fsid] {
			seen[fs.Fsid] = true
			c.Add(diagnosis.Disk(path, uint64(fs.Bavail)*uint64(fs.Bsize), uint64(fs.Blocks)*uint64(fs.Bsize)))
		}
	}
	return c
}
