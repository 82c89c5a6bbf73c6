//go:build !linux

package faultrun

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
