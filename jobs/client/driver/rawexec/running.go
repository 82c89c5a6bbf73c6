//go:build unix

package rawexec

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/supervisor"
)

// Running is a supervised task.
type Running struct {
	*supervisor.Process
	dir   string
	where supervisor.Where
	mhz   int64 // of the node

	mu   sync.Mutex // guards last
	last supervisor.Times
}

// State implements driver.Running.
func (r *Running) State() []byte {
	text, err := json.Marshal(state{Dir: r.dir})
	if err != nil {
		panic(err) // a struct of one text
	}
	return text
}

// Signal implements driver.Running.
func (r *Running) Signal(name string) error {
	s, err := driver.Signal(name)
	if err != nil {
		return err
	}
	return r.Process.Signal(s)
}

// Stop implements driver.Running.
func (r *Running) Stop(ctx context.Context, signal string, timeout time.Duration) error {
	if signal == "" {
		signal = "SIGINT"
	}
	s, err := driver.Signal(signal)
	if err != nil {
		return err
	}
	return r.Process.Stop(ctx, s, timeout)
}

// Usage implements driver.Running: shares of one core since the last call.
func (r *Running) Usage() (driver.Usage, error) {
	now, err := r.Process.Times()
	if err != nil {
		return driver.Usage{}, err
	}
	r.mu.Lock()
	last := r.last
	r.last = now
	r.mu.Unlock()
	u := driver.Usage{MemoryBytes: now.MemoryBytes, PIDs: now.PIDs, At: now.At}
	if span := now.At.Sub(last.At); !last.At.IsZero() && span > 0 {
		u.UserPercent = 100 * float64(now.User-last.User) / float64(span)
		u.SysPercent = 100 * float64(now.System-last.System) / float64(span)
		u.CPUPercent = max(0, u.UserPercent+u.SysPercent)
		u.CPUTicks = u.CPUPercent / 100 * float64(r.mhz) / float64(supervisor.CPUs())
	}
	return u, nil
}

// Exec implements driver.Running.
func (r *Running) Exec(ctx context.Context, e driver.Exec) (int, error) {
	return r.Process.Exec(ctx, e, r.where)
}

// Remove implements driver.Running.
func (r *Running) Remove() error { return os.RemoveAll(r.dir) }
