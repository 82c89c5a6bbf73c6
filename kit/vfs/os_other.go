//go:build !linux

package vfs

import "os"

func dataSync(f *os.File) error { return f.Sync() }

func reserve(f *os.File, sizeBytes int64) error { return f.Truncate(sizeBytes) }
