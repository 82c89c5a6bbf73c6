//go:build !linux

package hothttp

// hungUp is only known on Linux; elsewhere the answer that fails tells.
func hungUp(int) bool { return false }
