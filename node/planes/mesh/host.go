package meshplane

import (
	"context"
	"time"

	"corbel.dev/corbel/api/xds"
	"corbel.dev/corbel/api/xds/hostplane"
	"corbel.dev/corbel/api/xds/side"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/mesh/host"
	"corbel.dev/corbel/mesh/issue"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
)

// doubtedGrant is how old an agent's knowledge of a token may be that the servers refused something.
const doubtedGrant = 500 * time.Millisecond

// Source is where a host's mesh comes from: a Server, or a Client of servers.
type Source interface {
	// Sign has the mesh's authority sign a certificate.
	Sign(ctx context.Context, r issue.Request) (issue.Certificate, error)
	// roots waits for roots newer than index.
	roots(ctx context.Context, index uint64) (leaf.Roots, error)
	// follower gives the values that proxies are made of; newest is the index up to which they are known.
	follower() feed.Follower
	newest() uint64
	// registered lets the directory know proxies beside those of this host.
	registered(d *directory)
	// recheck is how often the rights of tokens are looked at, 0 for the default.
	recheck() time.Duration
	// lacks tells what is waited for before proxies may come.
	lacks() []string
	// part is what it runs.
	part() life.Part
}

// Host is what a process does for its host: certificates for services, and, with connect, proxies and the ports that
// they come to.
type Host struct {
	*leaf.Leaves
	b      *base.Base
	Source Source
	mesh   *mesh // nil without connect
}

// mesh are the proxies of a host.
type mesh struct {
	dir   *directory
	host  *host.Host
	xds   *xds.Server // nil where no port is open
	ports ports
}

// HostConfig says what a Host is made of.
type HostConfig struct {
	Base   *base.Base
	Source Source
	Access Access
	Local  *local.Local
	Sides  Sides // answers dataplanes
}

// NewHost makes it. The ports are bound, so that the API can tell them.
func NewHost(c HostConfig) (_ *Host, err error) {
	b, cfg := c.Base, c.Base.Cfg
	h := &Host{b: b, Source: c.Source}
	grant := grantOf(b, c.Access)
	h.Leaves, err = leaf.New(leaf.Config{Sign: c.Source.Sign, Roots: c.Source.roots, Grant: grant,
		Datacenter: cfg.Node.Datacenter, RotationWindow: cfg.Connect.RotationWindow, Clock: b.Clock, Logger: b.Log,
		Metrics: b.Metrics})
	if err != nil || !cfg.Connect.Enabled {
		return h, err
	}
	m := &mesh{dir: &directory{local: c.Local, node: cfg.Node.Name, changed: make(chan struct{})}}
	c.Source.registered(m.dir)
	ask := grant
	if ask != nil {
		ask = func(ctx context.Context, token string) (*acl.Grant, error) {
			return c.Access.GrantWithin(ctx, token, doubtedGrant)
		}
	}
	m.host, err = host.New(host.Config{Node: cfg.Node.Name, Datacenter: cfg.Node.Datacenter,
		Follower: c.Source.follower(), Leaves: h.Leaves, Directory: m.dir, Grant: grant, Ask: ask,
		ExposeChecks: local.Exposer(c.Local),
		Recheck:      c.Source.recheck(), Token: func() string { return b.Tokens.Get(base.TokenDefault) }, Clock: b.Clock,
		Logger: b.Log, Metrics: b.Metrics})
	if err != nil {
		return nil, err
	}
	h.mesh = m
	if len(cfg.Listen.GRPC) == 0 && len(cfg.Listen.GRPCTLS) == 0 {
		return h, nil
	}
	m.xds = xds.New(xds.Config{Plane: hostplane.Plane{Host: m.host}, Methods: c.Sides.Methods(b, c.Source),
		Services: side.Services, MaxCalls: maxSideCalls, Bytes: b.Ports.Bytes, Log: b.Log, Metrics: b.Metrics})
	m.xds.SetServing(false) // until the process is warm
	return h, m.ports.bind(b)
}

// AddParts adds what it runs, in the order in which the parts depend on each other.
func (h *Host) AddParts(parts *life.Group) {
	m := h.mesh
	if m == nil {
		return
	}
	parts.Add("leaf certificates", h.Leaves.Run)
	feed := h.Source.part()
	parts.Add(feed.Name, feed.Run)
	parts.Add("mesh directory", m.dir.follow)
	parts.Add("mesh host", m.host.Run)
	if m.xds != nil {
		parts.Add("xds", func(ctx context.Context) error { return m.ports.run(ctx, m.xds) })
	}
}

// Lacks tells what is waited for before proxies may come.
func (h *Host) Lacks() []string {
	if h.mesh == nil {
		return nil
	}
	return h.Source.lacks()
}

// SetServing tells balancers whether this host's ports for Envoys are to be used.
func (h *Host) SetServing(serving bool) {
	if h.mesh != nil && h.mesh.xds != nil {
		h.mesh.xds.SetServing(serving)
	}
}

// Reload judges a fresh configuration and returns what applies it.
func (h *Host) Reload(cfg *config.Config) (apply func(), err error) {
	if h.mesh == nil || h.mesh.ports.secure == 0 {
		return func() {}, nil
	}
	fresh, err := h.b.GRPCTLS(cfg)
	return func() { h.mesh.ports.tls.Store(fresh) }, err
}

// Close closes the ports where the parts never run.
func (h *Host) Close() {
	if h != nil && h.mesh != nil {
		h.mesh.ports.close()
	}
}

// Ports are those that Envoys may come to: with and without TLS, -1 for none.
func (h *Host) Ports() (plain, secure int) {
	plain, secure = -1, -1
	if h.mesh != nil && h.mesh.ports.plain > 0 {
		plain = h.mesh.ports.plain
	}
	if h.mesh != nil && h.mesh.ports.secure > 0 {
		secure = h.mesh.ports.secure
	}
	return plain, secure
}
