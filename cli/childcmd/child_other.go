//go:build !unix

package childcmd

import (
	"os/exec"
	"strings"
)

func shellCommand(args []string) []string { return []string{"cmd", "/C", strings.Join(args, " ")} }

func ownGroup(*exec.Cmd, bool) {} // the child alone is ended

func signalOf(*exec.ExitError) int { return 0 }
