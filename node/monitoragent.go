package node

import (
	"context"
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

// agentPlane is the monitor plane's agent of this host.
type agentPlane struct {
	plane.Idle
	*agent.Agent
}

// Close implements plane.Plane.
func (a agentPlane) Close() error { return a.Agent.Close() }

// openMonitorAgent makes the monitor plane's agent of this host. Its entity has the node's name, so that the catalog
// and the plane mean one thing by it.
func (p *Process) openMonitorAgent() (plane.Plane, error) {
	cfg := &p.Cfg.Monitor.Agent
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
	secure, err := agentconf.ClientTLS(p.Cfg.TLS.Monitor.CAFile, cfg.CertFile, cfg.KeyFile, false)
	if err != nil {
		return nil, fmt.Errorf("tls.monitor, monitor.agent: %w", err)
	}
	c := agent.Config{
		Entity: agent.Entity{Name: p.Cfg.Node.Name, Namespace: cfg.Namespace, Subscriptions: cfg.Subscriptions,
			Labels: cfg.Labels, Annotations: cfg.Annotations, Redact: cfg.Redact, Managed: cfg.Managed,
			Deregister: cfg.Deregister, Deregistration: cfg.Deregistration},
		Backends: p.monitorBackends, User: cfg.User, Password: cfg.Password, TLS: secure, ByCertificate: cfg.CertFile != "",
		Keepalive: agent.Keepalive{Interval: uint32(cfg.Interval), Warning: uint32(cfg.Warning),
			Critical: uint32(cfg.Critical), Handlers: cfg.Handlers},
		API: cfg.API, Sockets: cfg.Sockets, Statsd: agent.Statsd{Address: cfg.Statsd, Handlers: cfg.StatsdHandlers},
		MetricsHandler: prometheusText(p.Metrics),
		Allow:          allow, DisableAssets: cfg.DisableAssets, Version: version.SensuContract, FS: p.FS,
		CacheDir: base.InDir(p.Cfg.DataDir, "monitor", "agent"),
		Log:      p.Log, Metrics: p.Metrics, Now: p.Clock.Now,
	}
	if c.Assets, err = p.agentAssets(&c); err != nil {
		return nil, fmt.Errorf("monitor.agent: %w", err)
	}
	made, err := agent.New(c)
	if err != nil {
		return nil, fmt.Errorf("monitor.agent: %w", err)
	}
	return agentPlane{Agent: made}, nil
}

// agentAssets unpacks assets in the data folder; without one, in dev, in a folder of the system's that goes with the
// process.
func (p *Process) agentAssets(c *agent.Config) (*asset.Fetcher, error) {
	if c.DisableAssets || c.CacheDir != "" {
		return newAssets(c, p.Scripts, asset.DefaultPerSecond, asset.DefaultBurst)
	}
	dir, err := os.MkdirTemp("", "corbel-assets-")
	if err != nil {
		return nil, err
	}
	p.Parts.Add("monitor assets", func(ctx context.Context) error {
		<-ctx.Done()
		return os.RemoveAll(dir)
	})
	return asset.New(asset.Config{Dir: filepath.Join(dir, "assets"), Scripts: p.Scripts, Log: c.Log})
}

// monitorBackends are those that are configured, else the servers that have the plane: this process, and those that
// the pool knows.
func (p *Process) monitorBackends() []string {
	if given := p.Cfg.Monitor.Agent.Backends; len(given) > 0 {
		out := make([]string, len(given))
		for i, u := range given {
			out[i] = agentconf.WithPort(u)
		}
		return out
	}
	var out []string
	if p.monitor != nil && p.monitor.sessions != nil {
		scheme, _ := p.monitor.agentsDoor()
		_, addr := p.MonitorAddrs()
		out = append(out, scheme+"://"+onThisHost(addr))
	}
	for _, m := range p.Pool.Members(member.ActAskServer) {
		scheme, port, ok := strings.Cut(m.Tags[tagMonitorAgents], ":")
		if ok && m.Status == member.Alive && m.Name != p.Cfg.Node.Name {
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

// agentsDoor is how agents reach this server; port is "" where they do not.
func (m *monitorPlane) agentsDoor() (scheme, port string) {
	if m.sessions == nil {
		return "", ""
	}
	_, port, err := net.SplitHostPort(m.sessions.doors[0].listener.Addr().String())
	if err != nil {
		return "", ""
	}
	if m.tls.Load().agents != nil {
		return "wss", port
	}
	return "ws", port
}
