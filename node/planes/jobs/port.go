package jobsplane

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/node/planes/jobs/jobsnaps"
	"corbel.dev/corbel/node/planes/jobs/regions"
	"corbel.dev/corbel/node/planes/jobsagent/nodecalls"
)

// port is where the Nomad API is served.
type port struct {
	listen httpx.Listen
	server atomic.Pointer[httpx.Server] // nil while the port is somebody else's
}

// openPort opens the port, if it is on. In dev a port that is in use is replaced by a free one, unless it was asked
// for. Elsewhere a server goes on without it, for it has more to do, and takes it when it becomes free: servers of one
// host may share a setting, and one of them serves.
func (p *Plane) openPort() error {
	addr := p.keys.addr()
	if addr == "" {
		return nil
	}
	cfg := p.d.Cfg
	p.port = &port{listen: httpx.Listen{Address: addr}}
	if cfg.TLS.HTTPS.Enabled() && !cfg.TLS.Disabled {
		block := cfg.TLS.HTTPS
		secure, err := p.d.PortTLS(cfg, "https", &block, "http/1.1")
		if err != nil {
			return err
		}
		p.port.listen.TLS = secure
	}
	err := p.bind()
	if neterr.InUse(err) && !cfg.Dev {
		p.d.Log.Warn("the port of the jobs plane is in use: this server serves Nomad's API when it is free; jobs.port sets "+
			"another", "wanted", addr)
		return nil
	}
	if neterr.InUse(err) && !cfg.Given("jobs.port") {
		p.d.Log.Warn("the port of the jobs plane is in use; using another one", "wanted", addr)
		p.port.listen.Address = "127.0.0.1:0"
		err = p.bind()
	}
	if err != nil {
		p.port = nil
		return fmt.Errorf("jobs.port: %w", err)
	}
	return nil
}

// bind takes the port.
func (p *Plane) bind() error {
	cfg := p.d.Cfg
	server, err := httpx.NewServer(httpx.ServerConfig{Name: "jobs", Listen: []httpx.Listen{p.port.listen},
		Handler: p.d.Front(p.api), Hot: nomadapi.NewShort(p.api, p.group.raft.IsLeader),
		Conns: p.d.Ports.HTTP, ExemptLoopback: cfg.Dev, MaxHeaderBytes: cfg.HTTP.MaxHeaderBytes, Bytes: p.d.Ports.Bytes,
		Logger: p.d.Log, Metrics: p.d.Metrics})
	if err != nil {
		return err
	}
	if err := server.Bind(); err != nil {
		return err
	}
	p.port.server.Store(server)
	return nil
}

// portEvery is how often a port that is in use is tried again.
const portEvery = 2 * time.Second

// servePort serves the API once the port is this server's.
func (p *Plane) servePort(ctx context.Context) error {
	for p.port.server.Load() == nil {
		timer := p.d.Clock.NewTimer(portEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		err := p.bind()
		if err != nil && !neterr.InUse(err) {
			return fmt.Errorf("jobs.port: %w", err)
		}
		if err == nil {
			p.d.Log.Info("the port of the jobs plane is free: this server serves Nomad's API", "address",
				p.port.listen.Address)
		}
	}
	return p.port.server.Load().Run(ctx)
}

// openAPI makes the handler of the API.
func (p *Plane) openAPI() {
	w, s := writers{p}, newSeals(p.d)
	c := cluster{p}
	p.d.Handle(wire.Servers, methodHTTP, c.serve)
	if p.d.Logs != nil {
		p.d.HandleStream(wire.Servers, methodMonitor, nodecalls.FollowLog(p.d.Logs))
	}
	if p.d.Far != nil {
		p.regions = regions.New(regions.Config{Region: p.keys.Region, Paths: p.d.Far, Clock: p.d.Clock,
			Call: p.d.Cfg.Limits.RPCClient, API: p.API})
		p.d.Handle(wire.AllServers, regions.MethodName, p.regions.Name)
		p.d.HandleStream(wire.AllServers, regions.MethodHTTP, p.regions.Serve)
	}
	i := newIdentities(p, s)
	p.snapshots = jobsnaps.New(p.d, p.group.raft, p.store)
	p.api = nomadapi.New(nomadapi.Config{Log: p.d.Log, Clock: p.d.Clock, Needs: nomadrows.Needs{
		Metrics: promapi.New(p.metrics).And(p.d.Metrics, "nomad.client."), Keys: i, Views: views{p}, Jobs: w,
		Starter: w, Nodes: w, Deployments: w, Settings: w, Cluster: c, Variables: newVariables(p, s),
		Clients: &nodecalls.Clients{RPC: p.d.Members, Addr: p.nodes.rpcAddr}, Rights: rightsOf(p.d, i),
		Access: accessOf(p.d), Logs: p.d.Logs, Snapshots: p.snapshots}})
}
