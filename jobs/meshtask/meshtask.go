// Package meshtask adds to a job what the connect blocks of its services ask for: the tasks that run Envoy beside them,
// and the ports at which the mesh reaches these. It is pure.
//
// What always holds: injecting twice is injecting once. A task that is a service's proxy already is made anew, in its
// place; what users want to be different they say in sidecar_task.
package meshtask

import (
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/jobwire"
)

const (
	// Kind begins the kind of a task that is the proxy of the service which follows.
	Kind = "connect-proxy:"
	// prefix begins its name, and the label of its port.
	prefix = "connect-proxy-"
	// Bootstrap is the file of Envoy's first configuration, in the folder of the task's secrets.
	Bootstrap = "envoy_bootstrap.json"
)

// The pairs of a node's meta that say how its proxies run.
const (
	MetaEnvoy       = "connect.envoy_binary"
	MetaImage       = "connect.sidecar_image"
	MetaLogLevel    = "connect.log_level"
	MetaConcurrency = "connect.proxy_concurrency"
)

// Inject changes a canonical job. It is to be made canonical again.
func Inject(j *jobwire.Job) {
	for _, g := range j.TaskGroups {
		if g == nil {
			continue
		}
		for _, s := range g.Services {
			if s != nil && s.Connect != nil && s.Connect.SidecarService != nil {
				inject(g, s)
			}
		}
	}
}

// PortLabel is the label of the port at which the mesh reaches the proxy of a service.
func PortLabel(s *jobwire.Service) string {
	if port := s.Connect.SidecarService.Port; port != "" {
		return port
	}
	return prefix + s.Name
}

// ServiceOf is the service whose proxy a task is, or nil.
func ServiceOf(g *jobwire.TaskGroup, t *jobwire.Task) *jobwire.Service {
	name, ok := strings.CutPrefix(t.Kind, Kind)
	if !ok {
		return nil
	}
	for _, s := range g.Services {
		if s.Name == name && s.Connect != nil && s.Connect.SidecarService != nil {
			return s
		}
	}
	return nil
}

func inject(g *jobwire.TaskGroup, s *jobwire.Service) {
	proxies := func(t *jobwire.Task) bool { return t != nil && t.Kind == Kind+s.Name }
	made := task(g, s)
	if at := slices.IndexFunc(g.Tasks, proxies); at >= 0 {
		g.Tasks[at] = made
	} else {
		g.Tasks = append(g.Tasks, made)
	}
	if s.Connect.SidecarService.Port != "" {
		return // one of the group's own
	}
	if len(g.Networks) == 0 {
		g.Networks = []*jobwire.NetworkResource{{Mode: "host"}}
	}
	n := g.Networks[0]
	label := PortLabel(s)
	if n != nil && !slices.ContainsFunc(n.DynamicPorts, func(p jobwire.Port) bool { return p.Label == label }) {
		n.DynamicPorts = append(n.DynamicPorts, jobwire.Port{Label: label, To: -1})
	}
}

// driver runs the proxy like what it stands beside: in a container where the group has one, else as a process.
func driver(g *jobwire.TaskGroup) string {
	has := map[string]bool{}
	for _, t := range g.Tasks {
		if t != nil && !strings.HasPrefix(t.Kind, Kind) {
			has[t.Driver] = true
		}
	}
	for _, name := range []string{"docker", "podman", "exec", "raw_exec", "mock_driver"} {
		if has[name] {
			return name
		}
	}
	if has["java"] { // isolated like exec
		return "exec"
	}
	return "docker"
}

// task is the proxy's, with what sidecar_task changes.
func task(g *jobwire.TaskGroup, s *jobwire.Service) *jobwire.Task {
	t := &jobwire.Task{Name: prefix + s.Name, Driver: driver(g), Kind: Kind + s.Name,
		Resources: &jobwire.Resources{CPU: new(250), MemoryMB: new(128)},
		TaskLife: jobwire.TaskLife{Lifecycle: &jobwire.TaskLifecycle{Hook: "prestart", Sidecar: true},
			ShutdownDelay: jobwire.Duration(5 * time.Second)},
		TaskFiles: jobwire.TaskFiles{LogConfig: &jobwire.LogConfig{MaxFiles: new(2), MaxFileSizeMB: new(2)}}}
	change := s.Connect.SidecarTask
	if change != nil {
		if change.Name != "" {
			t.Name = change.Name
		}
		if change.Driver != "" {
			t.Driver = change.Driver
		}
	}
	apart := len(g.Networks) > 0 && g.Networks[0] != nil && g.Networks[0].Mode != "" && g.Networks[0].Mode != "host"
	t.Config = config(t.Driver, apart)
	if change != nil {
		override(t, change)
	}
	return t
}

// config starts Envoy by a driver. apart is in the network of the group, not in the host's.
func config(driver string, apart bool) map[string]any {
	args := []any{"-c", "${NOMAD_SECRETS_DIR}/" + Bootstrap, "-l", "${meta." + MetaLogLevel + "}", "--concurrency",
		"${meta." + MetaConcurrency + "}", "--disable-hot-restart"}
	switch driver {
	case "docker", "podman":
		c := map[string]any{"image": "${meta." + MetaImage + "}", "args": args}
		if !apart {
			c["network_mode"] = "host"
		}
		return c
	case "mock_driver":
		return map[string]any{"run_for": "87600h"}
	}
	return map[string]any{"command": "${meta." + MetaEnvoy + "}", "args": args}
}

// override lays sidecar_task over the task. A config of it replaces the whole one.
func override(t *jobwire.Task, c *jobwire.SidecarTask) {
	if c.User != "" {
		t.User = c.User
	}
	if len(c.Config) > 0 {
		t.Config = maps.Clone(c.Config)
	}
	if len(c.Env) > 0 {
		t.Env = maps.Clone(c.Env)
	}
	if len(c.Meta) > 0 {
		t.Meta = maps.Clone(c.Meta)
	}
	if r := c.Resources; r != nil {
		changed := *r
		t.Resources = &changed
	}
	if c.KillTimeout != nil {
		t.KillTimeout = new(*c.KillTimeout)
	}
	if c.LogConfig != nil {
		t.LogConfig = new(*c.LogConfig)
	}
	if c.ShutdownDelay != nil && *c.ShutdownDelay > 0 {
		t.ShutdownDelay = *c.ShutdownDelay
	}
	if c.KillSignal != "" {
		t.KillSignal = c.KillSignal
	}
	t.VolumeMounts = append(t.VolumeMounts, c.VolumeMounts...)
}
