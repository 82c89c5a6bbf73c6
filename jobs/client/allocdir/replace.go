package allocdir

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// Replace writes a file below a folder, whole or not at all, in the place of what is there. A task owns the folder:
// links in it lead nowhere else, and folders that are missing on the way to the file are made.
func Replace(top, name string, text []byte, mode fs.FileMode) error {
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := name + ".replacing"
	if err := root.Remove(temp); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil { // the mode of a new file is less the umask
		return err
	}
	return root.Rename(temp, name)
}
