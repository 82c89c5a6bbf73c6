// Package mockdriver starts nothing: its tasks run for a time, fail to start or end with a code, as their config says.
// It is for tests and for nodes that are simulated, thousands in a process. Its name in job files is mock_driver.
package mockdriver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/tasklog"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// Name is the driver's in job files.
const Name = "mock_driver"

// Driver implements driver.Driver.
type Driver struct{ Clock clock.Clock }

// span reads "10s", or nanoseconds.
type span time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (s *span) UnmarshalJSON(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case float64:
		*s = span(v)
	case string:
		d, err := time.ParseDuration(v)
		*s = span(d)
		return err
	default:
		return fmt.Errorf("%s is no duration", text)
	}
	return nil
}

// config is what a task says.
type config struct {
	RunFor           *span  `json:"run_for"` // none: until it is stopped
	ExitCode         int    `json:"exit_code"`
	ExitSignal       int    `json:"exit_signal"`
	ExitErr          string `json:"exit_err_msg"`
	StartError       string `json:"start_error"`
	StartRecoverable bool   `json:"start_error_recoverable"`
	StartBlockFor    span   `json:"start_block_for"`
	KillAfter        span   `json:"kill_after"`
	SignalError      string `json:"signal_error"`
	Stdout           string `json:"stdout_string"`
}

// Fingerprint implements driver.Driver.
func (d *Driver) Fingerprint(context.Context) driver.Fingerprint {
	return driver.Fingerprint{Detected: true, Healthy: true, Text: "Healthy",
		Attributes: map[string]string{"driver.mock_driver": "1"}}
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, t *driver.Task) (driver.Running, error) {
	var c config
	if err := driver.Decode(t.Config, &c); err != nil {
		return nil, err
	}
	if c.StartBlockFor > 0 {
		timer := d.Clock.NewTimer(time.Duration(c.StartBlockFor))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if c.StartError != "" {
		kind := errkind.Invalid
		if c.StartRecoverable {
			kind = errkind.Unavailable
		}
		return nil, errkind.New(kind, c.StartError)
	}
	if c.Stdout != "" && !t.NoLogs {
		path := filepath.Join(t.Dirs.Logs, tasklog.Name(t.Name, false)+".0")
		if err := os.WriteFile(path, []byte(c.Stdout), 0o644); err != nil {
			return nil, err
		}
	}
	return d.run(c, d.Clock.Now()), nil
}

// Recover implements driver.Driver: the time of a task goes on from its start.
func (d *Driver) Recover(_ context.Context, t *driver.Task, text []byte) (driver.Running, error) {
	var c config
	if err := driver.Decode(t.Config, &c); err != nil {
		return nil, err
	}
	var started time.Time
	if err := json.Unmarshal(text, &started); err != nil {
		return nil, errkind.E(errkind.NotFound, "state of the task", err)
	}
	return d.run(c, started), nil
}

func (d *Driver) run(c config, started time.Time) *task {
	t := &task{config: c, clock: d.Clock, started: started, ended: make(chan struct{})}
	if c.RunFor != nil {
		t.end = d.Clock.AfterFunc(time.Duration(*c.RunFor)-d.Clock.Since(started), func() {
			t.finish(driver.Exit{Code: c.ExitCode, Signal: c.ExitSignal, Text: c.ExitErr})
		})
	}
	return t
}

// task is a task that is not there.
type task struct {
	config  config
	clock   clock.Clock
	started time.Time
	end     *clock.Timer // nil without run_for

	once  sync.Once
	exit  driver.Exit // valid once ended is closed
	ended chan struct{}
}

func (t *task) finish(e driver.Exit) { t.once.Do(func() { t.exit = e; close(t.ended) }) }

// State implements driver.Running.
func (t *task) State() []byte {
	text, err := json.Marshal(t.started)
	if err != nil {
		return nil
	}
	return text
}

// Wait implements driver.Running.
func (t *task) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-t.ended:
		return t.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

// Stop implements driver.Running.
func (t *task) Stop(ctx context.Context, _ string, timeout time.Duration) error {
	if wait := min(time.Duration(t.config.KillAfter), timeout); wait > 0 {
		timer := t.clock.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t.finish(driver.Exit{})
	return t.Remove()
}

// Signal implements driver.Running.
func (t *task) Signal(name string) error {
	if t.config.SignalError != "" {
		return errkind.New(errkind.Internal, t.config.SignalError)
	}
	_, err := driver.Signal(name)
	return err
}

// Usage implements driver.Running.
func (t *task) Usage() (driver.Usage, error) { return driver.Usage{At: t.clock.Now()}, nil }

// Exec implements driver.Running.
func (t *task) Exec(context.Context, driver.Exec) (int, error) {
	return 0, errkind.New(errkind.Invalid, "mock_driver runs no commands")
}

// Remove implements driver.Running.
func (t *task) Remove() error {
	if t.end != nil {
		t.end.Stop()
	}
	return nil
}
