//go:build unix

package vfs

import (
	"errors"
	"os"
	"syscall"
)

// onFD runs call on the file's descriptor again while a signal interrupts it.
func onFD(f *os.File, op string, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); callErr != syscall.EINTR {
				return
			}
		}
	})
	if err == nil {
		err = callErr
	}
	if err != nil {
		return &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

// Locked reports whether a process holds the lock of a name; a name that is not there is held by none. It makes
// nothing. It asks by taking the lock together with others for an instant: who takes it in just that instant is
// refused.
func (OS) Locked(name string) (bool, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = onFD(f, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func lockFile(f *os.File) error {
	err := onFD(f, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

func syncDir(d *os.File) error { return d.Sync() }
