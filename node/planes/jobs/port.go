package jobsplane

import (
	"fmt"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/node/planes/jobsagent/nodecalls"
)

// port is where the Nomad API is served.
type port struct{ server *httpx.Server }

// openPort opens the port, if it is on. In dev a port that is in use is replaced by a free one, unless it was asked
// for.
func (p *Plane) openPort() error {
	addr := p.keys.addr()
	if addr == "" {
		return nil
	}
	cfg := p.d.Cfg
	listen := httpx.Listen{Address: addr}
	if cfg.TLS.HTTPS.Enabled() && !cfg.TLS.Disabled {
		block := cfg.TLS.HTTPS
		secure, err := p.d.PortTLS(cfg, "https", &block, "http/1.1")
		if err != nil {
			return err
		}
		listen.TLS = secure
	}
	open := func(l httpx.Listen) (err error) {
		p.port = &port{}
		p.port.server, err = httpx.NewServer(httpx.ServerConfig{Name: "jobs", Listen: []httpx.Listen{l},
			Handler: p.d.Front(p.api),
			Conns:   p.d.Ports.HTTP, ExemptLoopback: cfg.Dev, MaxHeaderBytes: cfg.HTTP.MaxHeaderBytes, Bytes: p.d.Ports.Bytes,
			Logger: p.d.Log, Metrics: p.d.Metrics})
		if err != nil {
			return err
		}
		return p.port.server.Bind()
	}
	err := open(listen)
	if neterr.InUse(err) && !cfg.Given("jobs.port") {
		if !cfg.Dev {
			p.port = nil
			p.d.Log.Warn("the port of the jobs plane is in use: this server does not serve Nomad's API; set jobs.port",
				"wanted", addr)
			return nil
		}
		p.d.Log.Warn("the port of the jobs plane is in use; using another one", "wanted", addr)
		listen.Address = "127.0.0.1:0"
		err = open(listen)
	}
	if err != nil {
		p.port = nil
		return fmt.Errorf("jobs.port: %w", err)
	}
	return nil
}

// openAPI makes the handler of the API.
func (p *Plane) openAPI() {
	w, s := writers{p}, newSeals(p.d)
	c := cluster{p}
	p.d.Handle(wire.Servers, methodHTTP, c.serve)
	i := newIdentities(p, s)
	p.api = nomadapi.New(nomadapi.Config{Log: p.d.Log, Clock: p.d.Clock, Needs: nomadrows.Needs{
		Metrics: promapi.New(p.metrics), Keys: i, Views: views{p}, Jobs: w,
		Starter: w, Nodes: w, Deployments: w, Settings: w, Cluster: c, Variables: newVariables(p, s),
		Clients: &nodecalls.Clients{RPC: p.d.Members, Addr: p.nodes.rpcAddr}, Rights: rightsOf(p.d, i)}})
}
