//go:build !unix

package agentexec

import (
	"os"
	"os/exec"
)

// signals are those that a process may be asked to end with: here it can only be ended.
var signals = map[string]os.Signal{"SIGTERM": os.Kill, "SIGINT": os.Kill, "SIGKILL": os.Kill}

func code(exit *exec.ExitError) int { return exit.ExitCode() }
