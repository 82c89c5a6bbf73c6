// Package agentexec runs the process that an agent supervises, with secrets in its environment, and starts it anew when
// they change.
//
// What always holds:
//   - The process starts when all variables are there, and one runs at a time: a new one starts when the one before has
//     ended.
//   - To end, it gets the configured signal and killAfter; then it is killed, with what it started.
//   - When it ends by itself, Run ends with *Exited.
//
// Run owns the process and the goroutine that waits for it.
package agentexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/kit/procgroup"
)

// killAfter is how long a process may take to end when it is asked to.
const killAfter = 30 * time.Second

// Exited says that the process ended by itself. Code is what a shell would say: 128 and the signal's number for a
// signal.
type Exited struct{ Code int }

// Error implements error.
func (e *Exited) Error() string { return fmt.Sprintf("the process ended with code %d", e.Code) }

// Config says what to run.
type Config struct {
	Exec    agentconfig.Exec
	Changes <-chan map[string]string // variables: all of them, each time one changes
	Environ []string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Log     *slog.Logger // nil: nothing is logged
}

// Supervisor runs the process.
type Supervisor struct {
	cfg    Config
	log    *slog.Logger
	signal os.Signal
}

// New checks the configuration.
func New(cfg Config) (*Supervisor, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	sig, ok := signals[cfg.Exec.StopSignal]
	if !ok {
		return nil, fmt.Errorf("exec.restart_stop_signal: there is no signal %q here: it is one of %v", cfg.Exec.StopSignal,
			slices.Sorted(maps.Keys(signals)))
	}
	return &Supervisor{cfg: cfg, log: cfg.Log, signal: sig}, nil
}

// child is a process that runs.
type child struct {
	cmd  *exec.Cmd
	done chan error // what Wait said
}

// Run runs the process until ctx ends, or it does.
func (s *Supervisor) Run(ctx context.Context) error {
	var values map[string]string
	select {
	case values = <-s.cfg.Changes:
	case <-ctx.Done():
		return nil
	}
	for {
		c, err := s.start(values)
		if err != nil {
			return fmt.Errorf("exec: %w", err)
		}
		again, err := s.watch(ctx, c, values)
		if again == nil {
			return err
		}
		values = again
	}
}

// watch follows a process; it returns the variables that it is to start anew with, or nil and how it ended.
func (s *Supervisor) watch(ctx context.Context, c *child, values map[string]string) (again map[string]string,
	err error) {
	for {
		select {
		case err := <-c.done:
			if ctx.Err() != nil {
				return nil, nil
			}
			return nil, ended(err)
		case next := <-s.cfg.Changes:
			if maps.Equal(next, values) {
				continue
			}
			if !s.cfg.Exec.Restart {
				s.log.Info("exec: a secret changed; the process goes on, as restart_on_secret_changes says")
				values = next
				continue
			}
			s.log.Info("exec: a secret changed: the process starts anew")
			s.stop(c)
			return next, nil
		case <-ctx.Done():
			s.stop(c)
			return nil, nil
		}
	}
}

func (s *Supervisor) start(values map[string]string) (*child, error) {
	e := s.cfg.Exec
	cmd := exec.Command(e.Command[0], e.Command[1:]...)
	procgroup.Alone(cmd)
	cmd.WaitDelay = time.Second // for what its children write after its end
	cmd.Env = slices.Clone(s.cfg.Environ)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		cmd.Env = append(cmd.Env, name+"="+values[name]) // the last of a name holds
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.cfg.In, s.cfg.Out, s.cfg.Err
	for _, to := range []struct {
		path string
		dst  *io.Writer
	}{{e.Stdout, &cmd.Stdout}, {e.Stderr, &cmd.Stderr}} {
		if to.path == "" {
			continue
		}
		f, err := os.OpenFile(to.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close() // the process has it then
		*to.dst = f
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.log.Info("exec: the process started", "pid", cmd.Process.Pid, "command", e.Command[0])
	c := &child{cmd: cmd, done: make(chan error, 1)}
	go func() { c.done <- cmd.Wait() }()
	return c, nil
}

// stop ends a process and waits for it.
func (s *Supervisor) stop(c *child) {
	if err := c.cmd.Process.Signal(s.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.log.Warn("exec: the process did not get its signal: it is killed", "error", err)
		_ = procgroup.Kill(c.cmd.Process.Pid) // it may have ended meanwhile
	}
	t := time.NewTimer(killAfter)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		s.log.Warn("exec: the process did not end in time: it is killed", "after", killAfter)
		_ = procgroup.Kill(c.cmd.Process.Pid) // it may have ended meanwhile
		<-c.done
	}
}

// ended is how a process ended by itself.
func ended(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return &Exited{0}
	case errors.As(err, &exit):
		return &Exited{code(exit)}
	}
	return err
}
