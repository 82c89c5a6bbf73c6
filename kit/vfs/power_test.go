package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"testing"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

// number is a file that holds one; it is what most small files of a server are: an id, a key, a list of members.
type number struct {
	fs   vfs.FS
	have int
}

// Step implements powertest.Store.
func (f *number) Step(n int) error {
	return vfs.WriteFileAtomic(f.fs, "/d/number", strconv.AppendInt(nil, int64(n), 10), 0o600)
}

// Have implements powertest.Store.
func (f *number) Have() (int, error) { return f.have, nil }

// Close implements powertest.Store.
func (f *number) Close() error { return nil }

// TestPower: what ReadDurable returns stays, whatever fsync failed and whenever the process was killed before the
// power loss.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Steps: 5, Open: func(fsys vfs.FS) (powertest.Store, error) {
		if err := fsys.MkdirAll("/d", 0o700); err != nil {
			return nil, err
		}
		data, err := vfs.ReadDurable(fsys, "/d/number")
		if errors.Is(err, fs.ErrNotExist) {
			return &number{fs: fsys}, nil
		}
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(string(data))
		if err != nil {
			return nil, fmt.Errorf("half a file: %w", err)
		}
		return &number{fs: fsys, have: n}, nil
	}})
}
