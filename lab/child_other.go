//go:build !linux

package lab

import (
	"errors"
	"syscall"
)

var errLinux = errors.New("this scenario needs Linux")

func dieWithParent() *syscall.SysProcAttr { return nil }

func leaveDescriptors(int, int) error { return errLinux }

type quota struct{}

func newQuota(string) (*quota, error) { return nil, errLinux }

func (*quota) set(float64) error { return errLinux }

func (*quota) add(int) error { return errLinux }

func (*quota) remove() {}
