//go:build !linux

package spawn

import "syscall"

// DieWithParent is nothing where the kernel cannot do it.
func DieWithParent() *syscall.SysProcAttr { return nil }
