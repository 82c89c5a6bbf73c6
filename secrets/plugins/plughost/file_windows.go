package plughost

import (
	"io/fs"
	"os"
)

func openFile(path string) (*os.File, error) { return os.Open(path) }

func ownFolder(fs.FileInfo) bool { return true }

// judgedInfo judges nothing: who may change a file is not in its mode here.
func judgedInfo(string, fs.FileInfo) error { return nil }
