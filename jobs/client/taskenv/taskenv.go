// Package taskenv is what a task finds in its environment, and what ${...} means in its job file. It is pure.
package taskenv

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/jobwire"
)

// Source is what the environment is made of.
type Source struct {
	Alloc, Name string // ids: name is job.group[index]
	Index       int
	Region      string
	Node        *jobs.Node
	Job         *jobwire.Job
	Group       *jobwire.TaskGroup
	Task        *jobwire.Task
	Ports       []driver.Port
	Inside      Inside
	Resources   driver.Resources
	Dirs        driver.Dirs // as the task sees them
	Extra       map[string]string
}

// Inside is an allocation within a network of its own; the zero value is one in the host's.
type Inside struct{ Address, Interface string }

// Env is a task's environment.
type Env struct {
	Vars map[string]string
	// Inside is where the allocation is.
	Inside Inside
	node   *jobs.Node
}

// New makes the environment: NOMAD_*, then what templates and tokens give, then the task's own.
func New(s *Source) *Env {
	e := &Env{Vars: map[string]string{}, node: s.Node, Inside: s.Inside}
	e.names(s)
	e.ports(s)
	e.meta(s)
	for name, value := range s.Extra {
		e.Vars[name] = value
	}
	given := map[string]string{}
	for name, value := range s.Task.Env {
		given[name] = e.Replace(value)
	}
	for name, value := range given {
		e.Vars[e.Replace(name)] = value
	}
	return e
}

func (e *Env) names(s *Source) {
	set := func(name, value string) {
		if value != "" {
			e.Vars["NOMAD_"+name] = value
		}
	}
	set("ALLOC_ID", s.Alloc)
	set("SHORT_ALLOC_ID", s.Alloc[:min(8, len(s.Alloc))])
	set("ALLOC_NAME", s.Name)
	set("ALLOC_INDEX", strconv.Itoa(s.Index))
	set("TASK_NAME", s.Task.Name)
	set("GROUP_NAME", jobwire.Get(s.Group.Name))
	set("JOB_ID", jobwire.Get(s.Job.ID))
	set("JOB_NAME", jobwire.Get(s.Job.Name))
	set("JOB_PARENT_ID", jobwire.Get(s.Job.ParentID))
	set("NAMESPACE", jobwire.Get(s.Job.Namespace))
	set("REGION", s.Region)
	set("DC", s.Node.Datacenter)
	set("ALLOC_DIR", s.Dirs.Shared)
	set("TASK_DIR", s.Dirs.Task+"/local")
	set("SECRETS_DIR", s.Dirs.Task+"/secrets")
	set("CPU_LIMIT", strconv.FormatInt(s.Resources.CPU, 10))
	set("MEMORY_LIMIT", strconv.FormatInt(s.Resources.MemoryMB, 10))
	if s.Resources.MemoryMaxMB > 0 {
		set("MEMORY_MAX_LIMIT", strconv.FormatInt(s.Resources.MemoryMaxMB, 10))
	}
	var cores []string
	for _, c := range s.Resources.Cores {
		cores = append(cores, strconv.Itoa(int(c)))
	}
	set("CPU_CORES", strings.Join(cores, ","))
}

// label is how a name stands in a variable's.
func label(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

func (e *Env) ports(s *Source) {
	for _, p := range s.Ports {
		l, inside := label(p.Label), p.Inside()
		e.Vars["NOMAD_IP_"+l] = p.HostIP
		e.Vars["NOMAD_HOST_IP_"+l] = p.HostIP
		e.Vars["NOMAD_PORT_"+l] = strconv.Itoa(inside)
		e.Vars["NOMAD_ALLOC_PORT_"+l] = strconv.Itoa(inside)
		e.Vars["NOMAD_HOST_PORT_"+l] = strconv.Itoa(p.Value)
		e.Vars["NOMAD_ADDR_"+l] = net.JoinHostPort(p.HostIP, strconv.Itoa(p.Value))
		e.Vars["NOMAD_HOST_ADDR_"+l] = e.Vars["NOMAD_ADDR_"+l]
		if s.Inside.Address != "" {
			e.Vars["NOMAD_ALLOC_INTERFACE_"+l] = s.Inside.Interface
			e.Vars["NOMAD_ALLOC_IP_"+l] = s.Inside.Address
			e.Vars["NOMAD_ALLOC_ADDR_"+l] = net.JoinHostPort(s.Inside.Address, strconv.Itoa(inside))
		}
	}
	for _, service := range s.Group.Services {
		if service.Connect == nil || service.Connect.SidecarService == nil || service.Connect.SidecarService.Proxy == nil {
			continue
		}
		for _, u := range service.Connect.SidecarService.Proxy.Upstreams {
			l, ip := label(u.DestinationName), u.LocalBindAddress
			if ip == "" {
				ip = "127.0.0.1"
			}
			port := strconv.Itoa(u.LocalBindPort)
			e.Vars["NOMAD_UPSTREAM_IP_"+l], e.Vars["NOMAD_UPSTREAM_PORT_"+l] = ip, port
			e.Vars["NOMAD_UPSTREAM_ADDR_"+l] = net.JoinHostPort(ip, port)
		}
	}
}

// meta is that of job, group and task; the nearest wins.
func (e *Env) meta(s *Source) {
	for _, m := range []map[string]string{s.Job.Meta, s.Group.Meta, s.Task.Meta} {
		for name, value := range m {
			value = e.Replace(value)
			e.Vars["NOMAD_META_"+label(name)] = value
			e.Vars["NOMAD_META_"+strings.ToUpper(label(name))] = value
		}
	}
}

var reference = regexp.MustCompile(`\$\{\s*([^}]*?)\s*\}`)

// Replace puts values in the place of ${...}. What is not known stays as it is: a shell may mean it.
func (e *Env) Replace(text string) string {
	if !strings.Contains(text, "${") {
		return text
	}
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if value, ok := e.lookup(reference.FindStringSubmatch(match)[1]); ok {
			return value
		}
		return match
	})
}

func (e *Env) lookup(name string) (string, bool) {
	if inner, ok := strings.CutPrefix(name, "env["); ok {
		name = strings.Trim(strings.TrimSuffix(inner, "]"), `"'`)
	}
	name = strings.TrimPrefix(name, "env.")
	if v, ok := e.Vars[name]; ok {
		return v, true
	}
	n := e.node
	switch name {
	case "node.unique.id":
		return n.ID.String(), true
	case "node.unique.name":
		return n.Name, true
	case "node.datacenter":
		return n.Datacenter, true
	case "node.class":
		return n.Class, true
	case "node.pool":
		return n.InPool(), true
	}
	if attr, ok := strings.CutPrefix(name, "attr."); ok {
		v, ok := n.Attributes[attr]
		return v, ok
	}
	if key, ok := strings.CutPrefix(name, "meta."); ok {
		v, ok := n.Meta[key]
		return v, ok
	}
	return "", false
}

// ReplaceAny is Replace for all texts in a driver's config.
func (e *Env) ReplaceAny(v any) any {
	switch v := v.(type) {
	case string:
		return e.Replace(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = e.ReplaceAny(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[e.Replace(key)] = e.ReplaceAny(value)
		}
		return m
	case fmt.Stringer: // json.Number
		return v
	}
	return v
}
