//go:build linux

package execdriver

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/rawexec"
	"corbel.dev/corbel/jobs/client/supervisor"
	"corbel.dev/corbel/jobs/client/taskcgroup"
	"corbel.dev/corbel/kit/errkind"
)

// The drivers' names in job files.
const (
	Name = "exec"
	Java = "java"
)

// defaultUser is who tasks are when their job says nothing.
const defaultUser = "nobody"

// visible are the folders of the host that each task sees and cannot change.
var visible = []string{"/bin", "/etc", "/lib", "/lib32", "/lib64", "/run/resolvconf", "/run/systemd/resolve", "/sbin",
	"/usr"}

// allowed are the capabilities that a job may ask for, and has with no word of it.
var allowed = []string{"audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service",
	"setfcap", "setgid", "setpcap", "setuid", "sys_chroot"}

// Driver implements driver.Driver.
type Driver struct {
	Enabled     bool
	Java        bool     // it is the java driver
	Command     []string // that starts a supervisor
	DeniedUsers []string

	machine virtualMachine
}

// config is what a task says.
type config struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
	PIDMode string   `json:"pid_mode"`
	IPCMode string   `json:"ipc_mode"`
	CapAdd  []string `json:"cap_add"`
	CapDrop []string `json:"cap_drop"`
	// Of java.
	Class      string   `json:"class"`
	ClassPath  string   `json:"class_path"`
	JarPath    string   `json:"jar_path"`
	JVMOptions []string `json:"jvm_options"`
}

// Fingerprint implements driver.Driver.
func (d *Driver) Fingerprint(ctx context.Context) driver.Fingerprint {
	name := Name
	if d.Java {
		name = Java
	}
	switch {
	case !d.Enabled:
		return driver.Fingerprint{Text: "disabled in the agent's configuration"}
	case os.Getuid() != 0:
		return driver.Fingerprint{Text: "Driver must run as root"}
	case taskcgroup.Version(taskcgroup.Root) == 0:
		return driver.Fingerprint{Text: "no control groups that the agent may write"}
	}
	f := driver.Fingerprint{Detected: true, Healthy: true, Text: "Healthy",
		Attributes: map[string]string{"driver." + name: "1"}}
	if d.Java {
		path, err := exec.LookPath("java")
		if err != nil {
			return driver.Fingerprint{}
		}
		maps.Copy(f.Attributes, d.machine.look(ctx, path))
	}
	return f
}

