//go:build !linux

package e2e

// netserverMain is a server within a task: networks of allocations need Linux.
func netserverMain() {}
