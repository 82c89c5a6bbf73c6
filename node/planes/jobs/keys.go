package jobsplane

import (
	"errors"
	"fmt"
	"net"
	"time"

	"corbel.dev/corbel/node/config"
	jobsagentplane "corbel.dev/corbel/node/planes/jobsagent"
)

// Keys are the plane's section of the configuration.
type Keys struct {
	Enabled bool   `key:"enabled" doc:"servers: place and run jobs; on in dev and under corbel server"`
	Port    int    `key:"port" def:"4646" doc:"Nomad's HTTP API; -1 is off"`
	Address string `key:"address" doc:"where that port listens; default 127.0.0.1"`
	Region  string `key:"region" def:"global" doc:"servers: the region that this cluster is, and that requests of other clusters name"`
	Issuer  string `key:"oidc_issuer" doc:"URL that workload identities name as their issuer; empty names none"`
	Workers int    `key:"schedulers" def:"1" doc:"evaluations are decided by so many at once"`
	Keep    KeepKeys
	Beats   HeartbeatKeys
	Agent   jobsagentplane.Keys `key:"agent"`
}

// KeepKeys say how long what is over is kept.
type KeepKeys struct {
	Jobs        time.Duration `key:"keep.jobs" def:"4h" doc:"how long a job that is over is kept"`
	Evaluations time.Duration `key:"keep.evaluations" def:"1h" doc:"the same for evaluations and allocations"`
	Batch       time.Duration `key:"keep.batch_evaluations" def:"24h" doc:"how long evaluations of batch jobs are kept"`
	Deployments time.Duration `key:"keep.deployments" def:"1h" doc:"how long deployments that are over are kept"`
	Nodes       time.Duration `key:"keep.nodes" def:"24h" doc:"how long a node that is down is kept"`
	Count       int           `key:"keep.count" def:"100000" doc:"evaluations that are kept at most, however young"`
}

// HeartbeatKeys say how nodes are watched.
type HeartbeatKeys struct {
	PerSecond int           `key:"heartbeat.per_second" def:"2500" doc:"heartbeats of all nodes in a second, at most"`
	Min       time.Duration `key:"heartbeat.min" def:"4s" doc:"a node beats no more often"`
	Grace     time.Duration `key:"heartbeat.grace" def:"6s" doc:"a node that is so much later is down"`
}

// SetDefaults implements what config.Options.Sections asks for.
func (k *Keys) SetDefaults(style config.Style, dev bool) {
	k.Enabled = style == config.Corbel || dev
	k.Agent.SetDefaults(dev)
}

// ShiftPorts implements what config does for -port-offset.
func (k *Keys) ShiftPorts(by int) {
	if k.Port > 0 {
		k.Port += by
	}
}

// JobsAgent is the keys of this host's agent.
func (k *Keys) JobsAgent() *jobsagentplane.Keys { return &k.Agent }

// keysOf are those of a configuration; one that was loaded without the section has the plane off.
func keysOf(cfg *config.Config) *Keys {
	if k, ok := cfg.Section(Name).(*Keys); ok {
		return k
	}
	return &Keys{}
}

// addr is where the port listens, "" where it is off.
func (k *Keys) addr() string {
	if k.Port < 0 {
		return ""
	}
	host := k.Address
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, fmt.Sprint(k.Port))
}

func check(cfg *config.Config) error {
	k := keysOf(cfg)
	if !k.Enabled || !cfg.Server {
		return nil
	}
	var wrong []error
	say := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	ip := net.ParseIP(k.Address)
	say(k.Port < -1 || k.Port > 65535, "jobs.port: %d is none: 0 to 65535, or -1", k.Port)
	say(k.Address != "" && ip == nil, "jobs.address: %q is no IP address", k.Address)
	say(k.Port >= 0 && ip != nil && !ip.IsLoopback() && !cfg.TLS.HTTPS.Enabled() && !cfg.TLS.Disabled && cfg.Cautious(),
		"jobs.address opens port %d to the network without TLS: set tls.https.cert_file and key_file, or accept plain "+
			"text with "+
			"-allow-plaintext", k.Port)
	say(k.Workers < 1 || k.Workers > 64, "jobs.schedulers: %d: 1 to 64", k.Workers)
	say(k.Keep.Count < 1000, "jobs.keep.count: must be at least 1000")
	for key, d := range map[string]time.Duration{"jobs": k.Keep.Jobs, "evaluations": k.Keep.Evaluations,
		"batch_evaluations": k.Keep.Batch, "deployments": k.Keep.Deployments, "nodes": k.Keep.Nodes} {
		say(d < time.Minute, "jobs.keep.%s: must be at least 1m", key)
	}
	say(k.Beats.PerSecond < 1, "jobs.heartbeat.per_second: must be at least 1")
	say(k.Beats.Min < time.Second, "jobs.heartbeat.min: must be at least 1s")
	say(k.Beats.Grace < time.Second, "jobs.heartbeat.grace: must be at least 1s")
	return errors.Join(wrong...)
}
