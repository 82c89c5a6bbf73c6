package vfs

import (
	"io"
	"io/fs"
	"os"
)

// OpenFile implements FS.
func (f *Faulty) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if v := f.judge(OpOpen, name); v.err != nil {
		return nil, v.err
	}
	file, err := f.under.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f}, nil
}

// Create implements FS.
func (f *Faulty) Create(name string) (File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	if v := f.judge(OpRemove, name); v.err != nil {
		return v.err
	}
	return f.under.Remove(name)
}

// Rename implements FS. Rules look at the path it is moved to.
func (f *Faulty) Rename(from, to string) error {
	if v := f.judge(OpRename, to); v.err != nil {
		return v.err
	}
	return f.under.Rename(from, to)
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(name string, perm fs.FileMode) error {
	if v := f.judge(OpMkdir, name); v.err != nil {
		return v.err
	}
	return f.under.MkdirAll(name, perm)
}

// ReadDir implements FS.
func (f *Faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	if v := f.judge(OpList, name); v.err != nil {
		return nil, v.err
	}
	return f.under.ReadDir(name)
}

// Stat implements FS.
func (f *Faulty) Stat(name string) (fs.FileInfo, error) {
	if v := f.judge(OpStat, name); v.err != nil {
		return nil, v.err
	}
	return f.under.Stat(name)
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(name string) error {
	if v := f.judge(OpSyncDir, name); v.err != nil {
		return v.err
	}
	return f.under.SyncDir(name)
}

// Lock implements FS; it counts as an open.
func (f *Faulty) Lock(name string) (io.Closer, error) {
	if v := f.judge(OpOpen, name); v.err != nil {
		return nil, v.err
	}
	return f.under.Lock(name)
}

// faultyFile breaks the operations of one handle.
type faultyFile struct {
	File
	fs *Faulty
}

// flip inverts one bit of p, another one for each hit of the rule.
func flip(p []byte, nth int) {
	if len(p) > 0 {
		bit := nth * 2654435761 % (len(p) * 8) // Knuth's multiplier spreads the places
		p[bit/8] ^= 1 << (bit % 8)
	}
}

// Read implements File.
func (f *faultyFile) Read(p []byte) (int, error) {
	v := f.fs.judge(OpRead, f.Name())
	if v.err != nil {
		return 0, v.err
	}
	n, err := f.File.Read(p)
	if v.flip {
		flip(p[:n], v.nth)
	}
	return n, err
}

// ReadAt implements File.
func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	v := f.fs.judge(OpRead, f.Name())
	if v.err != nil {
		return 0, v.err
	}
	n, err := f.File.ReadAt(p, off)
	if v.flip {
		flip(p[:n], v.nth)
	}
	return n, err
}

// cutTo is how many bytes of a write of size bytes still reach the file.
func (v verdict) cutTo(size int) int {
	switch {
	case !v.cut:
		return 0
	case v.short < 0:
		return size / 2
	}
	return min(v.short, size)
}

// Write implements File.
func (f *faultyFile) Write(p []byte) (int, error) {
	v := f.fs.judge(OpWrite, f.Name())
	if v.err == nil {
		return f.File.Write(p)
	}
	if n := v.cutTo(len(p)); n > 0 {
		done, _ := f.File.Write(p[:n])
		return done, v.err
	}
	return 0, v.err
}

// WriteAt implements File.
func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	v := f.fs.judge(OpWrite, f.Name())
	if v.err == nil {
		return f.File.WriteAt(p, off)
	}
	if n := v.cutTo(len(p)); n > 0 {
		done, _ := f.File.WriteAt(p[:n], off)
		return done, v.err
	}
	return 0, v.err
}

// dropper is a file of a file system that models what a failed Sync leaves behind.
type dropper interface{ syncFailed() }

// Sync implements File. One that fails drops what was written and not synced where the file system below models that,
// as Linux does: the next Sync then succeeds and says nothing.
func (f *faultyFile) Sync() error {
	if v := f.fs.judge(OpSync, f.Name()); v.err != nil {
		if d, ok := f.File.(dropper); ok {
			d.syncFailed()
		}
		return v.err
	}
	return f.File.Sync()
}

// Truncate implements File.
func (f *faultyFile) Truncate(sizeBytes int64) error {
	if v := f.fs.judge(OpTruncate, f.Name()); v.err != nil {
		return v.err
	}
	return f.File.Truncate(sizeBytes)
}

// Preallocate implements File.
func (f *faultyFile) Preallocate(sizeBytes int64) error {
	if v := f.fs.judge(OpPreallocate, f.Name()); v.err != nil {
		return v.err
	}
	return f.File.Preallocate(sizeBytes)
}

// Stat implements File.
func (f *faultyFile) Stat() (fs.FileInfo, error) {
	if v := f.fs.judge(OpStat, f.Name()); v.err != nil {
		return nil, v.err
	}
	return f.File.Stat()
}

// Close implements File. An error rule still closes the file below: descriptors must not leak.
func (f *faultyFile) Close() error {
	v := f.fs.judge(OpClose, f.Name())
	err := f.File.Close()
	if v.err != nil {
		return v.err
	}
	return err
}
