//go:build unix

package script

import (
	"os/exec"
	"syscall"
)

// detach keeps what a terminal sends (Ctrl-C) from a child: its parent ends it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
