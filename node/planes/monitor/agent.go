package monitorplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/monitor/agent"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/node/agentconf"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// hostAgent is the plane's agent of this host.
type hostAgent struct {
	plane.Idle
	*agent.Agent
	temp string // the folder of assets, where it is to go with the process
}

// AgentKind is the plane's agent of a host as a process lists it.
func AgentKind() plane.Kind { return plane.Kind{Name: "monitor agent", Open: openHostAgent} }

// openHostAgent makes the agent of this host. Its entity has the node's name, so that the catalog and the plane mean
// one thing by it.
func openHostAgent(d *plane.Doors) (plane.Plane, error) {
	cfg := &d.Cfg.Monitor.Agent
	if !cfg.Enabled {
		return nil, nil
	}
	for _, u := range cfg.Backends {
		if err := agent.CheckURL(u); err != nil {
			return nil, fmt.Errorf("monitor.agent.backend_urls: %w", err)
		}
	}
	allow, err := agentconf.AllowList(cfg.AllowList)
	if err != nil {
		return nil, fmt.Errorf("monitor.agent.allow_list: %w", err)
	}
	secure, err := agentconf.ClientTLS(d.Cfg.TLS.Monitor.CAFile, cfg.CertFile, cfg.KeyFile, false)
	if err != nil {
		return nil, fmt.Errorf("tls.monitor, monitor.agent: %w", err)
	}
	c := agent.Config{
		Entity: agent.Entity{Name: d.Cfg.Node.Name, Namespace: cfg.Namespace, Subscriptions: cfg.Subscriptions,
			Labels: cfg.Labels, Annotations: cfg.Annotations, Redact: cfg.Redact, Managed: cfg.Managed,
			Deregister: cfg.Deregister, Deregistration: cfg.Deregistration},
		Backends: func() []string { return backends(d) }, User: cfg.User, Password: cfg.Password, TLS: secure,
		ByCertificate: cfg.CertFile != "",
		Keepalive: agent.Keepalive{Interval: uint32(cfg.Interval), Warning: uint32(cfg.Warning),
			Critical: uint32(cfg.Critical), Handlers: cfg.Handlers},
		API: cfg.API, Sockets: cfg.Sockets, Statsd: agent.Statsd{Address: cfg.Statsd, Handlers: cfg.StatsdHandlers},
		MetricsHandler: prometheusText(d.Metrics),
		Allow:          allow, DisableAssets: cfg.DisableAssets, Version: version.SensuContract, FS: d.FS,
		CacheDir: base.InDir(d.Cfg.DataDir, "monitor", "agent"),
		Log:      d.Log, Metrics: d.Metrics, Now: d.Clock.Now,
	}
	h := &hostAgent{}
	if c.Assets, err = h.assets(d, &c); err == nil {
		h.Agent, err = agent.New(c)
	}
	if err != nil {
		return nil, fmt.Errorf("monitor.agent: %w", err)
	}
	return h, nil
}

// Run implements plane.Plane.
func (h *hostAgent) Run(ctx context.Context) error {
	err := h.Agent.Run(ctx)
	if h.temp == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(h.temp))
}

// Close implements plane.Plane.
func (h *hostAgent) Close() error { return h.Agent.Close() }

// assets unpacks assets in the data folder; without one, in dev, in a folder of the system's that goes with the
// process.
func (h *hostAgent) assets(d *plane.Doors, c *agent.Config) (_ *asset.Fetcher, err error) {
	if c.DisableAssets || c.CacheDir != "" {
		return newAssets(c, d.Scripts, asset.DefaultPerSecond, asset.DefaultBurst)
	}
	if h.temp, err = os.MkdirTemp("", "corbel-assets-"); err != nil {
		return nil, err
	}
	return asset.New(asset.Config{Dir: filepath.Join(h.temp, "assets"), Scripts: d.Scripts, Log: c.Log})
}

// backends are those that are configured, else the servers that have the plane: this process, and those that the pool
// knows.
func backends(d *plane.Doors) (out []string) {
	if given := d.Cfg.Monitor.Agent.Backends; len(given) > 0 {
		for _, u := range given {
			out = append(out, agentconf.WithPort(u))
		}
		return out
	}
	// While this process's own backend starts, its agent waits: to ask would be to be refused.
	if own := plane.Find[*Plane](d.Planes); own != nil && len(own.Lacks()) == 0 {
		if scheme, port := own.ports.agentsDoor(); port != "" {
			_, addr := own.Addrs()
			out = append(out, scheme+"://"+onThisHost(addr))
		}
	}
	for _, m := range d.Pool.Members(member.ActAskServer) {
		scheme, port, ok := strings.Cut(m.Tags[tagAgents], ":")
		if ok && m.Status == member.Alive && m.Name != d.Cfg.Node.Name {
			out = append(out, scheme+"://"+net.JoinHostPort(m.Addr, port))
		}
	}
	return out
}

// onThisHost turns an address that means all of the host's into its loopback.
func onThisHost(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
