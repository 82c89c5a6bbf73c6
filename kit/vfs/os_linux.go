package vfs

import (
	"errors"
	"os"
	"syscall"
)

func dataSync(f *os.File) error { return onFD(f, "fdatasync", syscall.Fdatasync) }

func reserve(f *os.File, sizeBytes int64) error {
	err := onFD(f, "fallocate", func(fd int) error { return syscall.Fallocate(fd, 0, 0, sizeBytes) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.Truncate(sizeBytes)
	}
	return err
}
