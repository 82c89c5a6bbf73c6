package node

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/api/promapi"
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/catalog/drainwatch"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/enroll"
	"corbel.dev/corbel/node/plane"
	doctorplane "corbel.dev/corbel/node/planes/doctor"
	meshplane "corbel.dev/corbel/node/planes/mesh"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/node/watch"
)

// localAgent is what servers and client agents have in common: they are the agent of their host. It has the
// registrations of that, and answers there for the whole cluster, by HTTP, DNS and for the host's proxies.
type localAgent struct {
	*base.Base
	role    role
	doors   *plane.Doors
	access  access
	local   *local.Local
	watches *watch.Watches
	mesh    *meshplane.Host
	api     *consulapi.API
	dns     *dnsapi.Server
	doctor  *doctorplane.Doctor
	web     webPorts
	// serverUp tells anti-entropy that there are servers, or a leader, that were not there.
	serverUp chan struct{}
	left     chan struct{} // told when the process left on request: it ends
	warmed   atomic.Bool   // it was ready once, with all planes
	reload   func(context.Context) error
}

// newLocalAgent makes what the role stands on.
func newLocalAgent(cfg *config.Config) (*localAgent, error) {
	if cfg.DataDir == "" && !cfg.Dev {
		return nil, errNoData
	}
	in, err := fault.FromEnv()
	if err != nil {
		return nil, err
	}
	cfg, known, err := enroll.Introduced(in.FS(), cfg)
	if err != nil {
		return nil, err
	}
	b, err := base.New(in, cfg)
	if err != nil {
		return nil, err
	}
	if known != nil {
		b.Certs.Enrolled.Now.Store(known.Certificate(b.Clock.Now()))
	}
	promapi.Declare(b.Metrics)
	p := &localAgent{Base: b, serverUp: make(chan struct{}, 1), left: make(chan struct{}, 1)}
	p.watches = watch.New(watch.Config{
		API: p.late(), Clock: p.Clock, Log: p.Log, Token: func() string { return p.Tokens.Get(base.TokenDefault) },
	})
	return p, nil
}

// take gives it its role, with the catalog's Raft group of a server and what tokens are judged by.
func (p *localAgent) take(r role, catalog *raftgroup.Group, tokens rows.Authorizer) {
	p.role, p.access = r, access{tokens, func() string { return p.Tokens.Get(base.TokenDefault) }}
	p.doors = plane.NewDoors(p.Base, catalog, &p.access)
	p.doors.SetOwnAPI(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.doctor.ServeHTTP(w, r) }))
}

// build makes the graph, in the order in which its parts start.
func (p *localAgent) build(more []plane.Kind) (err error) {
	servers := p.role.servers()
	if err := p.buildLocal(servers); err != nil {
		return err
	}
	p.mesh, err = meshplane.NewHost(meshplane.HostConfig{Base: p.Base, Source: p.role.meshSource(), Access: &p.access,
		Local: p.local, Sides: p.sides()})
	if err != nil {
		return err
	}
	if err := p.buildAPI(); err != nil {
		return err
	}
	p.doors.Local = p.local
	if err = plane.Open(append(kinds(), more...), p.doors); err != nil {
		return err
	}
	if p.doctor, err = doctorplane.New(p.doors, &p.access, p.api); err != nil {
		return err
	}
	if err := p.web.open(p.Base, p.api, p.doors.Front(p.doctor)); err != nil {
		return err
	}
	if err := p.buildDNS(); err != nil {
		return err
	}
	p.answerRPC()
	p.role.answers(servers)
	p.meter()
	p.addParts()
	return nil
}

// abandon closes what was opened where the process is not run.
func (p *localAgent) abandon() (err error) {
	if p.role != nil {
		p.role.stop()
	}
	if p.doors != nil {
		err = p.doors.Planes.Close()
	}
	p.mesh.Close()
	return errors.Join(err, p.Wire.Close())
}

func (p *localAgent) addParts() {
	p.AddCommon()
	p.role.runs()
	p.Parts.Add("server watch", p.watchServers)
	p.Parts.Add("local", p.local.Run)
	p.Parts.Add("watches", p.watches.Run)
	p.mesh.AddParts(&p.Parts)
	own := coordinates.Own{Now: p.Pool.Coordinate, Nodes: clusterSize(p), Send: p.role.place, Log: p.Log}
	p.Parts.Add("coordinate", own.Push)
	if len(p.Cfg.Listen.DNS) > 0 {
		p.Parts.Add("dns", p.dns.Run)
	}
	if c := p.api.Cache(); c != nil {
		p.Parts.Add("agent cache", c.Run)
	}
	p.doors.Planes.Add(&p.Parts)
	p.web.addParts(&p.Parts)
	p.Parts.Add("doctor", p.doctor.Run)
	p.Parts.Add("drain watch",
		drainwatch.New(drainwatch.Config{Local: p.local, Told: p.api.Agent.Told, Metrics: p.Metrics}).Run)
	p.Parts.Add("ready", p.announce)
	p.Parts.Add("warm", p.warm)
}

