// Package shell runs a command line as operators write it, by /bin/sh -c (on Windows cmd /C), with its output, its time
// and its descendants bounded.
//
// A command runs in a process group of its own; when its time is up or ctx ends, the whole group is
// killed. What it leaves running in the background on purpose lives on, and is not waited for.
// Functions may be called from any goroutine; none outlives Run.
package shell

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/procgroup"
)

// Command is what to run.
type Command struct {
	Line string
	// Env is the whole environment; nil is this process's.
	Env   []string
	Stdin []byte
	// Timeout is how long it may take; 0 is for ever.
	Timeout time.Duration
	// OutputBytes bounds what is kept of standard output and standard error together; 0 is 4 MiB.
	OutputBytes int
}

// DefaultOutputBytes is what is kept where a command does not say.
const DefaultOutputBytes = 4 << 20

// Exit statuses that are not the command's own.
const (
	StatusTimedOut = 2   // Sensu's: it counts as critical
	StatusFailed   = 3   // it could not be started
	statusSignal   = 128 // and the signal's number, as shells have it
)

// Result is how it ended.
type Result struct {
	Output   []byte
	Dropped  int64 // bytes of output that were not kept
	Status   int
	Duration time.Duration
	TimedOut bool
	// Err is why the command could not be run, or ctx's error.
	Err error
}

// pipeGrace is how long a descendant may hold the output open after the command ended.
const pipeGrace = 2 * time.Second

// Run runs the command and returns when it has ended.
func Run(ctx context.Context, c Command) Result {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, c.Timeout)
	}
	defer cancel()
	most := c.OutputBytes
	if most == 0 {
		most = DefaultOutputBytes
	}
	kept := &head{most: most}
	cmd := ofShell(limited, c.Line)
	cmd.Env = c.Env
	cmd.Stdout, cmd.Stderr = kept, kept // the same writer: exec makes one pipe and one copier
	if c.Stdin != nil {
		cmd.Stdin = strings.NewReader(string(c.Stdin))
	}
	procgroup.Apart(cmd)
	cmd.WaitDelay = pipeGrace
	begin := time.Now()
	err := cmd.Run()
	r := Result{Output: kept.bytes, Dropped: kept.dropped, Duration: time.Since(begin)}
	if cmd.ProcessState == nil {
		r.Status, r.Err = StatusFailed, err
		return r
	}
	switch signal := signalOf(cmd.ProcessState); {
	case ctx.Err() != nil:
		r.Status, r.Err = StatusFailed, ctx.Err()
	case limited.Err() != nil && !cmd.ProcessState.Success():
		r.Status, r.TimedOut = StatusTimedOut, true
	case signal > 0:
		r.Status = statusSignal + signal
	default:
		r.Status = cmd.ProcessState.ExitCode()
	}
	var exit *exec.ExitError
	if r.Err == nil && err != nil && !r.TimedOut && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) &&
		!errors.Is(err, syscall.EPIPE) {
		r.Err = err // its input or output failed, and its status says nothing
		r.Status = StatusFailed
	}
	return r
}

// head keeps the first bytes that are written to it.
type head struct {
	bytes   []byte
	most    int
	dropped int64
}

// Write implements io.Writer; it never fails, so that the command is not ended by its own output.
func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.most-len(h.bytes))
	h.bytes = append(h.bytes, p[:n]...)
	h.dropped += int64(len(p) - n)
	return len(p), nil
}
