// Package vfs is the door to the disk: everything that stores something takes
// an FS from its Config, so that a test can crash it and a fault run can stall it.
//
// Three implementations: OS is the machine's file system; Mem keeps files in
// memory and remembers what was fsynced, so that Crash gives what a power loss
// would leave, and Killed what a new process finds before one; Faulty wraps another FS and breaks chosen operations
// by rule, also while the process runs.
//
// What callers may rely on, in all three:
//   - written bytes survive a power loss only after File.Sync returned nil;
//   - created, renamed and removed names survive only after SyncDir of their folder;
//   - folders made by MkdirAll survive at once (they are rare, so it syncs);
//   - after a failed Write or Sync nothing is known about the unsynced bytes:
//     reopen and verify, never retry the Sync. The kernel forgets the bytes and still shows them, and the next
//     Sync succeeds: only bytes that are written again and synced are durable;
//   - what a process reads when it starts may be in the machine's memory alone, left by one that was killed: before
//     anything is promised on top of it, write again and sync what no Sync is known to cover, and SyncDir the folder.
//
// All FS are safe for concurrent use. A File's ReadAt and WriteAt may be called
// from many goroutines; Read and Write share one offset and belong to one goroutine.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
)

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	// Name is the path that the file was opened with.
	Name() string
	// Sync returns when all written bytes and the file's size are on stable storage.
	Sync() error
	// Truncate changes the size; bytes added read as zero.
	Truncate(sizeBytes int64) error
	// Preallocate makes the file at least sizeBytes long, the new part zero and
	// its blocks reserved where the file system can, so that later writes inside
	// it neither change the size nor run out of space. Sync makes it durable.
	Preallocate(sizeBytes int64) error
	// Stat describes the file.
	Stat() (fs.FileInfo, error)
}

// FS is a file system. Errors satisfy errors.Is with fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and so on.
type FS interface {
	// OpenFile opens with the flags of package os: O_RDONLY, O_RDWR, O_CREATE, O_EXCL, O_TRUNC, O_APPEND.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Create opens for reading and writing, truncated, made with mode 0600 when missing.
	Create(name string) (File, error)
	// Remove deletes a file or an empty folder.
	Remove(name string) error
	// Rename moves a file, replacing the target in one step.
	Rename(from, to string) error
	// MkdirAll makes a folder and its missing parents durably.
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a folder sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes a file or folder.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder durable: creations, renames, removals.
	SyncDir(name string) error
	// Lock takes an exclusive lock on the named file, made when missing, and
	// fails at once when another holder has it. Close the result to let go.
	Lock(name string) (io.Closer, error)
}

// ErrLocked is what Lock returns when another process or holder has the lock.
var ErrLocked = errors.New("vfs: locked by another process")

// Full reports whether an operation failed for want of room: it did not do all of its work, and what it did can be
// taken back. After any other error of a write nobody knows what the disk has.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// Open opens a file for reading.
func Open(fsys FS, name string) (File, error) { return fsys.OpenFile(name, os.O_RDONLY, 0) }

// ReadFile returns the whole content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := Open(fsys, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, info.Size()+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// ReadDurable is ReadFile for what WriteFileAtomic wrote: it returns when a power loss cannot bring back what stood
// there before. The process that wrote it may have been killed between the rename and the fsync of the folder.
func ReadDurable(fsys FS, name string) ([]byte, error) {
	data, err := ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	return data, fsys.SyncDir(filepath.Dir(name))
}

// TempSuffix ends the names of unfinished files of WriteFileAtomic; owners may delete what carries it at start.
const TempSuffix = ".tmp"

// WriteFileAtomic replaces path by data so that after a power loss either the
// old or the new content is there, whole. It returns when the new one is durable.
func WriteFileAtomic(fsys FS, path string, data []byte, perm fs.FileMode) error {
	if err := ReplaceFile(fsys, path, data, perm); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// ReplaceFile is WriteFileAtomic without the fsync of the folder: until that is done a power loss may bring the old
// content back.
func ReplaceFile(fsys FS, path string, data []byte, perm fs.FileMode) error {
	temp := path + TempSuffix
	f, err := fsys.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp) // the first error is the one to report
	}
	return err
}

// RemoveAll deletes a file or a folder with all that is in it; a missing path is no error.
func RemoveAll(fsys FS, path string) error {
	info, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := fsys.ReadDir(path)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := RemoveAll(fsys, filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Match reports whether a path fits a glob: filepath.Match on the whole path or,
// for a pattern without a slash, on its last element; "**" stands for any run of
// characters, slashes too. An empty pattern fits everything.
func Match(glob, path string) bool {
	if glob == "" || glob == "**" {
		return true
	}
	if parts := strings.Split(glob, "**"); len(parts) > 1 {
		return matchParts(parts, path)
	}
	if !strings.Contains(glob, "/") {
		path = filepath.Base(path)
	}
	ok, err := filepath.Match(glob, path)
	return ok && err == nil
}

// matchParts finds the parts between the double stars in order, the first at the start and the last at the end.
func matchParts(parts []string, path string) bool {
	if !strings.HasPrefix(path, parts[0]) {
		return false
	}
	path = path[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(path, part)
		if at < 0 {
			return false
		}
		path = path[at+len(part):]
	}
	if strings.ContainsAny(last, "*?[") {
		ok, err := filepath.Match(strings.TrimPrefix(last, "/"), filepath.Base(path))
		return ok && err == nil
	}
	return strings.HasSuffix(path, last)
}

func sortEntries(entries []fs.DirEntry) {
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
}
