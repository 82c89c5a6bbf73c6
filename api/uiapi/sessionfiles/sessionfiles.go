// Package sessionfiles keeps records of the web UI's sessions as files of a folder, one for each. Each is fsynced
// before its login is answered, and gone from the disk when its logout is. What a record says is none of its business.
package sessionfiles

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/vfs"
)

// maxBytes bounds a file that is read; records are shorter.
const maxBytes = 64 << 10

// Files implements uiapi.Keeping. Its methods are called one at a time.
type Files struct {
	Dir string
	FS  vfs.FS
	Log *slog.Logger
}

// Load gives the records that can be read. What a crash left unfinished goes.
func (f *Files) Load() map[string][]byte {
	out := map[string][]byte{}
	if err := errors.Join(f.FS.MkdirAll(f.Dir, 0o700), f.FS.SyncDir(filepath.Dir(f.Dir))); err != nil {
		f.failed("open", err)
		return out
	}
	list, err := f.FS.ReadDir(f.Dir)
	if err != nil {
		f.failed("read", err)
		return out
	}
	for _, entry := range list {
		path := filepath.Join(f.Dir, entry.Name())
		if strings.HasSuffix(entry.Name(), vfs.TempSuffix) {
			_ = f.FS.Remove(path) // the next start tries again
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxBytes {
			continue
		}
		record, err := vfs.ReadFile(f.FS, path)
		if err != nil {
			f.failed("read", err)
			continue
		}
		out[entry.Name()] = record
	}
	return out
}

// Put keeps a record.
func (f *Files) Put(key string, record []byte) {
	if err := vfs.WriteFileAtomic(f.FS, filepath.Join(f.Dir, key), record, 0o600); err != nil {
		f.failed("keep", err)
	}
}

// Drop removes a record.
func (f *Files) Drop(key string) {
	err := f.FS.Remove(filepath.Join(f.Dir, key))
	if err == nil {
		err = f.FS.SyncDir(f.Dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.failed("remove", err)
	}
}

func (f *Files) failed(what string, err error) {
	f.Log.Warn("sessions of the web UI: cannot "+what+" what outlives a restart", "dir", f.Dir, "error", err)
}
