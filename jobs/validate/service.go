package validate

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/jobwire"
)

const minCheckTime = time.Second

// serviceName fits names that DNS can carry, where they are no longer than 63.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)

// services checks those of a group and of its tasks.
func services(s scope, g *jobwire.TaskGroup, labels map[string]bool) {
	seen := map[string]bool{}
	each := func(s scope, list []*jobwire.Service, task string) {
		for _, service := range list {
			at := s.at("service." + service.Name)
			key := service.Name + "\x00" + service.PortLabel + "\x00" + service.Provider
			at.unless(!seen[key], "two services have this name and port")
			seen[key] = true
			one(at, service, g, task)
			if p := service.PortLabel; p != "" && !labels[p] && strings.Trim(p, "0123456789") != "" {
				at.warn("no network of the group has the port %q", p)
			}
		}
	}
	each(s, g.Services, "")
	for _, t := range g.Tasks {
		each(s.at("task."+t.Name), t.Services, t.Name)
	}
}

func one(s scope, service *jobwire.Service, g *jobwire.TaskGroup, task string) {
	if !strings.Contains(service.Name, "${") { // what a node fills in is known there
		s.unless(len(service.Name) <= 63 && serviceName.MatchString(service.Name),
			"%.80q is no name for DNS: letters, digits and -, at most 63", service.Name)
	}
	s.at("provider").oneOf(service.Provider, "consul", "nomad")
	s.at("address_mode").oneOf(service.AddressMode, "auto", "host", "driver", "alloc")
	s.at("on_update").oneOf(service.OnUpdate, "require_healthy", "ignore_warnings", "ignore")
	s.at("address").unless(service.Address == "" || service.AddressMode == "auto", "it wants address_mode auto")
	if w := service.Weights; w != nil {
		s.at("weights").unless(w.Passing >= 1 && w.Warning >= 0, "passing is at least 1, warning at least 0")
	}
	names := map[string]bool{}
	for i, c := range service.Checks {
		at := s.at(fmt.Sprintf("check[%d]", i))
		at.at("name").unless(c.Name == "" || !names[c.Name], "two checks are called %q", c.Name)
		names[c.Name] = true
		check(at, c, service, g, task)
	}
	if service.Connect != nil {
		s.unless(service.Provider == "consul", "connect is for services of the provider consul")
		connect(s.at("connect"), service, g, task)
	}
}

func check(s scope, c *jobwire.ServiceCheck, service *jobwire.Service, g *jobwire.TaskGroup, task string) {
	s.at("type").oneOf(c.Type, "http", "tcp", "grpc", "script")
	s.unless(service.Provider != "nomad" || c.Type == "http" || c.Type == "tcp",
		"the provider nomad has http and tcp checks, not %s", c.Type)
	s.at("interval").unless(time.Duration(c.Interval) >= minCheckTime, "%v: at least %v", time.Duration(c.Interval),
		minCheckTime)
	s.at("timeout").unless(time.Duration(c.Timeout) >= minCheckTime, "%v: at least %v", time.Duration(c.Timeout),
		minCheckTime)
	switch c.Type {
	case "http":
		u, err := url.Parse(c.Path)
		s.at("path").unless(c.Path != "" && err == nil && !u.IsAbs() && u.Host == "",
			"%.80q is no path such as /health", c.Path)
		s.at("method").oneOf(strings.ToUpper(c.Method), "", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS",
			"CONNECT", "TRACE")
		s.at("protocol").oneOf(c.Protocol, "", "http", "https")
	case "script":
		s.at("command").unless(c.Command != "", "it is missing")
		s.at("task").unless(task != "" || c.TaskName != "" || service.TaskName != "", "a group's script runs in a task")
	}
	s.at("task").unless(c.TaskName == "" || hasTask(g, c.TaskName), "the group has no task %q", c.TaskName)
	s.at("initial_status").oneOf(c.InitialStatus, "", "passing", "warning", "critical")
	s.at("address_mode").oneOf(c.AddressMode, "", "host", "driver", "alloc")
	s.at("on_update").oneOf(c.OnUpdate, "", "require_healthy", "ignore_warnings", "ignore")
	s.unless(c.Type != "script" || c.SuccessBeforePassing == 0 && c.FailuresBeforeCritical == 0 ||
		service.Provider != "nomad",
		"a script's results count singly")
	if r := c.CheckRestart; r != nil {
		s.at("check_restart.limit").unless(r.Limit >= 0, "%d is below 0", r.Limit)
		s.at("check_restart.grace").unless(span(r.Grace) >= 0, "it is below 0")
	}
	s.unless(!c.Expose || c.Type == "http" || c.Type == "grpc", "a %s check cannot be exposed", c.Type)
}

func hasTask(g *jobwire.TaskGroup, name string) bool {
	for _, t := range g.Tasks {
		if t.Name == name {
			return true
		}
	}
	return false
}

func connect(s scope, service *jobwire.Service, g *jobwire.TaskGroup, task string) {
	c, ways := service.Connect, 0
	for _, has := range []bool{c.Native, c.SidecarService != nil, c.Gateway != nil} {
		if has {
			ways++
		}
	}
	s.unless(ways == 1, "it has one of native, sidecar_service and gateway")
	s.unless(c.SidecarTask == nil || c.SidecarService != nil || c.Gateway != nil, "sidecar_task is for a sidecar_service")
	s.unless(!c.Native || task != "" || service.TaskName != "", "a group's native service names its task")
	s.unless(!c.Native || service.TaskName == "" || hasTask(g, service.TaskName), "the group has no task %q",
		service.TaskName)
	s.unless(task == "" || c.Native, "sidecars and gateways are services of the group")
	mode := ""
	if len(g.Networks) > 0 {
		mode = g.Networks[0].Mode
	}
	if c.SidecarService != nil {
		s.at("sidecar_service").unless(mode != "none", "the group's network must not have mode none")
		if p := c.SidecarService.Proxy; p != nil {
			upstreams(s.at("sidecar_service.proxy"), p)
		}
	}
	if c.Gateway != nil {
		s.at("gateway").unless(false, "jobs do not run gateways yet: run `corbel connect envoy --gateway`")
		s.at("gateway").unless(mode == "bridge" || mode == "host" || strings.HasPrefix(mode, "cni/"),
			"the group's network must have mode bridge or host, not %q", mode)
	}
}

func upstreams(s scope, p *jobwire.Proxy) {
	seen := map[string]bool{}
	for i, u := range p.Upstreams {
		at := s.at(fmt.Sprintf("upstreams[%d]", i))
		at.at("destination_name").unless(u.DestinationName != "", "it is missing")
		at.at("local_bind_port").unless(u.LocalBindPort >= 0 && u.LocalBindPort < 1<<16, "%d is no port", u.LocalBindPort)
		at.unless(u.LocalBindPort > 0 || u.LocalBindSocketPath != "" || p.TransparentProxy != nil,
			"it has local_bind_port or local_bind_socket_path")
		address := u.LocalBindAddress
		if address == "" {
			address = "127.0.0.1"
		}
		place := fmt.Sprint(address, ":", u.LocalBindPort)
		at.unless(u.LocalBindPort == 0 || !seen[place], "two upstreams are at %s", place)
		seen[place] = true
	}
}
