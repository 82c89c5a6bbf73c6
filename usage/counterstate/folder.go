package counterstate

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Folder keeps blobs as files of a folder that is this process's alone.
type Folder struct {
	fs  vfs.FS
	dir string

	mu    sync.Mutex // one change at a time
	dirty bool       // a name may not be durable
}

var _ Blobs = (*Folder)(nil)

// NewFolder opens a folder, which is made when missing, and removes what an earlier process left unfinished.
func NewFolder(fsys vfs.FS, dir string) (*Folder, error) {
	f := &Folder{fs: fsys, dir: dir, dirty: true} // an earlier process may have been killed before its fsync
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	names, err := f.List(context.Background(), "")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, vfs.TempSuffix) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// settle makes all names durable: nobody is told of one that a power loss may take.
func (f *Folder) settle() error {
	if !f.dirty {
		return nil
	}
	if err := f.fs.SyncDir(f.dir); err != nil {
		return errkind.E(errkind.Unavailable, "snapshots", err)
	}
	f.dirty = false
	return nil
}

// Put implements Blobs.
func (f *Folder) Put(_ context.Context, name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := filepath.Join(f.dir, name)
	switch _, err := f.fs.Stat(path); {
	case err == nil:
		return errkind.Errorf(errkind.Conflict, "%s is there already", path)
	case !errors.Is(err, fs.ErrNotExist):
		return errkind.E(errkind.Unavailable, "snapshots", err)
	}
	f.dirty = true
	if err := vfs.WriteFileAtomic(f.fs, path, data, 0o600); err != nil {
		return errkind.E(errkind.Unavailable, "snapshots", err)
	}
	f.dirty = false
	return nil
}

// Get implements Blobs.
func (f *Folder) Get(_ context.Context, name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.settle(); err != nil {
		return nil, err
	}
	data, err := vfs.ReadFile(f.fs, filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errkind.E(errkind.NotFound, "snapshots", err)
	}
	return data, errkind.E(errkind.Unavailable, "snapshots", err)
}

// List implements Blobs.
func (f *Folder) List(_ context.Context, prefix string) (names []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.settle(); err != nil {
		return nil, err
	}
	entries, err := f.fs.ReadDir(f.dir)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "snapshots", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Delete implements Blobs. A power loss may bring the blob back: it is an old one then, and goes again.
func (f *Folder) Delete(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fs.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errkind.E(errkind.Unavailable, "snapshots", err)
	}
	return nil
}
