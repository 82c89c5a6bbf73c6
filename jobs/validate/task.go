package validate

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
)

const (
	minMemoryMB = 10
	minCPU      = 1
)

func tasks(s scope, g *jobwire.TaskGroup, j *jobwire.Job, labels map[string]bool) {
	names, leaders, mains := make([]string, len(g.Tasks)), 0, 0
	for i, t := range g.Tasks {
		names[i] = t.Name
		if t.Leader {
			leaders++
		}
		if t.Lifecycle == nil {
			mains++
		}
	}
	s.unless(len(names) > 0, "the group has no tasks")
	s.unless(len(names) == 0 || mains > 0, "each task has a lifecycle: one at least must be a main task")
	s.unique("task", names)
	s.unless(leaders <= 1, "%d tasks are leaders: at most one", leaders)
	for _, t := range g.Tasks {
		task(s.at("task."+t.Name), t, g, j)
		if t.Resources != nil && len(t.Resources.Networks) > 0 {
			at := s.at("task." + t.Name + ".resources")
			at.unless(len(g.Networks) == 0, "the group has a network: ports are declared there")
			at.warn("network in resources is deprecated: use the group's")
			for label := range networks(at, t.Resources.Networks) {
				labels[label] = true
			}
		}
	}
}

func task(s scope, t *jobwire.Task, g *jobwire.TaskGroup, j *jobwire.Job) {
	s.unless(!strings.ContainsAny(t.Name, "/\\\x00"), "the name has slashes or NUL: it is a folder's")
	s.at("driver").unless(t.Driver != "", "it is missing")
	s.at("kill_timeout").unless(span(t.KillTimeout) >= 0, "it is below 0")
	s.at("shutdown_delay").unless(t.ShutdownDelay >= 0, "it is below 0")
	rules(s, t.Rules, nil, get(j.Type))
	if r := t.RestartPolicy; r != nil {
		restart(s.at("restart"), r)
	}
	if t.Resources != nil {
		resources(s.at("resources"), t.Resources)
	}
	if l := t.LogConfig; l != nil && !get(l.Disabled) {
		s.at("logs.max_files").unless(get(l.MaxFiles) >= 1, "%d: at least 1", get(l.MaxFiles))
		s.at("logs.max_file_size").unless(get(l.MaxFileSizeMB) >= 1, "%d MB: at least 1", get(l.MaxFileSizeMB))
	}
	if l := t.Lifecycle; l != nil {
		s.at("lifecycle.hook").oneOf(l.Hook, "prestart", "poststart", "poststop")
		s.unless(!t.Leader || l.Sidecar, "a leader runs as long as the group: it has no lifecycle")
	}
	if d := t.DispatchPayload; d != nil {
		s.at("dispatch_payload").unless(j.ParameterizedJob != nil, "the job is not parameterized")
		inside(s.at("dispatch_payload.file"), d.File, "local")
	}
	destinations := map[string]bool{}
	for i, template := range t.Templates {
		at := s.at(fmt.Sprintf("template[%d]", i))
		tmpl(at, template)
		dest := get(template.DestPath)
		at.at("destination").unless(dest == "" || !destinations[path.Clean(dest)], "two templates are %q", dest)
		destinations[path.Clean(dest)] = true
	}
	for i, a := range t.Artifacts {
		at := s.at(fmt.Sprintf("artifact[%d]", i))
		at.at("source").unless(get(a.GetterSource) != "", "it is missing")
		at.at("mode").oneOf(get(a.GetterMode), "any", "file", "dir")
		inside(at.at("destination"), get(a.RelativeDest), "")
	}
	for i, m := range t.VolumeMounts {
		at := s.at(fmt.Sprintf("volume_mount[%d]", i))
		at.at("volume").unless(g.Volumes[get(m.Volume)] != nil, "the group has no volume %q", get(m.Volume))
		at.at("destination").unless(get(m.Destination) != "", "it is missing")
		at.at("propagation_mode").oneOf(get(m.PropagationMode), "", "private", "host-to-task", "bidirectional")
	}
	rights(s, t)
	kind(s.at("kind"), t, g)
}

// kind checks that a task that says it is a proxy is that of a service.
func kind(s scope, t *jobwire.Task, g *jobwire.TaskGroup) {
	name, of, ok := strings.Cut(t.Kind, ":")
	if !ok || !strings.HasPrefix(name, "connect-") {
		return
	}
	s.unless(slices.ContainsFunc(g.Services, func(service *jobwire.Service) bool {
		return service.Name == of && service.Connect != nil
	}), "%q: the group has no service %q with connect", t.Kind, of)
}

