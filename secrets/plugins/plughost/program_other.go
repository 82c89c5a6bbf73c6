//go:build !linux

package plughost

import "os"

func pathOf(file *os.File) string { return file.Name() }

func settle(int) {}

func linger(int) bool { return false }
