package snapstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Folder keeps archives as files. It must exist: a folder made in the place of one
// that is not mounted would hide that backups go nowhere.
type Folder struct{ path string }

// NewFolder checks that path is a folder.
func NewFolder(path string) (*Folder, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("the folder of snapshots: %w; make it first", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("the folder of snapshots: %s is a file", path)
	}
	return &Folder{path: path}, nil
}

// Files on their way have names of this form, so that a crash leaves nothing that
// looks like an archive; those older than abandonedAfter belong to nobody.
const (
	partialPrefix  = ".snapshot-"
	partialSuffix  = ".partial"
	abandonedAfter = 24 * time.Hour
)

// String implements Target.
func (d *Folder) String() string { return d.path }

// Put implements Target: the file and its name are on disk when it returns.
func (d *Folder) Put(ctx context.Context, name string, archive io.ReadSeeker, size int64) (err error) {
	if name != filepath.Base(name) {
		return fmt.Errorf("%q is not the name of a file", name)
	}
	f, err := os.CreateTemp(d.path, partialPrefix+"*"+partialSuffix) // mode 0600: a snapshot holds secrets
	if err != nil {
		return err
	}
	defer func() {
		f.Close() // after Sync it has nothing to say
		if err != nil {
			_ = os.Remove(f.Name()) // else List removes it later
		}
	}()
	if _, err = archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(f, bound{ctx, archive})
	if err == nil && n != size {
		err = fmt.Errorf("the archive ended after %d of %d bytes", n, size)
	}
	if err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), filepath.Join(d.path, name)); err != nil {
		return err
	}
	return d.sync()
}

// sync makes the folder's names safe.
func (d *Folder) sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// List implements Target. Parts of archives that a crash left long ago go away here.
func (d *Folder) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, partialPrefix) && strings.HasSuffix(name, partialSuffix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandonedAfter {
				_ = os.Remove(filepath.Join(d.path, name)) // tried again at the next listing
			}
			continue
		}
		if e.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}

// Delete implements Target.
func (d *Folder) Delete(_ context.Context, name string) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("%q is not the name of a file", name)
	}
	if err := os.Remove(filepath.Join(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// bound is a reader that ends with its context.
type bound struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (b bound) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}