func resources(s scope, r *jobwire.Resources) {
	cores, cpu := get(r.Cores), get(r.CPU)
	s.unless(cores == 0 || cpu == 0, "use cpu or cores, not both")
	s.at("cores").unless(cores >= 0, "%d is below 0", cores)
	s.at("cpu").unless(cores > 0 || cpu >= minCPU, "%d MHz: at least %d", cpu, minCPU)
	s.at("memory").unless(get(r.MemoryMB) >= minMemoryMB, "%d MB: at least %d", get(r.MemoryMB), minMemoryMB)
	if r.MemoryMaxMB != nil {
		s.at("memory_max").unless(*r.MemoryMaxMB >= get(r.MemoryMB) || *r.MemoryMaxMB == -1,
			"%d MB is below the memory of %d MB", *r.MemoryMaxMB, get(r.MemoryMB))
	}
	s.at("disk").unless(get(r.DiskMB) == 0, "it is the group's: use ephemeral_disk")
	for i, d := range r.Devices {
		at := s.at(fmt.Sprintf("device[%d]", i))
		at.unless(d.Name != "", "the name is missing")
		at.unless(strings.Count(d.Name, "/") <= 2, "%q: want type, vendor/type or vendor/type/name", d.Name)
		at.at("count").unless(get(d.Count) >= 1 && get(d.Count) <= 1<<16, "%d is not from 1 to 65536", get(d.Count))
		rules(at, d.Rules, nil, jobs.Service)
	}
}

func tmpl(s scope, t *jobwire.Template) {
	s.unless((get(t.SourcePath) == "") != (get(t.EmbeddedTmpl) == ""), "a template has source or data: one of them")
	s.at("destination").unless(get(t.DestPath) != "", "it is missing")
	inside(s.at("destination"), get(t.DestPath), "")
	if !strings.HasPrefix(get(t.SourcePath), "/") { // an absolute one is the client's to allow
		inside(s.at("source"), get(t.SourcePath), "")
	}
	change(s, get(t.ChangeMode), get(t.ChangeSignal), "restart", "signal", "script", "noop")
	if get(t.ChangeMode) == "script" {
		s.at("change_script").unless(t.ChangeScript != nil && get(t.ChangeScript.Command) != "", "it has no command")
	}
	s.unless(!get(t.Envvars) || get(t.ChangeMode) != "signal" || get(t.ChangeSignal) != "",
		"a task learns of new environment variables by a restart alone")
	s.at("splay").unless(span(t.Splay) >= 0, "it is below 0")
	if perms := get(t.Perms); perms != "" {
		_, err := strconv.ParseUint(perms, 8, 12)
		s.at("perms").unless(err == nil, "%q is no octal mode such as 0644", perms)
	}
	if w := t.Wait; w != nil {
		s.at("wait").unless(span(w.Min) >= 0 && (w.Max == nil || span(w.Min) <= span(w.Max)), "min %v is above max %v",
			span(w.Min), span(w.Max))
	}
}

func change(s scope, mode, signal string, modes ...string) {
	s.at("change_mode").oneOf(mode, modes...)
	s.at("change_signal").unless(mode != "signal" || signal != "", "it is missing")
}

func rights(s scope, t *jobwire.Task) {
	if v := t.Vault; v != nil {
		change(s.at("vault"), get(v.ChangeMode), get(v.ChangeSignal), "restart", "signal", "noop")
		s.at("vault.policies").unless(!slices.Contains(v.Policies, "root"), "root is not given to tasks")
	}
	var names []string
	for i, w := range t.Identities {
		at := s.at(fmt.Sprintf("identity[%d]", i))
		names = append(names, w.Name)
		at.at("name").unless(strings.Trim(w.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" &&
			len(w.Name) <= 128, "%.40q: use at most 128 letters, digits, _ and -", w.Name)
		change(at, w.ChangeMode, w.ChangeSignal, "", "restart", "signal", "noop")
		at.at("ttl").unless(w.TTL >= 0, "it is below 0")
		inside(at.at("filepath"), w.Filepath, "")
	}
	s.unique("identity", names)
	for i, a := range t.Actions {
		s.at(fmt.Sprintf("action[%d]", i)).unless(a.Name != "" && a.Command != "", "it has a name and a command")
	}
}

// inside checks that a path stays in the allocation's folder; base is the folder below the task's that it starts from.
// What ${...} stands for is known to the client alone, which checks again.
func inside(s scope, p, base string) {
	s.unless(!strings.Contains(p, "\x00"), "it has NUL")
	// alloc/ and the tasks are beside each other: a task may use ../alloc.
	clean := path.Clean(path.Join("task", base, strings.ReplaceAll(p, "\\", "/")))
	s.unless(clean != ".." && !strings.HasPrefix(clean, "../"), "%.80q leads out of the allocation", p)
}
