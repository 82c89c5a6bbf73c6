//go:build unix

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// Process is a supervised process as the agent sees it.
type Process struct {
	dir    string
	pids   pids
	reaped chan struct{} // closed when the supervisor, a child of ours, has ended; nil when another agent started it
}

// startLimit is how long a supervisor may take to start its process.
const startLimit = 30 * time.Second

// Start runs spec under a supervisor with its files in dir. command is OwnCommand. An error that the operating system
// gave for the command itself (not found, not executable) is Invalid.
func Start(ctx context.Context, command []string, dir string, spec *Spec) (*Process, error) {
	for _, name := range []string{pidsFile, endedFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := write(filepath.Join(dir, specFile), spec); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(command[0], append(command[1:], dir)...) //nolint:noctx // it is to outlive ctx
	cmd.ExtraFiles = []*os.File{w}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "start the supervisor", err)
	}
	p := &Process{dir: dir, reaped: make(chan struct{})}
	go func() { // ends with the supervisor
		_ = cmd.Wait()
		close(p.reaped)
	}()
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > startLimit {
		_ = r.SetReadDeadline(time.Now().Add(startLimit))
	} else {
		_ = r.SetReadDeadline(d)
	}
	text, err := io.ReadAll(io.LimitReader(r, 64<<10))
	var answer struct {
		pids
		Error string
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errkind.E(errkind.Unavailable, "the supervisor did not start", err)
	}
	if answer.Error != "" {
		return nil, errkind.New(errkind.Invalid, answer.Error)
	}
	p.pids = answer.pids
	return p, nil
}

// Open finds a process that another agent's life started. NotFound when there is no trace of it.
func Open(dir string) (*Process, error) {
	p := &Process{dir: dir}
	if _, err := p.exit(); err == nil {
		return p, nil
	}
	if err := read(filepath.Join(dir, pidsFile), &p.pids); err != nil {
		return nil, errkind.E(errkind.NotFound, "find the supervisor", err)
	}
	return p, nil
}

// PID is the main process's.
func (p *Process) PID() int { return p.pids.Process }

// SupervisorPID is the supervisor's.
func (p *Process) SupervisorPID() int { return p.pids.Supervisor }

// exit reads how the process ended; an error when that is not noted.
func (p *Process) exit() (*ended, error) {
	e := &ended{}
	return e, read(filepath.Join(p.dir, endedFile), e)
}

// Wait waits for the end.
func (p *Process) Wait(ctx context.Context) (driver.Exit, error) {
	if err := p.gone(ctx); err != nil {
		return driver.Exit{}, err
	}
	e, err := p.exit()
	if err == nil {
		return driver.Exit{Code: e.Code, Signal: e.Signal, Text: e.Error}, nil
	}
	if p.lives() {
		_ = syscall.Kill(-p.pids.Process, syscall.SIGKILL)
	}
	return driver.Exit{Code: -1, Text: "the supervisor was killed, so its process was too"}, nil
}

// gone returns when the supervisor has ended.
func (p *Process) gone(ctx context.Context) error {
	if p.reaped != nil {
		select {
		case <-p.reaped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return poll(ctx, func() bool { return same(p.pids.Supervisor, p.pids.SupervisorStart) })
}

// lives reports whether the main process does.
func (p *Process) lives() bool { return same(p.pids.Process, p.pids.ProcessStart) }

// same reports whether pid is still the process that began at start.
func same(pid int, start uint64) bool {
	if pid <= 1 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	return start == 0 || startOf(pid) == start
}

// Signal sends a signal to the process group.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.lives() {
		return errkind.New(errkind.NotFound, "the process has ended")
	}
	err := syscall.Kill(-p.pids.Process, s)
	if errors.Is(err, syscall.ESRCH) {
		return errkind.New(errkind.NotFound, "the process has ended")
	}
	return err
}

// Stop sends s, waits for the timeout, kills, and returns when the process is gone.
func (p *Process) Stop(ctx context.Context, s syscall.Signal, timeout time.Duration) error {
	if err := p.Signal(s); err != nil && !errkind.Is(err, errkind.NotFound) {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if p.gone(soon) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errkind.Is(err, errkind.NotFound) {
		return err
	}
	return p.gone(ctx)
}

// write writes v durably.
func write(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(vfs.OS{}, path, text, 0o600)
}

func read(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// pollEvery is how often a supervisor that is no child of ours is looked at. A thread that waits for each would cost
// more than one look at a file of /proc ten times a second.
const pollEvery = 100 * time.Millisecond

func poll(ctx context.Context, still func() bool) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for still() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return nil
}
