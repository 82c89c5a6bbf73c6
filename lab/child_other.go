//go:build !linux

package lab

import (
	"errors"
	"os/exec"
	"time"
)

var errLinux = errors.New("this scenario needs Linux")

type syncs struct{}

func startSlowable(*exec.Cmd) (*syncs, <-chan error, error) { return nil, nil, errLinux }

func (*syncs) Delay(time.Duration) {}

func (*syncs) Close() {}

func leaveDescriptors(int, int) error { return errLinux }

type quota struct{}

func newQuota() (*quota, error) { return nil, errLinux }

func (*quota) set(float64) error { return errLinux }

func (*quota) add(int) error { return errLinux }

func (*quota) remove() {}

func childrenOf(int) ([][]string, error) { return nil, errLinux }
