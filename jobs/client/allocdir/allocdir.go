// Package allocdir is an allocation's folder: alloc/{data,logs,tmp}, shared by its tasks, and for each task
// local, secrets and tmp.
//
// What always holds: reading through a Dir never leaves the folder, whatever links tasks make (os.Root), and never
// reads a folder of secrets.
package allocdir

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
)

// Shared is the folder that the tasks share, as paths of clients name it.
const Shared = "alloc"

// Dir is an allocation's folder.
type Dir struct{ Path string }

// Build makes the folder with those of its tasks.
func Build(parent, alloc string, tasks []string) (*Dir, error) {
	d := &Dir{Path: filepath.Join(parent, alloc)}
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.Path, 0o755); err != nil {
		return nil, err
	}
	// Logs are written with the agent's rights: tasks only read them.
	for name, mode := range map[string]fs.FileMode{"data": 0o777, "logs": 0o755, "tmp": 0o777 | fs.ModeSticky} {
		if err := open(filepath.Join(d.Path, Shared, name), mode); err != nil {
			return nil, err
		}
	}
	for _, task := range tasks {
		if task == "" || task == Shared || strings.ContainsAny(task, "/\x00") || task == ".." || task == "." {
			return nil, errkind.Errorf(errkind.Invalid, "task %q: its name is no name of a folder", task)
		}
		for name, mode := range map[string]fs.FileMode{"local": 0o777, "secrets": 0o777, "tmp": 0o777 | fs.ModeSticky} {
			if err := open(filepath.Join(d.Path, task, name), mode); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// open makes a folder that tasks of any user may write to; others do not get there, for the parent is not readable.
func open(name string, mode fs.FileMode) error {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// Of are the folders of a task. private is the driver's.
func (d *Dir) Of(task, private string) driver.Dirs {
	return driver.Dirs{Task: filepath.Join(d.Path, task), Shared: filepath.Join(d.Path, Shared), Logs: d.Logs(),
		Private: private}
}

// Logs is where the output of tasks goes.
func (d *Dir) Logs() string { return filepath.Join(d.Path, Shared, "logs") }

// Remove deletes all.
func (d *Dir) Remove() error { return os.RemoveAll(d.Path) }

// Entry is a file or folder as clients see it.
type Entry struct {
	Name        string
	IsDir       bool
	Size        int64
	FileMode    string
	ModTime     time.Time
	ContentType string `json:",omitempty"`
}

func entry(info fs.FileInfo) Entry {
	return Entry{Name: info.Name(), IsDir: info.IsDir(), Size: info.Size(), FileMode: info.Mode().String(),
		ModTime: info.ModTime()}
}

// MaxEntries bounds what List returns of a folder.
const MaxEntries = 100_000

// List is a folder's content.
func (d *Dir) List(name string) (list []Entry, err error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(MaxEntries)
	if err != nil && len(entries) == 0 && !errors.Is(err, os.ErrClosed) {
		if info, e := f.Stat(); e == nil && !info.IsDir() {
			return nil, errkind.Errorf(errkind.Invalid, "%s is not a directory", name)
		}
	}
	list = []Entry{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			list = append(list, entry(info))
		}
	}
	return list, nil
}

// Stat describes a file.
func (d *Dir) Stat(name string) (Entry, error) {
	f, err := d.Open(name)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	e := entry(info)
	if !e.IsDir {
		e.ContentType = "application/octet-stream"
		if ext := path.Ext(e.Name); ext == ".txt" || ext == ".log" || strings.Contains(name, "/logs/") {
			e.ContentType = "text/plain; charset=utf-8"
		}
	}
	return e, nil
}

// Open opens a file or folder for reading.
func (d *Dir) Open(name string) (*os.File, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return nil, errkind.New(errkind.Denied, "Path escapes the alloc directory")
		}
	}
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" {
		clean = "."
	}
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		return nil, kindOf(err)
	}
	defer root.Close()
	if info, err := root.Stat(clean); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, errkind.Errorf(errkind.Denied, "%s is neither a file nor a directory", name) // a pipe would block
	}
	f, err := root.Open(clean)
	if err != nil {
		return nil, kindOf(err)
	}
	if d.secret(filepath.Join(d.Path, clean)) {
		_ = f.Close()
		return nil, errkind.New(errkind.Denied, "Reading secret file prohibited: "+name)
	}
	return f, nil
}

// secret reports whether a path is, behind links, one of a task's secrets.
func (d *Dir) secret(full string) bool {
	real, err := filepath.EvalSymlinks(full)
	if err != nil {
		return true
	}
	top, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return true
	}
	rel, err := filepath.Rel(top, real)
	if err != nil {
		return true
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	return len(parts) > 1 && parts[0] != Shared && parts[1] == "secrets"
}

func kindOf(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errkind.E(errkind.NotFound, "", err)
	case strings.Contains(err.Error(), "escapes"):
		return errkind.New(errkind.Denied, "Path escapes the alloc directory")
	}
	return err
}

// TakeOver moves what an older allocation's folder keeps for its successor on the same node: the shared data, and each
// task's local folder.
func (d *Dir) TakeOver(old *Dir, tasks []string) error {
	names := []string{filepath.Join(Shared, "data")}
	for _, task := range tasks {
		names = append(names, filepath.Join(task, "local"))
	}
	for _, name := range names {
		from, to := filepath.Join(old.Path, name), filepath.Join(d.Path, name)
		if info, err := os.Lstat(from); err != nil || !info.IsDir() {
			continue
		}
		if err := os.Remove(to); err != nil { // it is new, and so empty
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	return nil
}

// Usage is how many bytes the folder has, at most what is counted in most files.
func (d *Dir) Usage(most int) (total int64) {
	_ = filepath.WalkDir(d.Path, func(_ string, e fs.DirEntry, err error) error {
		if most--; most < 0 {
			return fs.SkipAll
		}
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}
