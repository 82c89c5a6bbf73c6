package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// lockAll is a range that no file reaches beyond: a lock of it is one of the file.
const lockAll = ^uint32(0)

func lockWith(f *os.File, flags uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, lockAll, lockAll,
		&windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	if err != nil {
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

func lockFile(f *os.File) error { return lockWith(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// Locked reports whether a process holds the lock of a name; a name that is not there is held by none. It makes
// nothing. It asks by taking the lock together with others for an instant.
func (OS) Locked(name string) (bool, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err = lockWith(f, 0); errors.Is(err, ErrLocked) {
		return true, nil
	}
	return false, err
}

// syncDir has nothing to do: NTFS writes the names of its files to a journal, and Windows opens no folder for writing,
// which a sync of it would need.
func syncDir(*os.File) error { return nil }
