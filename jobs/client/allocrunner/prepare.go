package allocrunner

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/restartpolicy"
	"corbel.dev/corbel/jobs/client/taskenv"
	"corbel.dev/corbel/jobs/client/tasklog"
	"corbel.dev/corbel/jobs/client/taskrunner"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

// Step makes something of a task ready before each of its starts: artifacts, tokens, templates.
type Step interface {
	// Prepare returns when the task may start. What it starts ends with Work.Life.
	Prepare(ctx context.Context, w *Work) error
}

// Resumer is a Step that goes on with a task that outlived the agent.
type Resumer interface {
	// Resume is Prepare for a task that runs: nothing that it was started with changes.
	Resume(ctx context.Context, w *Work) error
}

// Ender is a Step that has something to do when a task is dead.
type Ender interface {
	// End takes some seconds at most.
	End(ctx context.Context, w *Work)
}

// Tokens are those that a task holds now. Steps set and read them, at any time.
type Tokens struct{ Secrets, Catalog atomic.Pointer[string] }

// Work is what a Step works on.
type Work struct {
	Workload *workload.Workload
	Task     *jobwire.Task
	Dirs     driver.Dirs
	Env      *taskenv.Env
	// Extra is what the task gets in its environment beyond; steps add to it.
	Extra  map[string]string
	Tokens *Tokens
	// Apart is whether the task has a network of its own: it reaches the host's loopback by sockets of its folder alone.
	Apart bool
	Note  func(kind, text string)
	// Life ends when the task is dead, or prepared again.
	Life context.Context
	// Restart and Signal act on the running task.
	Restart func(why string) error
	Signal  func(name string) error
	Exec    func(ctx context.Context, command []string) (int, error)
	// Go runs f until it returns; the task is not over before.
	Go func(f func())
	// First is whether the task was never prepared in this life of the allocation.
	First bool
}

// stepsOf is what steps of one task left running.
type stepsOf struct {
	end   context.CancelFunc
	work  sync.WaitGroup
	count int
}

func (s *stepsOf) stop() {
	if s.end != nil {
		s.end()
	}
	s.work.Wait()
}

// prepare makes a task ready.
func (r *Runner) prepare(ctx context.Context, t *task, note func(kind, text string)) (*driver.Task, error) {
	load := r.now()
	given := load.Task(t.name)
	made := r.known(t.name)
	w := r.work(ctx, t, made, note)
	if err := payload(load, given, w.Dirs); err != nil {
		return nil, err
	}
	for _, step := range r.host.Steps {
		if err := step.Prepare(ctx, w); err != nil {
			return nil, err
		}
		w.Env = r.env(load, given, made, w.Extra)
	}
	made.Env = w.Env.Vars
	made.Config, _ = w.Env.ReplaceAny(given.Config).(map[string]any)
	made.User = w.Env.Replace(given.User)
	return made, r.mounts(load, given, made)
}

// work begins a life of the steps of a task; the one before is over.
func (r *Runner) work(ctx context.Context, t *task, made *driver.Task, note func(kind, text string)) *Work {
	load := r.now()
	given := load.Task(t.name)
	t.steps.stop()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	t.steps.end = end
	w := &Work{Workload: load, Task: given, Dirs: made.Dirs, Extra: map[string]string{}, Tokens: &Tokens{}, Note: note,
		Apart: made.Network.Path != "",
		Life:  life, Restart: t.runner.Restart, First: t.steps.count == 0, Go: t.steps.work.Go,
		Signal: func(name string) error { return t.runner.Signal(name, ": what it was started with changed") },
		Exec: func(ctx context.Context, command []string) (int, error) {
			return r.Exec(ctx, t.name, driver.Exec{Command: command})
		}}
	t.steps.count++
	w.Env = r.env(load, given, made, nil)
	return w
}

// resume has the steps go on with a task that outlived the agent.
func resume(ctx context.Context, r *Runner, t *task) {
	w := r.work(ctx, t, r.known(t.name), t.runner.Note)
	for _, step := range r.host.Steps {
		if s, ok := step.(Resumer); ok {
			if err := s.Resume(ctx, w); err != nil {
				r.host.Log.Warn("a task that runs on misses something", "task", t.name, "error", err)
			}
		}
	}
}

// ended tells the steps that a task is dead.
func ended(ctx context.Context, r *Runner, t *task) {
	for _, step := range r.host.Steps {
		if s, ok := step.(Ender); ok {
			w := r.work(ctx, t, r.known(t.name), t.runner.Note)
			s.End(ctx, w)
			t.steps.stop()
		}
	}
}

// env is a task's environment, as the driver shows its folders.
func (r *Runner) env(load *workload.Workload, given *jobwire.Task, made *driver.Task,
	extra map[string]string) *taskenv.Env {
	dirs := made.Dirs
	if inside, ok := r.host.Drivers[given.Driver].(interface{ Inside(driver.Dirs) driver.Dirs }); ok {
		dirs = inside.Inside(dirs)
	}
	return taskenv.New(&taskenv.Source{Alloc: load.ID.String(), Name: load.Name(), Index: load.Index,
		Region: regionOf(load, r.host), Node: r.host.Node(), Job: load.Job,
		Group: load.Group, Task: given, Ports: made.Ports, Inside: ownNetwork{r}.inside(load),
		Resources: made.Resources, Dirs: dirs, Extra: extra})
}

