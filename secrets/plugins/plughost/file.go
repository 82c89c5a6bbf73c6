package plughost

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/plugins"
)

// refuse is why a program is not run.
func refuse(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, format, args...)
}

// open opens the program of an entry for running it, once it was judged.
func (h *Host) open(e *plugins.Entry) (*os.File, error) {
	root, err := filepath.EvalSymlinks(h.cfg.Dir)
	if err != nil {
		return nil, refuse("plugin_directory: %w", plain(err))
	}
	file := filepath.Join(root, filepath.FromSlash(e.Command))
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, refuse("command: %s: %w", e.Command, plain(err))
	}
	rest, err := filepath.Rel(root, real)
	if err != nil || rest == ".." || strings.HasPrefix(rest, ".."+string(filepath.Separator)) {
		return nil, refuse("command: %s leads out of plugin_directory", e.Command)
	}
	for at := real; ; at = filepath.Dir(at) { // the file, and each folder up to the root of plug-ins
		if err := judged(at, at == real, e); err != nil {
			return nil, err
		}
		if at == root {
			break
		}
	}
	f, err := openFile(real)
	if err != nil {
		return nil, refuse("command: %s: %w", e.Command, plain(err))
	}
	if err := sound(f, e); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// plain is an error of a file without the path, which the text has already.
func plain(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// judged refuses what others may change, and a program that is no file: to open a pipe may take for ever.
func judged(path string, program bool, e *plugins.Entry) error {
	info, err := os.Lstat(path)
	if err != nil {
		return refuse("%s: %w", path, plain(err))
	}
	if program && !info.Mode().IsRegular() {
		return errNoFile(e)
	}
	return judgedInfo(path, info)
}

func errNoFile(e *plugins.Entry) error { return refuse("command: %s is no regular file", e.Command) }

// sound judges the open file itself.
func sound(f *os.File, e *plugins.Entry) error {
	info, err := f.Stat()
	if err != nil {
		return refuse("command: %s: %w", e.Command, plain(err))
	}
	if !info.Mode().IsRegular() {
		return errNoFile(e)
	}
	if err := judgedInfo(f.Name(), info); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return refuse("command: %s: %w", e.Command, plain(err))
	}
	if have := hex.EncodeToString(sum.Sum(nil)); have != e.SHA256 {
		return refuse("sha256: %s has the SHA-256 %s, and %s is registered: register what it is now, if that is intended",
			e.Command, have, e.SHA256)
	}
	return nil
}

// Check implements plugins.Runner.
func (h *Host) Check(e *plugins.Entry) error {
	f, err := h.open(e)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkDir refuses a folder of plug-ins that cannot be one.
func checkDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("plugin_directory: %q must be an absolute path", dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("plugin_directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("plugin_directory: %s is no folder", dir)
	}
	return nil
}
