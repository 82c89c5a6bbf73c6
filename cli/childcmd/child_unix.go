//go:build unix

package childcmd

import (
	"os/exec"
	"strings"
	"syscall"
)

func shellCommand(args []string) []string { return []string{"/bin/sh", "-c", strings.Join(args, " ")} }

// ownGroup lets the end of ctx reach the child's children too. A child that reads
// the terminal must stay in the terminal's group.
func ownGroup(cmd *exec.Cmd, readsTerminal bool) {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if !readsTerminal {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	}
}

func signalOf(e *exec.ExitError) int {
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return int(s.Signal())
	}
	return 0
}
