// Package childcmd holds the commands that run a child and end with its exit code:
// lock and watch. A child gets SIGTERM when its lock is lost or the command is told
// to end, and SIGKILL some seconds later, with all that it started.
package childcmd

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// ChildArgs marks commands whose arguments after the first belong to a child process.
const ChildArgs = "corbel.child"

// childGrace is how long a child may take to end after SIGTERM before it is killed.
const childGrace = 5 * time.Second

// childProcess is a command line that lock and watch run.
type childProcess struct {
	args     []string
	shell    bool // args joined go to the shell
	env      []string
	in       io.Reader // nil is no input
	out, err io.Writer
}

// run starts the child and waits for it. When ctx ends the child and all that it
// started get SIGTERM, then SIGKILL. It returns the exit code.
func (p *childProcess) run(ctx context.Context) (int, error) {
	args := p.args
	if p.shell {
		args = shellCommand(args)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.in, p.out, p.err
	cmd.WaitDelay = childGrace
	ownGroup(cmd, p.in == io.Reader(os.Stdin))
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	case errors.As(err, &exit):
		return 128 + signalOf(exit), nil // as shells say it
	case errors.Is(err, exec.ErrWaitDelay):
		return 1, nil
	}
	return 1, err
}
