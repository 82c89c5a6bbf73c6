package check

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/procgroup"
)

// killGrace is how long after the kill the pipes of a script may stay open: a
// descendant that left the process group may hold them.
const killGrace = 2 * time.Second

// scriptProbe runs a command in a process group of its own, which is killed
// wholly when the deadline comes.
func scriptProbe(s Spec) Probe {
	return func(ctx context.Context) Result {
		if len(s.Args) == 0 {
			return failed("no command to run")
		}
		cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
		kept := newRing(s.OutputMaxSizeBytes)
		cmd.Stdout, cmd.Stderr = kept, kept // the same writer: exec makes one pipe and one copier
		procgroup.Apart(cmd)
		cmd.WaitDelay = killGrace
		err := cmd.Run()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			out := fmt.Sprintf("Timed out (%s) running check", s.Timeout)
			if kept.String() != "" {
				out += ": " + kept.String()
			}
			return failed(out)
		}
		var exit *exec.ExitError
		switch {
		case err == nil, errors.Is(err, exec.ErrWaitDelay):
			return Result{Status: catalog.Passing, Output: kept.String()}
		case errors.As(err, &exit) && exit.ExitCode() == 1:
			return Result{Status: catalog.Warning, Output: kept.String()}
		case errors.As(err, &exit):
			return failed(kept.String())
		}
		return failed(err.Error())
	}
}
