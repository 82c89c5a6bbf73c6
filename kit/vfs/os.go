package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OS is the machine's file system.
type OS struct{}

var _ FS = OS{}

type osFile struct{ *os.File }

// Sync flushes data and size; it leaves out times, which saves a journal write on most file systems.
func (f osFile) Sync() error { return dataSync(f.File) }

// Preallocate implements File.
func (f osFile) Preallocate(sizeBytes int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() >= sizeBytes {
		return err
	}
	return reserve(f.File, sizeBytes)
}

// OpenFile implements FS.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Create implements FS.
func (o OS) Create(name string) (File, error) {
	return o.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// MkdirAll implements FS. Each parent of a made folder is synced, so that no power loss takes a folder away.
func (o OS) MkdirAll(name string, perm fs.FileMode) error {
	name = filepath.Clean(name)
	if info, err := os.Stat(name); err == nil {
		if info.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: name, Err: errors.New("not a directory")}
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := o.MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return o.SyncDir(parent)
}

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements FS.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = syncDir(d)
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Lock implements FS. The lock ends with the process, however that ends.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
