//go:build unix

package rawexec

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/supervisor"
	"corbel.dev/corbel/kit/errkind"
)

// Name is the driver's in job files.
const Name = "raw_exec"

// Driver implements driver.Driver.
type Driver struct {
	Enabled bool
	Command []string // that starts a supervisor
	// DeniedUsers may not be named by tasks.
	DeniedUsers []string
}

// config is what a task says.
type config struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
	WorkDir string   `json:"work_dir"`
	// CgroupV1 and the others are accepted for job files that have them: the process stays in the agent's.
	CgroupV1 any `json:"cgroup_v1_override"`
	CgroupV2 any `json:"cgroup_v2_override"`
	OOMScore int `json:"oom_score_adj"`
}

// Fingerprint implements driver.Driver.
func (d *Driver) Fingerprint(context.Context) driver.Fingerprint {
	if !d.Enabled {
		return driver.Fingerprint{Text: "disabled: set raw_exec = true in the agent's jobs block"}
	}
	return driver.Fingerprint{Detected: true, Healthy: true, Text: "Healthy",
		Attributes: map[string]string{"driver.raw_exec": "1"}}
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, t *driver.Task) (driver.Running, error) {
	if !d.Enabled {
		return nil, errkind.New(errkind.Denied, "raw_exec is disabled on this node")
	}
	if slices.Contains(d.DeniedUsers, t.User) {
		return nil, errkind.Errorf(errkind.Denied, "user %q may not run tasks on this node", t.User)
	}
	var c config
	if err := driver.Decode(t.Config, &c); err != nil {
		return nil, err
	}
	dir := t.Dirs.Task
	if c.WorkDir != "" {
		if dir = c.WorkDir; !filepath.IsAbs(dir) {
			return nil, errkind.Errorf(errkind.Invalid, "work_dir: %q is not absolute", dir)
		}
	}
	spec := &supervisor.Spec{Command: c.Command, Args: c.Args, Env: Environ(t.Env), Dir: dir, User: t.User,
		Network: NetworkOf(&t.Network, false)}
	if !t.NoLogs {
		spec.Logs = supervisor.Logs{Dir: t.Dirs.Logs, Task: t.Name, Limits: t.Logs}
	}
	return Supervise(ctx, d.Command, t, spec)
}

// Recover implements driver.Driver.
func (d *Driver) Recover(_ context.Context, t *driver.Task, state []byte) (driver.Running, error) {
	return Resume(t, state)
}

// Environ is a task's environment beside what every process of the host needs.
func Environ(env map[string]string) (list []string) {
	for _, name := range []string{"PATH", "HOME", "LANG", "USER", "TMPDIR", "TZ"} {
		if value, ok := os.LookupEnv(name); ok && env[name] == "" {
			list = append(list, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// NetworkOf is what a process joins, or nil. One that is not isolated sees the host's files, and of the network's only
// what its job asked for.
func NetworkOf(n *driver.Network, isolated bool) *supervisor.Network {
	if n.Path == "" {
		return nil
	}
	out := &supervisor.Network{Path: n.Path, Hostname: n.Hostname}
	if n.Hosts != "" && (isolated || n.Hostname != "") {
		out.Files = append(out.Files, supervisor.Mount{Host: n.Hosts, Inside: "/etc/hosts"})
	}
	if n.Resolv != "" && (isolated || n.DNS) {
		out.Files = append(out.Files, supervisor.Mount{Host: n.Resolv, Inside: "/etc/resolv.conf"})
	}
	return out
}

// state is what a task is found by.
type state struct{ Dir string }

// Supervise starts spec for t.
func Supervise(ctx context.Context, command []string, t *driver.Task, spec *supervisor.Spec) (*Running, error) {
	if err := os.MkdirAll(t.Dirs.Private, 0o700); err != nil {
		return nil, err
	}
	p, err := supervisor.Start(ctx, command, t.Dirs.Private, spec)
	if err != nil {
		return nil, err
	}
	return running(p, t.Dirs.Private, t, spec), nil
}

// Resume finds a task again.
func Resume(t *driver.Task, text []byte) (*Running, error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, errkind.E(errkind.NotFound, "state of the task", err)
	}
	p, err := supervisor.Open(s.Dir)
	if err != nil {
		return nil, err
	}
	spec, err := supervisor.ReadSpec(s.Dir)
	if err != nil {
		return nil, err
	}
	return running(p, s.Dir, t, spec), nil
}

func running(p *supervisor.Process, dir string, t *driver.Task, spec *supervisor.Spec) *Running {
	return &Running{Process: p, dir: dir, mhz: t.Resources.TotalCPU, where: supervisor.Where{Dir: spec.Dir,
		Env: spec.Env, User: spec.User, Inside: spec.Isolate != nil, Network: spec.Network}}
}
