package node

import (
	"context"
	"net"
	"sync"
	"time"

	"corbel.dev/corbel/api/xds"
	"corbel.dev/corbel/api/xds/hostplane"
	"corbel.dev/corbel/api/xds/side"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/mesh/host"
	"corbel.dev/corbel/node/base"
)

const (
	// doubtedGrant is how old an agent's knowledge of a token may be that the servers refused something.
	doubtedGrant = 500 * time.Millisecond
	// serverRecheck is how often a server looks at the tokens of its own proxies: it asks nobody for that.
	serverRecheck = 2 * time.Second
)

// meshHost is this process's side of the mesh: the values that servers give, the proxies of the host, and the
// ports that Envoys come to.
type meshHost struct {
	server *feed.Server // on servers
	client *feed.Client // on client agents
	dir    *meshDirectory
	host   *host.Host
	xds    *xds.Server // nil where no port is open
	ports  xdsPorts
}

// buildMesh makes it. The ports are bound, so that the API can tell them.
func (p *Process) buildMesh() (err error) {
	if !p.Cfg.Connect.Enabled {
		return nil
	}
	m := &meshHost{dir: &meshDirectory{local: p.local, node: p.Cfg.Node.Name, changed: make(chan struct{})}}
	var follower feed.Follower
	if p.registry != nil {
		if m.server, err = feed.NewServer(feed.ServerConfig{Source: p.board, Lag: dnsSource{p}.Lag, Clock: p.Clock,
			Log: p.Log, Metrics: p.Metrics}); err != nil {
			return err
		}
		follower = feed.Local{Source: p.board, Node: p.Cfg.Node.Name, Clock: p.Clock}
		m.dir.state = p.registry.State
		p.registry.OnApply(m.dir.applied)
	} else {
		m.client, err = feed.NewClient(feed.ClientConfig{Node: p.Cfg.Node.Name, Servers: p.OtherServers,
			Hedge: p.Cfg.Connect.Hedge, Clock: p.Clock, Log: p.Log, Metrics: p.Metrics,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return p.Wire.Dial(ctx, addr, wire.ProtoFeed, 0)
			}})
		if err != nil {
			return err
		}
		follower = m.client
	}
	var grant, ask func(context.Context, string) (*acl.Grant, error)
	if p.Cfg.ACL.Enabled {
		grant = p.access.tokens.Grant
		ask = func(ctx context.Context, token string) (*acl.Grant, error) {
			return p.access.tokens.Grant(grants.Fresh(ctx, doubtedGrant), token)
		}
	}
	recheck := time.Duration(0)
	if p.Cfg.Server {
		recheck = serverRecheck
	}
	m.host, err = host.New(host.Config{Node: p.Cfg.Node.Name, Datacenter: p.Cfg.Node.Datacenter, Follower: follower,
		Leaves: p.leaves, Directory: m.dir,
		Grant: grant, Ask: ask, Recheck: recheck, Token: func() string { return p.Tokens.Get(base.TokenDefault) },
		Clock:  p.Clock,
		Logger: p.Log, Metrics: p.Metrics})
	if err != nil {
		return err
	}
	p.mesh = m
	if len(p.Cfg.Listen.GRPC) == 0 && len(p.Cfg.Listen.GRPCTLS) == 0 {
		return nil
	}
	m.xds = xds.New(xds.Config{Plane: hostplane.Plane{Host: m.host}, Methods: p.sideMethods(), Services: side.Services,
		MaxCalls: maxSideCalls, Bytes: p.Ports.Bytes, Log: p.Log, Metrics: p.Metrics})
	m.xds.SetServing(false) // until the process is warm
	return m.ports.bind(p)
}

// addMesh adds the parts, in the order in which they depend on each other.
func (p *Process) addMesh() {
	m := p.mesh
	if m == nil {
		return
	}
	if m.server != nil {
		p.Parts.Add("mesh feed", func(ctx context.Context) error {
			return m.server.Run(ctx, p.Wire.Listen(wire.ProtoFeed, 0, wire.Members))
		})
	} else {
		p.Parts.Add("mesh feed", m.client.Run)
	}
	p.Parts.Add("mesh directory", m.dir.follow)
	p.Parts.Add("mesh host", m.host.Run)
	if m.xds != nil {
		p.Parts.Add("xds", func(ctx context.Context) error { return m.ports.run(ctx, m.xds) })
	}
}

// grpcPorts are those that Envoys may come to: with and without TLS, -1 for none.
func (p *Process) grpcPorts() (plain, secure int) {
	plain, secure = -1, -1
	if m := p.mesh; m != nil {
		if m.ports.plain > 0 {
			plain = m.ports.plain
		}
		if m.ports.secure > 0 {
			secure = m.ports.secure
		}
	}
	return plain, secure
}

// meshDirectory is the registered proxies: of this host's agent, and on servers of the whole catalog.
type meshDirectory struct {
	local *local.Local
	node  string
	state func() *catalog.State // nil on client agents

	mu      sync.Mutex
	version uint64
	changed chan struct{} // closed and replaced with each version
}

// Find implements host.Directory.
func (d *meshDirectory) Find(node, id string) *catalog.Service {
	if node == d.node {
		if s := d.local.Service(id); s != nil {
			return s.Service
		}
	}
	if d.state == nil {
		return nil
	}
	return d.state().Service(node, id)
}

// List implements host.Directory.
func (d *meshDirectory) List() []*catalog.Service {
	var list []*catalog.Service
	for _, s := range d.local.View().Services {
		if s.Service.Kind != catalog.KindTypical {
			list = append(list, s.Service)
		}
	}
	return list
}

// Await implements host.Directory.
func (d *meshDirectory) Await(ctx context.Context, since uint64) uint64 {
	for {
		d.mu.Lock()
		version, changed := d.version, d.changed
		d.mu.Unlock()
		if version != since {
			return version
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return since
		}
	}
}

func (d *meshDirectory) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version++
	close(d.changed)
	d.changed = make(chan struct{})
}

// applied hears of each batch of the log on a server: proxies may have changed, or all is another state.
func (d *meshDirectory) applied(_ *catalog.State, c *catalog.Changes) {
	if c == nil {
		d.tell()
		return
	}
	for i := range c.Services {
		for _, s := range []*catalog.Service{c.Services[i].Before, c.Services[i].After} {
			if s != nil && s.Kind != catalog.KindTypical {
				d.tell()
				return
			}
		}
	}
}

// follow tells of changes at this host's agent.
func (d *meshDirectory) follow(ctx context.Context) error {
	version := uint64(0)
	for ctx.Err() == nil {
		if v := d.local.Await(ctx, version); v.Version != version {
			version = v.Version
			d.tell()
		}
	}
	return nil
}
