//go:build !unix

package supervisor

// Main does nothing here: tasks are started on Unix only.
func Main([]string) int { return 1 }