// announce says what was opened, and waits.
func (p *localAgent) announce(ctx context.Context) error {
	args := []any{"node", p.Cfg.Node.Name, "id", p.ID, "server", p.Cfg.Server, "rpc", p.Wire.Addr().String()}
	for _, a := range p.web.addrs() {
		args = append(args, "http", a.String())
	}
	if a := p.dns.Addr(); a.IsValid() {
		args = append(args, "dns", a.String())
	}
	p.Log.Info("corbel "+version.Number+" runs", args...)
	select {
	case <-ctx.Done():
		return nil
	case <-p.left:
		return errLeft
	}
}

// Run runs the process until ctx ends or it was asked to leave.
func (p *localAgent) Run(ctx context.Context) error {
	err := p.Base.Run(ctx, errLeft)
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// watchServers tells the agent's anti-entropy when servers appear or a leader is elected.
func (p *localAgent) watchServers(ctx context.Context) error {
	last := ""
	for {
		changed := p.Pool.Changes()
		leader, leads := p.role.leader()
		now := strings.Join(p.LivingServers(), " ")
		if leads != nil {
			now += " leader " + leader
		}
		if now != last && now != "" {
			last = now
			select {
			case p.serverUp <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-leads:
		}
	}
}

// Reload applies a fresh configuration: definitions, log level, TLS, tokens,
// telemetry and DNS. All or nothing as far as the configuration can be wrong.
func (p *localAgent) Reload(cfg *config.Config) error {
	cfg, _, err := enroll.Introduced(p.FS, cfg)
	if err != nil {
		return err
	}
	applyPorts, err := p.web.reload(p.Base, cfg)
	if err != nil {
		return err
	}
	applyMesh, err := p.mesh.Reload(cfg)
	if err != nil {
		return err
	}
	applyPlanes, err := p.doors.Planes.Reload(cfg)
	if err != nil {
		return err
	}
	if err := p.loadDefinitions(cfg); err != nil {
		return err
	}
	if err := p.dns.Reload(dnsSettings(cfg)); err != nil {
		return errors.Join(err, p.loadDefinitions(p.Current()))
	}
	if err := p.Base.Reload(cfg); err != nil {
		return errors.Join(err, p.loadDefinitions(p.Current()))
	}
	applyPorts()
	applyMesh()
	applyPlanes()
	p.Ports.Reload(&cfg.Limits)
	p.api.SetRequestLimits(requestLimitsOf(cfg))
	p.api.SetDiscoveryMaxStale(cfg.Queries.DiscoveryMaxStale)
	p.local.SetDiscardOutput(cfg.Checks.DiscardOutput)
	p.api.SetForwardRate(cfg.Limits.RPCRate, cfg.Limits.RPCMaxBurst)
	p.Keep(cfg)
	p.Log.Info("reloaded the configuration")
	return nil
}

func requestLimitsOf(cfg *config.Config) rows.RequestLimits {
	l := &cfg.Limits
	return rows.RequestLimits{Mode: l.RequestMode, ReadRate: l.RequestReadRate, WriteRate: l.RequestWriteRate}
}

// OnReload says how to read the configuration again when the API asks for it.
func (p *localAgent) OnReload(fn func(context.Context) error) { p.reload = fn }

// askMember asks a member with GET, as a server; the doctor is built later.
func (p *localAgent) askMember(ctx context.Context, node, path string) (int, []byte, error) {
	return p.doctor.Ask(ctx, node, path)
}

// late is the API, which is built later.
func (p *localAgent) late() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.api.ServeHTTP(w, r) })
}

// answerRPC registers what every process answers.
func (p *localAgent) answerRPC() {
	p.Wire.KnowServers(p.role.roleOf)
	p.RPCSrv.Handle(wire.Federation, wan.MethodPing, wan.AnswerPing)
	p.RPCSrv.Handle(wire.Servers, base.MethodKeyring, p.Pool.AnswerKeys)
}
