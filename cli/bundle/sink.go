package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Archive is a Sink that writes NAME.tar.gz with all files below NAME/. It has that
// name only once it is whole.
type Archive struct {
	path, top string
	f         *os.File
	z         *gzip.Writer
	t         *tar.Writer
}

// CreateArchive begins the archive at path, which ends in .tar.gz.
func CreateArchive(path string) (*Archive, error) {
	if _, err := os.Stat(path); err == nil {
		return nil, errors.New(path + " is there already: give another name with -output")
	}
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	z := gzip.NewWriter(f)
	return &Archive{path: path, top: strings.TrimSuffix(filepath.Base(path), ".tar.gz"), f: f, z: z, t: tar.NewWriter(z)},
		nil
}

// Add implements Sink.
func (a *Archive) Add(path string, content []byte, when time.Time) error {
	if err := a.t.WriteHeader(&tar.Header{Name: a.top + "/" + path, Mode: 0o600, Size: int64(len(content)), ModTime: when,
		Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := a.t.Write(content)
	return err
}

// Close gives the archive its name, or removes it when keep is false.
func (a *Archive) Close(keep bool) error {
	err := errors.Join(a.t.Close(), a.z.Close(), a.f.Sync(), a.f.Close())
	if err != nil || !keep {
		return errors.Join(err, os.Remove(a.path+".part"))
	}
	return os.Rename(a.path+".part", a.path)
}

// Folder is a Sink that writes files below a folder.
type Folder struct{ Path string }

// Add implements Sink.
func (f Folder) Add(path string, content []byte, _ time.Time) error {
	full := filepath.Join(f.Path, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return err
	}
	return os.WriteFile(full, content, 0o600)
}
