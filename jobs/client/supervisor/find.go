//go:build unix

package supervisor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// find looks a command up: with a slash from dir, else in PATH of the task's environment.
func find(command, dir string, env []string) (string, error) {
	if command == "" {
		return "", fmt.Errorf("command: is missing")
	}
	if strings.Contains(command, "/") {
		if !filepath.IsAbs(command) {
			command = filepath.Join(dir, command)
		}
		return command, executable(command)
	}
	path := os.Getenv("PATH")
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, "PATH="); ok {
			path = value
		}
	}
	for _, folder := range append(filepath.SplitList(path), dir) {
		if p := filepath.Join(folder, command); filepath.IsAbs(p) && executable(p) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("command: %q is not in PATH (%s) nor in the task's folder", command, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("command: %w", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("command: %s: %w", path, fs.ErrPermission)
	}
	return nil
}