// Inside are a task's folders as it sees them.
func (d *Driver) Inside(driver.Dirs) driver.Dirs { return driver.Dirs{Task: "", Shared: "/alloc"} }

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, t *driver.Task) (driver.Running, error) {
	var c config
	if err := driver.Decode(t.Config, &c); err != nil {
		return nil, err
	}
	if d.Java {
		if err := c.java(); err != nil {
			return nil, err
		}
	}
	user := t.User
	if user == "" {
		user = defaultUser
	}
	if slices.Contains(d.DeniedUsers, user) {
		return nil, errkind.Errorf(errkind.Denied, "user %q may not run tasks on this node", user)
	}
	caps, err := c.caps()
	if err != nil {
		return nil, err
	}
	group, err := taskcgroup.Make(taskcgroup.Root, groupName(t), &t.Resources)
	if err != nil {
		return nil, err
	}
	iso := &supervisor.Isolation{Root: t.Dirs.Task, Joins: group.Joins(), HostPID: c.PIDMode == "host",
		HostIPC: c.IPCMode == "host", Caps: caps}
	for _, dir := range visible {
		iso.Mounts = append(iso.Mounts, supervisor.Mount{Host: dir, Inside: dir, ReadOnly: true, Optional: true})
	}
	iso.Mounts = append(iso.Mounts, supervisor.Mount{Host: t.Dirs.Shared, Inside: "/alloc"})
	for _, m := range t.Mounts {
		iso.Mounts = append(iso.Mounts, supervisor.Mount{Host: m.Host, Inside: m.Task, ReadOnly: m.ReadOnly})
	}
	env := map[string]string{"HOME": "/", "TMPDIR": "/tmp", "USER": user,
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for name, value := range t.Env {
		env[name] = value
	}
	spec := &supervisor.Spec{Command: c.Command, Args: c.Args, Env: environ(env), Dir: "/", User: user,
		Isolate: iso, Network: rawexec.NetworkOf(&t.Network, true)}
	if !t.NoLogs {
		spec.Logs = supervisor.Logs{Dir: t.Dirs.Logs, Task: t.Name, Limits: t.Logs}
	}
	r, err := rawexec.Supervise(ctx, d.Command, t, spec)
	if err != nil {
		_ = group.Remove()
		return nil, err
	}
	return &running{Running: r, group: group, mhz: t.Resources.TotalCPU}, nil
}

// Recover implements driver.Driver.
func (d *Driver) Recover(_ context.Context, t *driver.Task, state []byte) (driver.Running, error) {
	r, err := rawexec.Resume(t, state)
	if err != nil {
		return nil, err
	}
	group := &taskcgroup.Group{Root: taskcgroup.Root, Name: groupName(t), V2: taskcgroup.Version(taskcgroup.Root) == 2}
	return &running{Running: r, group: group, mhz: t.Resources.TotalCPU}, nil
}

func groupName(t *driver.Task) string { return t.Alloc + "." + t.Name }

func environ(env map[string]string) (list []string) {
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// caps are what the task keeps.
func (c *config) caps() ([]string, error) {
	keep := slices.Clone(allowed)
	norm := func(name string) string { return strings.TrimPrefix(strings.ToLower(name), "cap_") }
	for _, name := range c.CapDrop {
		if name = norm(name); name == "all" {
			keep = nil
		}
		keep = slices.DeleteFunc(keep, func(k string) bool { return k == name })
	}
	for _, name := range c.CapAdd {
		if name = norm(name); !slices.Contains(allowed, name) {
			return nil, errkind.Errorf(errkind.Denied, "cap_add: %q is not allowed on this node", name)
		}
		if !slices.Contains(keep, name) {
			keep = append(keep, name)
		}
	}
	return keep, nil
}

// java makes the command line of a Java program.
func (c *config) java() error {
	if c.Class == "" && c.JarPath == "" {
		return errkind.New(errkind.Invalid, "config: java needs class or jar_path")
	}
	args := slices.Clone(c.JVMOptions)
	if c.ClassPath != "" {
		args = append(args, "-cp", c.ClassPath)
	}
	if c.JarPath != "" {
		args = append(args, "-jar", c.JarPath)
	}
	if c.Class != "" {
		args = append(args, c.Class)
	}
	c.Command, c.Args = "java", append(args, c.Args...)
	return nil
}

// running is a task in its control group.
type running struct {
	*rawexec.Running
	group *taskcgroup.Group
	mhz   int64

	mu   sync.Mutex // guards what follows
	last time.Duration
	at   time.Time
}

// Wait implements driver.Running.
func (r *running) Wait(ctx context.Context) (driver.Exit, error) {
	e, err := r.Running.Wait(ctx)
	e.OOM = err == nil && !e.OK() && r.group.OOMKilled()
	return e, err
}

// Usage implements driver.Running, by the control group: it has all of the task's processes.
func (r *running) Usage() (driver.Usage, error) {
	memory, cpu, ok := r.group.Usage()
	if !ok {
		return r.Running.Usage()
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	u := driver.Usage{MemoryBytes: memory, At: now}
	if span := now.Sub(r.at); !r.at.IsZero() && span > 0 {
		u.CPUPercent = 100 * float64(cpu-r.last) / float64(span)
		u.UserPercent = u.CPUPercent
		u.CPUTicks = u.CPUPercent / 100 * float64(r.mhz) / float64(supervisor.CPUs())
	}
	r.last, r.at = cpu, now
	return u, nil
}

// Remove implements driver.Running.
func (r *running) Remove() error {
	err := r.group.Remove()
	if e := r.Running.Remove(); err == nil {
		err = e
	}
	return err
}
