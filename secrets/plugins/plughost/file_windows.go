package plughost

import "io/fs"

// judgedInfo judges nothing: who may change a file is not in its mode here.
func judgedInfo(string, fs.FileInfo) error { return nil }
