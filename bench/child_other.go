//go:build !linux

package bench

import (
	"syscall"
	"time"
)

func childAttr() *syscall.SysProcAttr { return nil }

func processTime(int) (time.Duration, bool) { return 0, false }