// regionOf is what the servers said of the job: an agent is not told itself.
func regionOf(load *workload.Workload, host *Host) string {
	return cmp.Or(jobwire.Get(load.Job.Region), host.Region)
}

// known is a task without what steps make.
func (r *Runner) known(name string) *driver.Task {
	load := r.now()
	given := load.Task(name)
	t := &driver.Task{Alloc: load.ID.String(), Name: name, Job: jobwire.Get(load.Job.ID), Group: load.Alloc.Group,
		Config: given.Config, NoLogs: r.dir == nil, Ports: r.ports(load), Resources: r.resources(load, given)}
	t.Network = ownNetwork{r}.network(load)
	if l := given.LogConfig; l != nil {
		t.Logs = tasklog.Limits{MaxFiles: jobwire.Get(l.MaxFiles), MaxFileBytes: int64(jobwire.Get(l.MaxFileSizeMB)) << 20}
		t.NoLogs = t.NoLogs || jobwire.Get(l.Disabled)
	}
	if r.dir != nil {
		t.Dirs = r.dir.Of(name, filepath.Join(r.host.StateDir, "tasks", load.ID.String(), name))
	}
	return t
}

func (r *Runner) ports(load *workload.Workload) (list []driver.Port) {
	networks := r.host.Node().Capacity.Networks
	for _, p := range load.Grant.Ports {
		ip := r.host.Node().Attributes["unique.network.ip-address"]
		if p.Network >= 0 && p.Network < len(networks) && networks[p.Network].Address != "" {
			ip = networks[p.Network].Address
		}
		list = append(list, driver.Port{Label: p.Label, HostIP: ip, Value: p.Value, To: p.To})
	}
	return list
}

func (r *Runner) resources(load *workload.Workload, given *jobwire.Task) driver.Resources {
	res := driver.Resources{TotalCPU: r.host.Node().Capacity.Total.CPU}
	if g := given.Resources; g != nil {
		res.CPU, res.MemoryMB = int64(jobwire.Get(g.CPU)), int64(jobwire.Get(g.MemoryMB))
		res.MemoryMaxMB = int64(jobwire.Get(g.MemoryMaxMB))
	}
	for _, c := range load.Grant.Cores {
		if c.Task == given.Name {
			res.Cores = c.Cores
		}
	}
	if n := int64(len(res.Cores)); n > 0 && r.host.Node().Capacity.TotalCores > 0 {
		res.CPU = n * res.TotalCPU / int64(r.host.Node().Capacity.TotalCores)
	}
	return res
}

// payload writes what a dispatch brought.
func payload(load *workload.Workload, given *jobwire.Task, dirs driver.Dirs) error {
	if given.DispatchPayload == nil || given.DispatchPayload.File == "" || dirs.Task == "" {
		return nil
	}
	root, err := os.OpenRoot(filepath.Join(dirs.Task, "local"))
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Clean(given.DispatchPayload.File)
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return errkind.E(errkind.Invalid, "dispatch_payload", err)
		}
	}
	if err := root.WriteFile(name, load.Job.Payload, 0o666); err != nil {
		return errkind.E(errkind.Invalid, "dispatch_payload", err)
	}
	return nil
}

// mounts finds the host's folders that a task mounts.
func (r *Runner) mounts(load *workload.Workload, given *jobwire.Task, made *driver.Task) error {
	for _, m := range given.VolumeMounts {
		request := load.Group.Volumes[jobwire.Get(m.Volume)]
		if request == nil {
			return errkind.Errorf(errkind.Invalid, "volume_mount: the group has no volume %q", jobwire.Get(m.Volume))
		}
		volume, ok := r.host.Volumes[request.Source]
		if !ok || request.Type != "host" {
			return errkind.Errorf(errkind.Invalid, "volume %q: this node has no host volume %q", request.Name, request.Source)
		}
		made.Mounts = append(made.Mounts, driver.Mount{Host: volume.Path, Task: jobwire.Get(m.Destination),
			ReadOnly: volume.ReadOnly || request.ReadOnly || jobwire.Get(m.ReadOnly)})
	}
	return nil
}

// settings are those of now.
func (r *Runner) settings(name string) taskrunner.Settings {
	load := r.now()
	given := load.Task(name)
	if given == nil {
		return taskrunner.Settings{}
	}
	s := taskrunner.Settings{KillTimeout: time.Duration(jobwire.Get(given.KillTimeout)), KillSignal: given.KillSignal,
		ShutdownDelay: time.Duration(given.ShutdownDelay)}
	if r.host.MaxKillTimeout > 0 {
		s.KillTimeout = min(s.KillTimeout, r.host.MaxKillTimeout)
	}
	if s.ShutdownDelay == 0 {
		s.ShutdownDelay = time.Duration(jobwire.Get(load.Group.ShutdownDelay))
	}
	policy := cmp.Or(given.RestartPolicy, load.Group.RestartPolicy)
	if policy != nil {
		s.Policy = restartpolicy.Policy{Attempts: jobwire.Get(policy.Attempts),
			Interval: time.Duration(jobwire.Get(policy.Interval)), Delay: time.Duration(jobwire.Get(policy.Delay)),
			Mode: jobwire.Get(policy.Mode)}
	}
	kind := jobwire.Get(load.Job.Type)
	s.Policy.OnSuccess = kind == jobs.Service || kind == jobs.System
	if l := given.Lifecycle; l != nil {
		s.Policy.OnSuccess = l.Sidecar
	}
	return s
}
