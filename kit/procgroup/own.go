package procgroup

import "os"

// Own is the command line that runs this process's own binary with args, also after the file was replaced by a newer
// one.
func Own(args ...string) []string {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return append([]string{self}, args...)
	}
	if path, err := os.Executable(); err == nil {
		return append([]string{path}, args...)
	}
	return append([]string{os.Args[0]}, args...)
}
