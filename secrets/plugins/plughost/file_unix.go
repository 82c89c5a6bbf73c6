//go:build unix

package plughost

import (
	"io/fs"
	"os"
	"syscall"
)

// openFile opens what was a regular file a moment ago. If it is something else by now, that is neither waited for nor
// followed.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
}

// ownFolder reports whether a folder is this process's user's, and nobody else can reach what is in it.
func ownFolder(info fs.FileInfo) bool {
	at, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(at.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

// judgedInfo refuses a file or folder that others than this process's user and root may change.
func judgedInfo(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return refuse("%s can be changed by its group or by everybody: chmod go-w %s", path, path)
	}
	if at, ok := info.Sys().(*syscall.Stat_t); ok && at.Uid != 0 && int(at.Uid) != os.Geteuid() {
		return refuse("%s is owned by the user of number %d: it must be this server's user (%d) or root", path, at.Uid,
			os.Geteuid())
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o100 == 0 {
		return refuse("%s is not executable: chmod u+x %s", path, path)
	}
	return nil
}
