package shell

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// ofShell hands the line over as it is: cmd has rules of its own for quotes, which are not those of other programs.
func ofShell(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "cmd.exe")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd.exe /S /C "` + line + `"`}
	return cmd
}

func signalOf(*os.ProcessState) int { return 0 }
