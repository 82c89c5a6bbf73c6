//go:build unix

package procgroup

import (
	"os/exec"
	"syscall"
)

// Alone makes cmd, which must not run yet, the first of a group; who started it ends it.
func Alone(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// Kill ends the group that pid is the first of, at once.
func Kill(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// End asks the group that pid is the first of to end.
func End(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }
