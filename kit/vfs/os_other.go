//go:build !linux

package vfs

import "os"

func dataSync(f *os.File) error { return f.Sync() }

func reserve(f *os.File, sizeBytes int64) error { return f.Truncate(sizeBytes) }

// lockFile has no portable form in the standard library: elsewhere than on Linux nothing is locked.
func lockFile(*os.File) error { return nil }

// Locked reports whether a process holds the lock of a name: here none ever does.
func (OS) Locked(string) (bool, error) { return false, nil }
