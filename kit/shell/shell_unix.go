//go:build unix

package shell

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

func ofShell(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, "/bin/sh", "-c", line)
}

// signalOf is what ended the process; 0 when it ended by itself.
func signalOf(p *os.ProcessState) int {
	if s, ok := p.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return int(s.Signal())
	}
	return 0
}
