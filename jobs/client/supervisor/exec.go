//go:build unix

package supervisor

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
)

// Where is what a command beside a process shares with it.
type Where struct {
	Dir, User string
	Env       []string
	Inside    bool // its namespaces, and all that is in its spec
	Network   *Network
}

// execGrace is how long a command's output may stay open after its end.
const execGrace = 2 * time.Second

// Exec runs a command beside the process, in a process group of its own that is killed with ctx.
func (p *Process) Exec(ctx context.Context, e driver.Exec, w Where) (int, error) {
	if len(e.Command) == 0 {
		return 0, errkind.New(errkind.Invalid, "command: is missing")
	}
	if !p.lives() {
		return 0, errkind.New(errkind.NotFound, "the task does not run")
	}
	cmd, err := p.beside(ctx, e.Command, w)
	if err != nil {
		return 0, err
	}
	start := cmd.Start
	if w.Network != nil && !w.Inside {
		start = func() error { return join(&Spec{Network: w.Network}, cmd.Start) }
	}
	cmd.WaitDelay = execGrace
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if e.TTY {
		return onTerminal(cmd, start, e, w.Inside)
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Stdout, cmd.Stderr = e.Stdout, e.Stderr
	return piped(cmd, start, e.Stdin)
}

// beside is a command that shares with the process what w says, or with Inside its namespaces.
func (p *Process) beside(ctx context.Context, command []string, w Where) (cmd *exec.Cmd, err error) {
	if w.Inside {
		self := append(OwnCommand(), enterCommand, strconv.Itoa(p.pids.Process), p.dir)
		cmd = exec.CommandContext(ctx, self[0], append(self[1:], command...)...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{}
		return cmd, nil
	}
	path, err := find(command[0], w.Dir, w.Env)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	cmd = exec.CommandContext(ctx, path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Dir, cmd.Env, cmd.SysProcAttr = w.Dir, w.Env, &syscall.SysProcAttr{}
	if w.User != "" {
		cmd.SysProcAttr.Credential, err = credential(w.User)
	}
	return cmd, err
}

// piped runs cmd. Its input is not waited for: a reader of a session has no end of its own.
func piped(cmd *exec.Cmd, start func() error, in io.Reader) (int, error) {
	if in != nil {
		w, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		go func() { // ends with the session's input
			_, _ = io.Copy(w, in)
			_ = w.Close()
		}()
	}
	if err := start(); err != nil {
		return 0, err
	}
	return codeOf(cmd.Wait())
}

func codeOf(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// Times is what a process group has used.
type Times struct {
	User, System time.Duration
	MemoryBytes  uint64
	PIDs         int
	At           time.Time
}

// CPUs is how many there are.
func CPUs() int { return runtime.NumCPU() }

// ReadSpec is what was started in dir.
func ReadSpec(dir string) (*Spec, error) {
	spec := &Spec{}
	if err := read(filepath.Join(dir, specFile), spec); err != nil {
		return nil, err
	}
	return spec, nil
}

// Times measures the processes of the group.
func (p *Process) Times() (Times, error) {
	if !p.lives() {
		return Times{}, errkind.New(errkind.NotFound, "the task does not run")
	}
	t := Times{At: time.Now()}
	measure(p.pids.Process, &t)
	return t, nil
}

// terminal is a pseudo terminal's two ends.
type terminal struct{ control, process *os.File }

// onTerminal runs cmd on a terminal. What goes inside takes it there: a session does not reach across namespaces.
func onTerminal(cmd *exec.Cmd, start func() error, e driver.Exec, inside bool) (int, error) {
	t, err := openTerminal()
	if err != nil {
		return 0, err
	}
	defer t.control.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.process, t.process, t.process
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, !inside
	err = start()
	_ = t.process.Close()
	if err != nil {
		return 0, err
	}
	read, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends when the last process closes the terminal, or with it
		defer close(read)
		_, _ = io.Copy(e.Stdout, t.control)
	}()
	if e.Stdin != nil {
		go func() { _, _ = io.Copy(t.control, e.Stdin) }() // ends with the session's input
	}
	if e.Resize != nil {
		go func() { // ends with the command
			for {
				select {
				case size := <-e.Resize:
					t.resize(size)
				case <-ended:
					return
				}
			}
		}()
	}
	code, err := codeOf(cmd.Wait())
	close(ended)
	_ = t.control.SetReadDeadline(time.Now().Add(execGrace))
	<-read
	return code, err
}
