//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// quitTime is what test processes have to write down their goroutines.
const quitTime = 20 * time.Second

// askForGoroutines has a command of tests write down its goroutines when it is ended, in place of vanishing: the
// signal goes to the group, as the go command passes none on. What does not end by itself is killed by os/exec after
// quitTime.
func askForGoroutines(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) }
	cmd.WaitDelay = quitTime
}

// endGroup kills what is left of such a command.
func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
