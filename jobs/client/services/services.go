// Package services is what an allocation offers to others: services with their checks, as they are to be registered in
// the catalog or as native registrations. Making them is pure; who registers them is the process's affair.
package services

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/taskenv"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
)

// Native is the provider whose registrations the jobs plane keeps.
const Native = "nomad"

// Service is one registration.
type Service struct {
	ID, Name, Namespace, Job string
	Native                   bool
	Task                     string // "" of the group
	Address                  string
	Port                     int
	Tags                     []string
	Meta                     map[string]string
	EnableTagOverride        bool
	Checks                   []Check
	Mesh                     Mesh
}

// Check is one of its checks.
type Check struct {
	ID, Name, Type, Notes string
	Target                string // host:port, or the URL of http
	HTTP                  Request
	TLS                   TLS
	Command               []string // script: inside Task
	Task                  string
	Timing
	IgnoreForRollout bool
	Restart          Restart
}

// Timing is when a check runs and what its results mean.
type Timing struct {
	Interval, Timeout time.Duration
	Status            string // to begin with
	// So many results of one kind make it pass or fail.
	SuccessBefore, FailBefore int
}

// TLS is how a check uses it.
type TLS struct {
	Use, SkipVerify bool
	ServerName      string
}

// Request is what a check of HTTP sends.
type Request struct {
	Method, Body string
	Header       map[string][]string
}

// Restart is when a failing check restarts its task; Limit 0 never.
type Restart struct {
	Limit          int
	Grace          time.Duration
	IgnoreWarnings bool
}

// Make is a service of a group (task nil) or a task.
func Make(load *workload.Workload, task *jobwire.Task, s *jobwire.Service, env *taskenv.Env,
	ports []driver.Port) Service {
	owner := "group-" + load.Alloc.Group
	out := Service{Name: env.Replace(s.Name), Namespace: jobwire.Get(load.Job.Namespace), Job: jobwire.Get(load.Job.ID),
		Native: s.Provider == Native, EnableTagOverride: s.EnableTagOverride, Task: s.TaskName}
	if task != nil {
		owner, out.Task = task.Name, task.Name
	}
	out.Address, out.Port = address(s.PortLabel, s.AddressMode, s.Address, env, ports)
	out.ID = id(load, owner, out.Name, s.PortLabel)
	out.Mesh = mesh(&out, s, env, ports)
	tags, meta := s.Tags, s.Meta
	if load.Rollout.Canary {
		if len(s.CanaryTags) > 0 {
			tags = s.CanaryTags
		}
		if len(s.CanaryMeta) > 0 {
			meta = s.CanaryMeta
		}
	}
	for _, tag := range tags {
		out.Tags = append(out.Tags, env.Replace(tag))
	}
	out.Meta = map[string]string{"external-source": "nomad"}
	for name, value := range meta {
		out.Meta[name] = env.Replace(value)
	}
	for i, c := range s.Checks {
		out.Checks = append(out.Checks, check(&out, s, c, i, env, ports))
	}
	return out
}

// id is that of a registration.
func id(load *workload.Workload, owner, name, port string) string {
	return strings.Join([]string{"_nomad-task", load.ID.String(), owner, name, port}, "-")
}

// address is where a port label leads: to the host, or with the modes alloc and driver into the allocation's network,
// which is the host's where it has none of its own.
func address(label, mode, given string, env *taskenv.Env, ports []driver.Port) (string, int) {
	label = env.Replace(label)
	inside := mode == "alloc" || mode == "driver" && env.Inside.Address != ""
	ip, port := "", 0
	for _, p := range ports {
		if p.Label != label {
			continue
		}
		ip, port = p.HostIP, p.Value
		if inside {
			port = p.Inside()
		}
	}
	if n, err := strconv.Atoi(label); err == nil && port == 0 {
		port = n
	}
	if inside && env.Inside.Address != "" {
		ip = env.Inside.Address
	}
	if ip == "" {
		ip = env.Replace("${attr.unique.network.ip-address}")
	}
	if given != "" {
		ip = env.Replace(given)
	}
	return ip, port
}

func check(of *Service, s *jobwire.Service, c *jobwire.ServiceCheck, n int, env *taskenv.Env,
	ports []driver.Port) Check {
	out := Check{ID: of.ID + "-check-" + strconv.Itoa(n), Name: env.Replace(c.Name), Type: c.Type, Notes: c.Notes,
		Task: c.TaskName, Timing: Timing{Interval: time.Duration(c.Interval), Timeout: time.Duration(c.Timeout),
			Status: c.InitialStatus, SuccessBefore: c.SuccessBeforePassing, FailBefore: c.FailuresBeforeCritical},
		TLS:              TLS{SkipVerify: c.TLSSkipVerify, ServerName: c.TLSServerName},
		IgnoreForRollout: c.OnUpdate == "ignore" || s.OnUpdate == "ignore"}
	if out.Name == "" {
		out.Name = "service: \"" + of.Name + "\" check"
	}
	if out.Task == "" {
		out.Task = of.Task
	}
	ip, port := of.Address, of.Port
	if c.PortLabel != "" {
		ip, port = address(c.PortLabel, c.AddressMode, "", env, ports)
	}
	at := net.JoinHostPort(ip, strconv.Itoa(port))
	switch c.Type {
	case "http":
		u := url.URL{Scheme: c.Protocol, Host: at}
		if u.Scheme == "" {
			u.Scheme = "http"
		}
		target := u.String() + "/" + strings.TrimPrefix(env.Replace(c.Path), "/")
		out.Target, out.TLS.Use = target, u.Scheme == "https"
		out.HTTP = Request{Method: c.Method, Body: env.Replace(c.Body), Header: c.Header}
	case "grpc":
		out.Target, out.TLS.Use = at, c.GRPCUseTLS
		if c.GRPCService != "" {
			out.Target += "/" + c.GRPCService
		}
	case "script":
		out.Command = append([]string{env.Replace(c.Command)}, c.Args...)
		for i := range out.Command {
			out.Command[i] = env.Replace(out.Command[i])
		}
	default:
		out.Target = at
	}
	restart := c.CheckRestart
	if restart == nil {
		restart = s.CheckRestart
	}
	if restart != nil {
		out.Restart = Restart{Limit: restart.Limit, Grace: time.Duration(jobwire.Get(restart.Grace)),
			IgnoreWarnings: restart.IgnoreWarnings}
	}
	return out
}
