package allocrunner

import (
	"context"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/lifecycle"
	"corbel.dev/corbel/kit/errkind"
)

// each calls f for a task, or for all when name is "".
func (r *Runner) each(name string, f func(*task) error) error {
	if name != "" {
		t := r.task(name)
		if t == nil {
			return errkind.Errorf(errkind.NotFound, "Task %q not found in allocation", name)
		}
		return f(t)
	}
	for _, t := range r.tasks {
		if t.runner.State().State != lifecycle.Running {
			continue
		}
		if err := f(t); err != nil && !errkind.Is(err, errkind.NotFound) {
			return err
		}
	}
	return nil
}

// Restart restarts a task, or all that run.
func (r *Runner) Restart(name, why string) error {
	return r.each(name, func(t *task) error { return t.runner.Restart(why) })
}

// Signal sends a signal to a task, or to all that run.
func (r *Runner) Signal(name, signal string) error {
	return r.each(name, func(t *task) error { return t.runner.Signal(signal, "") })
}

// Exec runs a command in a task.
func (r *Runner) Exec(ctx context.Context, name string, e driver.Exec) (code int, err error) {
	t := r.task(name)
	if t == nil {
		return 0, errkind.Errorf(errkind.NotFound, "Task %q not found in allocation", name)
	}
	running := t.runner.Running()
	if running == nil {
		return 0, errkind.Errorf(errkind.NotFound, "task %q is not running", name)
	}
	return running.Exec(ctx, e)
}

// Usage is what each running task uses.
func (r *Runner) Usage() map[string]driver.Usage {
	all := map[string]driver.Usage{}
	for _, t := range r.tasks {
		if running := t.runner.Running(); running != nil {
			if u, err := running.Usage(); err == nil {
				all[t.name] = u
			}
		}
	}
	return all
}

// Has reports whether the allocation has a task.
func (r *Runner) Has(name string) bool { return r.task(name) != nil }

// Done reports whether all its tasks are dead.
func (r *Runner) Done() bool {
	_, list := r.views()
	return lifecycle.Done(list)
}
